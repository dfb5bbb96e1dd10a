//! Tests of the writer, with a store whose commits succeed or fail as each test sets.

use std::sync::{Arc, Mutex};

use perilog_core::JobId;
use perilog_core::controller::io::{Fetched, Reply, Request, RunRequest};
use perilog_core::controller::{Needs, Snapshot};
use perilog_core::{ActionName, ClusterId, Commit};
use tokio::sync::oneshot;

use super::*;
use crate::daemon::inlet::Inlet;
use crate::store::Ran;

/// A store in memory that keeps what was committed. A test can set the errors of its next commits.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    snapshot: Snapshot,
    commits: Vec<usize>,
    ran: Vec<Ran>,
    fail: Vec<StoreError>,
    full: bool,
}

impl Durable for Script {
    fn load_open(&mut self, _: Holding) -> Result<Snapshot, StoreError> {
        self.load()
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Fetched, StoreError> {
        Ok(self.0.lock().unwrap().snapshot.fetch(needs))
    }

    fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.0.lock().unwrap().snapshot.clone())
    }

    fn commit_with(&mut self, records: &[Record], ran: &mut Vec<Ran>) -> Result<(), StoreError> {
        let mut state = self.0.lock().unwrap();
        if let Some(error) = state.fail.pop() {
            return Err(error);
        }
        records.iter().for_each(|record| state.snapshot.apply(record));
        state.commits.push(records.len());
        state.ran.append(&mut ran.clone());
        Ok(())
    }

    fn anchor(&mut self, newest: Commit) {
        self.0.lock().unwrap().snapshot.anchor = Some(newest);
    }

    fn is_full(&mut self) -> bool {
        self.0.lock().unwrap().full
    }
}

impl Script {
    fn fail_with(&self, error: StoreError) {
        self.0.lock().unwrap().fail.push(error);
    }

    fn epoch(&self) -> u64 {
        self.0.lock().unwrap().snapshot.history.newest().unwrap().epoch.number
    }

    fn commits(&self) -> usize {
        self.0.lock().unwrap().commits.len()
    }
}

fn settings() -> Settings {
    Settings {
        cluster: ClusterId::from_name("test"),
        start_grace_ms: 60_000,
        unreachable_grace_ms: 60_000,
        not_after_ms: 600_000,
        probe_ms: 5_000,
        redial_per_second: 2_000,
        timeouts: Default::default(),
        retention_ms: 1_000_000_000,
        keep_attempts: 100,
        keep_after: perilog_core::ActionName::new("prolog").unwrap(),
        after: vec![ActionName::new("epilog").expect("a word")],
        release: std::collections::BTreeMap::new(),
        tolerate_lost: false,
        tolerate_timeout: false,
        reboot_cleans: false,
        drain_hook: false,
        release_hook: false,
    }
}

fn writer(script: &Script) -> Writer<Script> {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let (outbox, status) = (watch::channel(()).0, watch::channel(String::new()).0);
    Writer::new(script.clone(), settings(), 42, outbox, status, None).unwrap()
}

type Answer = oneshot::Receiver<Result<Reply, Refusal>>;

/// Makes a request whose handling commits records: to run the prolog on a node that the controller does not know.
/// Returns the request as an entry of the writer's queue, and the receiver of the reply.
fn run(job: &str) -> (Entry, Answer) {
    let run = RunRequest {
        job: JobId::new(job).unwrap(),
        attempt: None,
        action: ActionName::new("prolog").unwrap(),
        nodes: Some("n0".parse().unwrap()),
        targets: None,
        userid: None,
        env: Default::default(),
        timeout_ms: None,
        known: false,
    };
    let (answer, answered) = oneshot::channel();
    (Entry::Request { uid: 0, request: Request::Run(run), answer, parts: None }, answered)
}

fn reported(answer: &mut Answer) -> Result<Reply, Refusal> {
    answer.try_recv().expect("an answer")
}

#[test]
fn what_is_queued_is_one_commit() {
    let script = Script::default();
    let mut writer = writer(&script);
    assert_eq!((script.epoch(), script.commits()), (1, 1));
    let (entries, mut answers): (Vec<_>, Vec<_>) = (0..50).map(|n| run(&format!("f{n}"))).unzip();
    writer.turn(entries.into_iter()).unwrap();
    assert_eq!(script.commits(), 2);
    assert!(answers.iter_mut().all(|answer| reported(answer).is_ok()));
    // A question makes no records, so the writer does not commit.
    let (answer, mut answered) = oneshot::channel();
    let request = Request::Ps { older_than_ms: 0, held: false };
    writer.turn([Entry::Request { uid: 0, request, answer, parts: None }].into_iter()).unwrap();
    assert!(matches!(reported(&mut answered), Ok(Reply::Ps { .. })));
    assert_eq!(script.commits(), 2);
}

