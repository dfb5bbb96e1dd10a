//! Directories that another program removes while the agent runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::bed::Bed;
use crate::peer::Peer;

/// Regression test: after `rm -rf /run/perilog/tasks` the agent refused every later task, and its node was drained.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_tasks_directory_is_reported_once_and_new_tasks_go_on() {
    let bed = Bed::new();
    let agent = bed.start();
    let tasks = bed.run_dir().join("tasks");
    let warning = format!("{} was missing", tasks.display());
    let mut peer = Peer::accept(&bed).await;
    peer.start("f0").await;
    for round in 1..=2 {
        fs::remove_dir_all(&tasks).unwrap();
        for n in 0..3 {
            let stem = peer.start(&format!("f{round}-{n}")).await;
            assert!(tasks.join(stem).join("intent.json").exists(), "accepted is on disk");
        }
        assert_eq!(fs::metadata(&tasks).unwrap().permissions().mode() & 0o777, 0o700);
        agent.log.wait_for_more(&warning, round - 1);
        assert_eq!(agent.log.count(&warning), round, "once each time");
    }
}
