//! Tests kill -9 of a process during a write: records reported as durable are there, and every batch is there whole or
//! not at all.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use perilog_controller::store::{Durable, EventReader, Store};
use perilog_core::controller::Record;
use perilog_core::{Event, JobId};

/// Environment variable with the path of the store, for the child: this test's program run again, which commits until
/// the test kills it.
const CHILD: &str = "PERILOG_TEST_STORE";
const BATCH: u64 = 7;

fn job() -> JobId {
    JobId::new("f1").unwrap()
}

fn batch(n: u64) -> Vec<Record> {
    let event = |sequence| Record::Event { job: job(), sequence, event: Event::at_millis(sequence, "finish", None) };
    (1..=BATCH).map(|i| event(n * BATCH + i)).collect()
}

fn batches(store: &mut Store) -> u64 {
    let last = store.load().unwrap().events_last.get(&job()).copied().unwrap_or(0);
    assert_eq!(last % BATCH, 0, "half a batch");
    last / BATCH
}

fn commit_for_ever(path: &Path) {
    let mut store = Store::open(path).unwrap();
    for n in batches(&mut store).. {
        store.commit(&batch(n)).unwrap();
        println!("acknowledged {}", n + 1);
    }
}

#[test]
fn acknowledged_batches_survive_kill_9() {
    if let Ok(path) = std::env::var(CHILD) {
        return commit_for_ever(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let mut acknowledged = 0;
    for run in 1..=8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "acknowledged_batches_survive_kill_9"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
        // A different number each time, past several checkpoints of the log.
        let until = acknowledged + run * 61;
        let reached = printed.find(|n| *n >= until).expect("the child commits");
        child.kill().unwrap();
        // Reports until its death count, too; a torn last line does not.
        acknowledged = printed.last().unwrap_or(reached);
        child.wait().unwrap();
        let found = batches(&mut Store::open(&path).unwrap());
        assert!(found >= acknowledged, "run {run}: {acknowledged} acknowledged, {found} found");
        let reader = EventReader::open(&path).unwrap();
        let mut numbers = Vec::new();
        loop {
            let page = reader.events(&job(), numbers.last().copied().unwrap_or(0), usize::MAX).unwrap();
            if page.is_empty() {
                break;
            }
            numbers.extend(page.into_iter().map(|(n, _)| n));
        }
        assert!(numbers.into_iter().eq(1..=found * BATCH), "a hole");
        acknowledged = found;
    }
}