#[test]
fn a_failed_commit_lets_nothing_leave_and_ends_the_process() {
    let script = Script::default();
    let mut writer = writer(&script);
    script.fail_with(StoreError::Other("disk I/O error".to_owned()));
    let (entry, mut answer) = run("f1");
    let error = writer.turn([entry].into_iter()).unwrap_err();
    assert_eq!(error.to_string(), "the store: disk I/O error");
    answer.try_recv().expect_err("it got a reply that is not durable");
}

#[test]
fn on_a_full_disk_the_machine_is_rebuilt_and_callers_are_notified() {
    let script = Script::default();
    let mut writer = writer(&script);
    // The batch does not fit, and a new epoch does not fit, either.
    script.fail_with(StoreError::Full);
    script.fail_with(StoreError::Full);
    let (entry, mut answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(matches!(reported(&mut answer), Err(Refusal::Unavailable(_))));
    assert!(script.0.lock().unwrap().snapshot.attempts.is_empty());
    assert!(writer.status_line().contains("disk is full"));
    let (entry, mut answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(matches!(reported(&mut answer), Err(Refusal::Unavailable(_))), "there is no machine");
    assert_eq!(script.epoch(), 1);
    // At a later check the disk has room.
    writer.disk_ms = Some(0);
    writer.turn(std::iter::empty()).unwrap();
    assert_eq!(script.epoch(), 2);
    let (entry, mut answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(matches!(reported(&mut answer), Ok(Reply::Running { attached: false, .. })));
}

#[test]
fn while_the_reserve_is_in_use_prologs_are_refused() {
    let script = Script::default();
    let mut writer = writer(&script);
    script.0.lock().unwrap().full = true;
    writer.turn(std::iter::empty()).unwrap();
    let (entry, mut answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(matches!(reported(&mut answer), Err(Refusal::Unavailable(_))));
    script.0.lock().unwrap().full = false;
    writer.disk_ms = Some(0);
    writer.turn(std::iter::empty()).unwrap();
    let (entry, mut answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(reported(&mut answer).is_ok());
}

#[test]
fn a_discarded_machine_gets_no_input_from_its_sessions() {
    let script = Script::default();
    let mut writer = writer(&script);
    let session = perilog_core::controller::io::SessionId(7);
    let (outlet, outbound) = crate::daemon::Outlet::new();
    writer.turn([Entry::Opened { session, outlet }].into_iter()).unwrap();
    script.fail_with(StoreError::Full);
    let (entry, _answer) = run("f1");
    writer.turn([entry].into_iter()).unwrap();
    assert!(matches!(outbound.end.blocking_recv(), Ok(crate::daemon::End::Close(_))));
    let why = "over".to_owned();
    assert_eq!(Entry::Closed { session, why }.into_input(&mut writer.delivery), None);
}

#[tokio::test(start_paused = true)]
async fn it_ends_on_request_and_does_what_came_before() {
    let script = Script::default();
    let writer = writer(&script);
    let (inlet, entries) = Inlet::new();
    let (entry, mut answer) = run("f1");
    inlet.put(entry).await.unwrap();
    inlet.put(Entry::Stop).await.unwrap();
    writer.run(entries).await.unwrap();
    assert!(reported(&mut answer).is_ok());
    let gone = inlet.ask(0, Request::Status {}, None).await;
    assert!(matches!(gone, Err(Refusal::Unavailable(_))));
}

/// Prints the time of a batch (one request, one commit) without a trace, with it, and without it once more, in turns.
#[test]
#[ignore = "a measurement; docs/performance.md has its command"]
#[allow(clippy::print_stdout, reason = "its result")]
fn price_of_a_trace() {
    use perilog_host::journal;
    const ROUNDS: usize = 2_000;

    let dir = tempfile::tempdir().unwrap();
    let store = crate::store::Store::open(&dir.path().join("controller.db")).unwrap();
    let (outbox, status) = (watch::channel(()).0, watch::channel(String::new()).0);
    let mut writer =
        Writer::new(store, Settings { keep_attempts: 100_000, ..settings() }, 42, outbox, status, None).unwrap();
    journal::init("perilog-controller", "info").unwrap();
    let mut samples = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for (turn, level) in ["info", "trace", "info"].into_iter().enumerate() {
            journal::set_level(level).unwrap();
            let (entry, mut answer) = run(&format!("f{round}-{turn}"));
            let began_us = clock::mono_us();
            writer.turn(std::iter::once(entry)).unwrap();
            samples[turn].push(clock::mono_us() - began_us);
            assert!(answer.try_recv().unwrap().is_ok());
        }
    }
    let [off, on, again] = samples.map(|mut of| {
        of.sort_unstable();
        of[of.len() / 2]
    });
    let ratio = |of: u64| of as f64 / off as f64;
    println!("p50 of a batch: off {off} us, on {on} us ({:.2}), off again {again} us ({:.2})", ratio(on), ratio(again));
}
