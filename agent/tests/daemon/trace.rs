//! The trace at the level `trace`: each input and effect of the machine.

use std::fs;

use perilog_core::trace::read;

use crate::bed::Bed;
use crate::peer::Peer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_in_the_trace_of_its_agent() {
    let bed = Bed::new();
    let drop_ins = bed.dir.path().join("agent.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("log.toml"), "log = \"trace\"\n").unwrap();
    let agent = bed.start();
    let mut peer = Peer::accept(&bed).await;
    peer.start("f0").await;
    let line = agent.log.wait_for("\"StartUnit\"");
    assert!(line.contains("rank=0 action_id="), "{line}");
    let text = agent.log.text();
    let entries: Vec<_> = text.lines().filter_map(read).collect();
    let numbers: Vec<u64> = entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..entries.len() as u64).collect::<Vec<_>>());
    let of = |kind: &str, name: &str| entries.iter().filter(|(_, entry)| entry[kind].get(name).is_some()).count();
    assert_eq!((of("input", "Joined"), of("input", "IntentWritten"), of("effect", "WriteIntent")), (1, 1, 1));
    assert!(of("now", "boot_ms") > 3);
}
