//! Durability: a new controller needs only the committed records.

use proptest::prelude::*;

use super::*;

/// Returns a copy of the store with its rows in a fixed order, so that two stores can be compared.
fn durable(store: &Snapshot) -> Snapshot {
    let mut s = store.clone();
    s.nodes.sort_by(|a, b| a.host.cmp(&b.host));
    s.actions.sort_by_key(|a| a.id);
    s.ranks.sort_by_key(|r| r.task);
    s.attempts.sort_by(|a, b| (&a.job, a.attempt).cmp(&(&b.job, b.attempt)));
    s
}

#[test]
fn each_start_is_a_new_epoch() {
    let b = Bench::new();
    assert_eq!(b.store.history.newest().unwrap().epoch.number, 1);
    assert_eq!(b.restart().store.history.newest().unwrap().epoch.number, 2);
}

#[test]
fn a_restart_loses_nothing_and_starts_nothing_twice() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.up("n1", "b", vec![]);
    b.run("prolog", "j", "n[0-1]");
    b.receives(n0, FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    let mut b = b.restart();
    let (n0, effects) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    assert_eq!(effects, []);
    b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    let mut b = b.restart();
    assert_eq!(b.action("prolog", "j", 0).ok.to_string(), "0");
    let (_, effects) = b.up("n1", "b", vec![held("prolog", "j", 1, HeldState::Ended)]);
    assert_eq!(starts(&effects), []);
    assert_eq!(b.reported("j"), ["attempt", "action-start", "finish"]);
}

#[test]
fn event_numbers_go_on_after_a_restart() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    let mut b = b.restart();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    assert_eq!(b.events.iter().map(|(_, sequence, _)| *sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// A random step of a history on three nodes and two jobs, for example that a node connects or that a task ends.
#[derive(Debug, Clone)]
enum Step {
    Up(u8, u8, u8),
    Down(u8),
    Run(u8, u8, u8),
    Accept(u8, u8, u8),
    Finish(u8, u8, u8, u8),
    Cancel(u8),
    Resolve(u8, u8),
    Pass(u32),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..2u8, 0..5u8).prop_map(|(n, boot, held)| Step::Up(n, boot, held)),
        1 => (0..3u8).prop_map(Step::Down),
        2 => (0..2u8, 0..2u8, 0..2u8).prop_map(|(j, a, t)| Step::Run(j, a, t)),
        3 => (0..3u8, 0..2u8, 0..2u8).prop_map(|(n, j, a)| Step::Accept(n, j, a)),
        3 => (0..3u8, 0..2u8, 0..2u8, 0..3u8).prop_map(|(n, j, a, o)| Step::Finish(n, j, a, o)),
        1 => (0..2u8).prop_map(Step::Cancel),
        1 => (0..2u8, 0..3u8).prop_map(|(j, n)| Step::Resolve(j, n)),
        1 => (0..4_000_000u32).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

const ACTIONS: [&str; 2] = ["prolog", "epilog"];
const JOBS: [&str; 2] = ["j0", "j1"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In every history, the rank states of an action partition its ranks. A stored outcome never changes, except a
    /// prolog's `ok` before its verdict. Each verdict causes one event and one notice. The machine can be loaded from
    /// its store at any moment.
    #[test]
    fn outcomes_are_final_and_reported_once(steps in proptest::collection::vec(step(), 1..60)) {
        let mut b = Bench::new();
        let mut sessions: BTreeMap<u8, SessionId> = BTreeMap::new();
        let mut outcomes: BTreeMap<TaskId, Outcome> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Up(n, boot, what) => {
                    let state = match what {
                        0 => Some(live()),
                        1 => Some(HeldState::Unclaimed),
                        2 => Some(HeldState::Ended),
                        _ => None,
                    };
                    let held = state.map(|s| held("prolog", "j0", u32::from(n), s)).into_iter().collect();
                    let session = b.session();
                    let hello = hello(&format!("n{n}"), &format!("b{boot}"), session.0, held);
                    b.receives(session, FromAgent::Hello(hello));
                    sessions.insert(n, session);
                }
                Step::Down(n) => if let Some(session) = sessions.remove(&n) {
                    b.batch(vec![Input::Closed { session, why: String::new() }]);
                },
                Step::Run(j, a, attempt) => {
                    let run = request(ACTIONS[a as usize], JOBS[j as usize], Some("n[0-2]"), Some(u64::from(attempt)));
                    b.batch(vec![Input::Request { client: 1, uid: 0, request: Request::Run(run) }]);
                }
                Step::Accept(n, j, a) => if let Some(session) = sessions.get(&n) {
                    b.receives(*session, FromAgent::Accepted {
                        task: task(ACTIONS[a as usize], JOBS[j as usize], u32::from(n)),
                        limit_ms: None,
                    });
                },
                Step::Finish(n, j, a, o) => if let Some(session) = sessions.get(&n) {
                    let outcome = if o == 0 { Outcome::Ok } else { exit(o) };
                    b.receives(*session, finished(task(ACTIONS[a as usize], JOBS[j as usize], u32::from(n)), outcome));
                },
                Step::Cancel(j) => {
                    let _ = b.ask(Request::Cancel { which: which(JOBS[j as usize], None), why: String::new() });
                }
                Step::Resolve(j, n) => {
                    let which = which(JOBS[j as usize], Some(&n.to_string()));
                    let _ = b.ask(Request::Resolve { which, ok: false, reason: "r".into() });
                }
                Step::Pass(ms) => { b.pass(u64::from(ms)); }
                Step::Restart => { b = b.restart(); sessions.clear(); }
            }
            for row in &b.store.actions {
                let sets = [&row.waiting, &row.sent, &row.accepted, &row.ok, &row.not_ok];
                prop_assert_eq!(sets.iter().map(|s| s.len()).sum::<u64>(), row.ranks.len());
                prop_assert!(sets.iter().all(|s| s.is_subset(&row.ranks)));
                let ended = row.ok.len() + row.not_ok.len() == row.ranks.len();
                prop_assert_eq!(row.verdict.is_some(), ended && !row.growing);
                for rank in row.ok.iter() {
                    let task = TaskId { action: row.id, rank: Rank(rank) };
                    if row.verdict.is_some() || row.name.as_str() != "prolog" {
                        prop_assert_eq!(outcomes.entry(task).or_insert(Outcome::Ok), &Outcome::Ok);
                    }
                }
            }
            // An `ok` with further details has a row too.
            let invalidated = |task: TaskId| b.store.actions.iter().any(|a| {
                a.id == task.action && a.name.as_str() == "prolog" && a.verdict.is_none() && a.ok.contains(task.rank.0)
            });
            for row in b.store.ranks.iter().filter(|row| !invalidated(row.task)) {
                let was = outcomes.entry(row.task).or_insert_with(|| row.ended.outcome.clone());
                prop_assert_eq!(was, &row.ended.outcome);
            }
            let verdicts = b.events.iter().filter(|(_, _, e)| e.name() == "verdict").count();
            prop_assert_eq!(verdicts, b.store.actions.iter().filter(|a| a.verdict.is_some()).count());
            let reported = b.events.iter()
                .filter(|(_, _, e)| ["verdict", "release", "exception", "shrink"].contains(&e.name())).count();
            prop_assert_eq!(reported, b.store.outbox.len());
            let again = Bench::load(b.store.clone(), b.now);
            prop_assert_eq!(durable(&b.store).actions, durable(&again.store).actions);
        }
    }
}

