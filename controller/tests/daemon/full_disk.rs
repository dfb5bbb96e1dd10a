//! A disk that is full: what runs ends and is kept, nothing new begins, and when there is room all goes on.

use std::process::Command;

use perilog_core::message::{FromAgent, ToAgent};
use perilog_core::outcome::Outcome;
use perilog_core::task::{Ended, Tail};
use serde_json::json;

use crate::agent::{Agent, hello};
use crate::bed::Bed;
use crate::python::{call, refused, run};

/// A disk of 24 MiB for the store, seen by the controller alone: a mount namespace of its own.
fn on_a_small_disk(bed: &Bed) -> Command {
    let program = bed.command();
    let mut command = Command::new("unshare");
    let user = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let script = "mount -t tmpfs -o size=24m none \"$0\" && exec \"$@\"";
    command.args([user, "sh", "-c", script]).arg(bed.disk()).arg(program.get_program()).args(program.get_args());
    command
}

/// As that controller sees it.
fn inside(controller: &crate::bed::Controller, bed: &Bed) -> std::path::PathBuf {
    let root = format!("/proc/{}/root", controller.pid().as_raw_nonzero());
    std::path::Path::new(&root).join(bed.disk().strip_prefix("/").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_completions_are_kept_and_prologs_refused_until_there_is_room() {
    let mut bed = Bed::new();
    bed.use_disk();
    bed.write_config();
    let command = on_a_small_disk(&bed);
    let controller = bed.start_with(command);
    let disk = inside(&controller, &bed);
    assert_eq!(disk.join("controller.db-reserve").metadata().unwrap().len(), 8 << 20);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;

    let mut filler = Vec::new();
    while std::fs::write(disk.join("filler"), &filler).is_ok() {
        filler.resize(filler.len() + (64 << 10), 1);
    }
    // A completion with output, larger than what is left of the last block.
    let mut ended = Ended::bare(Outcome::Ok, 1_552_593_349_000);
    ended.tails = vec![Tail { script: "10-mount".to_owned(), text: "x".repeat(60_000) }; 1];
    ended.outcome = Outcome::Tolerable;
    agent.send(&FromAgent::Finished { task: start.task, ended: Box::new(ended) }).await;
    assert_eq!(agent.next().await, ToAgent::Ack { task: start.task }, "the reserve is for this");
    controller.log.wait_for("its reserve is in use");
    assert!(!disk.join("controller.db-reserve").exists());
    let (_, told) = refused(&bed, "Run", run("f2", "n0"), &[]);
    assert_eq!(told["code"], "unavailable", "{told}");
    // Epilogs begin, and end.
    call(&bed, "Run", json!({"job": "f1", "action": "epilog"}));
    agent.run(Outcome::Ok).await;

    std::fs::remove_file(disk.join("filler")).unwrap();
    controller.log.wait_for("has room again");
    call(&bed, "Run", run("f2", "n0"));
    agent.run(Outcome::Ok).await;
    assert_eq!(disk.join("controller.db-reserve").metadata().unwrap().len(), 8 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_reserve_is_used_up_nothing_is_acknowledged_and_nothing_lost() {
    let mut bed = Bed::new();
    bed.use_disk();
    bed.write_config();
    let command = on_a_small_disk(&bed);
    let controller = bed.start_with(command);
    let disk = inside(&controller, &bed);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    let fill = || {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(disk.join("filler")).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    };
    // Full, and full again where the reserve was.
    fill();
    std::fs::remove_file(disk.join("controller.db-reserve")).unwrap();
    fill();
    let mut ended = Ended::bare(Outcome::Tolerable, 1_552_593_349_000);
    ended.tails = vec![Tail { script: "10-mount".to_owned(), text: "x".repeat(60_000) }; 1];
    let finished = FromAgent::Finished { task: start.task, ended: Box::new(ended) };
    agent.send(&finished).await;
    // No Ack: the session ends, so that the agent says all again.
    let end = crate::agent::next_frame(&mut agent.link).await;
    assert!(matches!(end, Ok(None)), "{end:?}");
    controller.log.wait_for("beginning anew from the store");
    assert_eq!(refused(&bed, "Run", run("f2", "n0"), &[]).1["code"], "unavailable");

    std::fs::remove_file(disk.join("filler")).unwrap();
    let mut again = loop {
        // Sent away until it has begun anew.
        let mut link = crate::agent::link(&bed, &controller, "n0").await;
        let mut said = hello("n0", vec![crate::sessions::held(&start, perilog_core::message::HeldState::Ended)]);
        said.link = 2;
        let sent = link.writer.send(perilog_proto::encode_from_agent(&FromAgent::Hello(said))).await;
        if let (Ok(()), Ok(Some(_))) = (sent, crate::agent::next_frame(&mut link).await) {
            break Agent { host: "n0".to_owned(), link, epoch: agent.epoch };
        }
    };
    again.send(&finished).await;
    assert_eq!(again.next().await, ToAgent::Ack { task: start.task });
    assert_eq!(call(&bed, "Status", json!({}))["status"]["epoch"], 2);
}