/// Regression test: a restored store reused sequence numbers. An edge that remembered its position skipped the new
/// notices and confirmed them as applied.
#[test]
fn a_restored_store_uses_no_sequence_again() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let copy = b.store.clone();
    let verdicts = |b: &mut Bench, job: &str, session| {
        b.run("check", job, "n0");
        b.receives(session, finished(task("check", job, 0), Outcome::Ok));
        b.store.outbox_last
    };
    let used = verdicts(&mut b, "j", n0);
    let mut back = Bench::load(copy, b.now);
    let (n0, _) = back.up("n0", "b", vec![]);
    assert!(verdicts(&mut back, "k", n0) > used);
    // An agent has accepted a later epoch; a take-over continues past every number of that epoch.
    let seen = Epoch { number: 7, nonce: 1 };
    back.receives(n0, FromAgent::EpochRefused { seen });
    let base = back.now.wall_ms * 1_000;
    back.ask(Request::Recover { take_over: true }).0.unwrap();
    let (n0, _) = back.up("n0", "c", vec![]);
    let last = verdicts(&mut back, "l", n0);
    assert!(back.store.history.newest().unwrap().epoch.number == 8 && last > base, "{base} {last}");
    // A false epoch from a peer does not exhaust the numbers.
    back.receives(n0, FromAgent::EpochRefused { seen: Epoch { number: u64::MAX, nonce: 1 } });
    for _ in 0..2 {
        back.pass(1_000);
        back.ask(Request::Recover { take_over: true }).0.unwrap();
        let (n0, _) = back.up("n0", "c", vec![]);
        let job = format!("m{}", back.now.wall_ms);
        let next = verdicts(&mut back, &job, n0);
        assert!(last < next && next < 1 << 53, "{next}");
    }
    assert!(back.store.history.newest().unwrap().epoch.number < 1 << 41);
}
