//! Evidence and the gate: when a store counts as behind, and what waits after a start.

use crate::job::Terms;
use crate::mark::{Commit, Mark};

use super::generation::with_pending_work;
use super::release::{add, bench, finish};
use super::*;

pub(super) const GATE_MS: u64 = 5_000;
pub(super) const GRACE_MS: u64 = 60_000;

pub(super) fn commit(number: u64, nonce: u64, of: u64) -> Commit {
    Commit { epoch: Epoch { number, nonce }, number: of }
}

/// Builds the Hello of a node that has accepted commits up to `newest` and holds the tasks `held`. `link` is the
/// agent's number of the session.
pub(super) fn accepted_epoch(host: &str, link: u64, newest: Commit, held: Vec<Held>) -> FromAgent {
    let newest = Some(Mark { cluster: settings().cluster, commit: newest });
    FromAgent::Hello(Hello { newest, ..hello(host, "b", link, held) })
}

pub(super) fn source() -> Source {
    Source { name: "flux".into(), instance: "i1".into() }
}

pub(super) fn listed(job: &str, hosts: &str, phase: JobPhase) -> Listed {
    let hosts: crate::HostList = hosts.parse().unwrap();
    Listed {
        job: JobId::new(job).unwrap(),
        attempt: Attempt::FIRST,
        userid: Some(1000),
        ranks: (0..u32::try_from(hosts.len()).unwrap()).collect(),
        hosts,
        terms: Terms::default(),
        phase,
    }
}

/// Builds a page of an edge's list; `sync` `None`: the first one.
pub(super) fn page(source: Source, sync: Option<u64>, continues: bool, attempts: Vec<Listed>) -> Request {
    let (unfit, drains) = (Vec::new(), Vec::new());
    Request::Sync(Box::new(SyncPage { source, sync, continues, attempts, unfit, drains }))
}

pub(super) fn list(attempts: Vec<Listed>) -> Request {
    page(source(), None, false, attempts)
}

impl Bench {
    pub(super) fn in_recovery(&self) -> bool {
        self.store.recovery.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    pub(super) fn view(&mut self) -> crate::controller::view::RecoveryView {
        let Ok(Reply::Recovery(view)) = self.ask(Request::Recover { take_over: false }).0 else { panic!("a list") };
        *view
    }

    fn unknown_tasks(&mut self) -> u64 {
        self.view().unknown.iter().map(|row| row.ranks.len()).sum()
    }

    /// Starts a controller on a copy made by `controller backup`, and lets the wait for nodes pass. The grace runs on.
    pub(super) fn restored(self, copy: &Snapshot) -> Self {
        let store = Snapshot { stamp: Some(1_700_000_000_000), ..copy.clone() };
        let settings = self.settings.clone();
        let mut bench = Self { sessions: self.sessions, ..Self::load_with(store, settings, self.holding, self.now) };
        bench.pass(2 * GATE_MS);
        bench
    }

    /// Lets the grace of a generation pass.
    pub(super) fn grace(&mut self) -> Vec<Effect> {
        let effects = self.pass(GRACE_MS);
        assert!(!self.in_recovery());
        effects
    }

    pub(super) fn drained(&self) -> Vec<(&str, bool)> {
        self.store.drains.iter().map(|drain| (drain.host.as_str(), drain.lifted)).collect()
    }

    /// Ends a task with `ok`.
    pub(super) fn ends(&mut self, session: SessionId, of: TaskId) -> Vec<Effect> {
        self.receives(session, finished(of, Outcome::Ok))
    }
}

#[test]
fn debts_wait_after_a_start_for_known_nodes_or_a_while() {
    for comes in [false, true] {
        let (b, _) = with_pending_work();
        let mut b = b.restart_settling();
        let (n1, effects) = b.up("n1", "b", vec![]);
        assert_eq!(starts(&effects), [], "n0 has not said Hello");
        let effects = if comes { b.up("n0", "b", vec![]).1 } else { b.pass(GATE_MS) };
        assert_eq!(starts(&effects), [(n1, 1)], "{comes}");
        assert!(!b.in_recovery());
    }
}

#[test]
fn a_request_passes_the_gate() {
    let (b, _) = with_pending_work();
    let mut b = b.restart_settling();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), []);
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n1, 1)], "the job's own");
    assert_eq!(starts(&b.run("prolog", "other", "n1")), [(n1, 0)]);
}

#[test]
fn a_store_is_judged_when_it_is_loaded() {
    // The only epoch in the store is epoch 1, nonce 7.
    let (b, _) = with_pending_work();
    let last = b.store.history.last;
    for (stamp, anchor, recovers, epoch) in [
        (None, None, false, 2),
        (None, Some(commit(1, 7, last)), false, 2),
        (None, Some(commit(1, 7, 1)), false, 2),
        (None, Some(commit(1, 7, last + 1)), true, 2),
        (None, Some(commit(1, 8, 1)), true, 2),
        (None, Some(commit(4, 9, 1)), true, 5),
        (Some(1), None, true, 2),
        (Some(1), Some(commit(1, 7, last)), true, 2),
    ] {
        let store = Snapshot { stamp, anchor, ..b.store.clone() };
        let c = Bench::load(store, b.now);
        assert_eq!((c.in_recovery(), c.m.epoch.number), (recovers, epoch), "{stamp:?} {anchor:?}");
        assert_eq!(c.store.stamp, None, "it is entered once");
        let abandoned = c.store.attempts.iter().filter(|attempt| attempt.abandoned).count();
        assert_eq!(abandoned, usize::from(recovers));
    }
}

#[test]
fn two_nodes_foreign_commits_are_evidence_and_one_is_refused() {
    // Each row: nodes in the store, nodes with a foreign commit, and whether recovery begins and each node is welcomed.
    for (known, foreign, expect) in
        [(4, &[0][..], (false, &[false][..])), (4, &[0, 1], (true, &[false, true])), (2, &[0], (true, &[true]))]
    {
        let (mut b, _) = bench(known, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        let mut b = b.restart_settling();
        let mut welcomed = Vec::new();
        for node in foreign {
            let session = b.session();
            let effects =
                b.receives(session, accepted_epoch(&format!("n{node}"), session.0, commit(1, 7, 10_000), vec![]));
            let is_welcome = |e: &Effect| matches!(e, Effect::Send { message: ToAgent::Welcome { .. }, .. });
            welcomed.push(effects.iter().any(is_welcome));
        }
        assert_eq!((b.in_recovery(), &welcomed[..]), expect, "{known} {foreign:?}");
        assert_eq!(b.view().suspects.len(), usize::from(!expect.0));
    }
}

#[test]
fn what_is_known_of_other_epochs_is_no_evidence() {
    let (b, _) = with_pending_work();
    let mut b = b.restart_settling();
    let session = b.session();
    b.receives(session, accepted_epoch("n0", session.0, commit(1, 7, 2), vec![]));
    let elsewhere = Mark { cluster: ClusterId::from_name("other"), commit: commit(9, 9, 9) };
    let session = b.session();
    b.receives(session, FromAgent::Hello(Hello { newest: Some(elsewhere), ..hello("n1", "b", session.0, vec![]) }));
    assert!(!b.in_recovery() && b.view().suspects.is_empty());
}

/// The controller's virtual machine is restored to a snapshot: the process goes on in the same epoch, and would use
/// commit numbers again. A node that knows a later commit shows this, and the controller begins a new epoch.
#[test]
fn a_restored_process_continues_in_an_epoch_of_its_own() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    let session = b.session();
    let effects = b.receives(session, accepted_epoch("n0", session.0, commit(1, 7, 1_000), vec![]));
    assert!(effects.iter().any(|e| matches!(e, Effect::Close { session, .. } if *session == n[1])), "{effects:?}");
    assert_eq!((b.in_recovery(), b.m.epoch.number), (true, 2));
    let session = b.session();
    let effects = b.receives(session, accepted_epoch("n0", session.0, commit(1, 7, 1_000), vec![]));
    assert!(matches!(effects[0], Effect::Send { message: ToAgent::Welcome { .. }, .. }), "{effects:?}");
}

/// A mark of an epoch with our number or a higher one shows another controller, or an epoch of which this store knows
/// nothing. The node would refuse our epoch: only a take-over helps.
#[test]
fn a_rival_is_not_welcomed_before_a_take_over() {
    let (mut b, _) = bench(4, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    let mut b = b.restart();
    let welcomed = |b: &mut Bench, host: &str, of: Commit| {
        let session = b.session();
        let effects = b.receives(session, accepted_epoch(host, session.0, of, vec![]));
        effects.iter().any(|effect| matches!(effect, Effect::Send { message: ToAgent::Welcome { .. }, .. }))
    };
    let rivals = [commit(2, 99, 3), commit(9, 9, 9)];
    for (host, rival) in ["n0", "n1"].into_iter().zip(rivals) {
        assert!(!welcomed(&mut b, host, rival) && !b.in_recovery(), "{rival:?}");
    }
    assert_eq!(b.view().suspects.to_string(), "n[0-1]");
    let Ok(Reply::Status(status)) = b.ask(Request::Status {}).0 else { panic!("no status") };
    let condition = "n0, n1; if no other controller runs, take over with perilog controller recover --take-over";
    assert!(status.notes.iter().any(|note| note.ends_with(condition)), "{:?}", status.notes);
    b.ask(Request::Recover { take_over: true }).0.unwrap();
    assert_eq!((b.in_recovery(), b.m.epoch.number), (true, 10));
    assert!(welcomed(&mut b, "n0", rivals[0]) && welcomed(&mut b, "n1", rivals[1]));
}

#[test]
fn a_take_over_is_a_generation() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.receives(n[0], FromAgent::EpochRefused { seen: Epoch { number: 40, nonce: 1 } });
    assert_eq!(b.view().accepted_epoch, Some(40));
    b.ask(Request::Recover { take_over: true }).0.unwrap();
    assert!(b.in_recovery() && b.view().accepted_epoch.is_none());
    // Nodes come with commits of the lost epoch: these are known to be lost, and found no other generation.
    for epoch in [40, 1] {
        let session = b.session();
        b.receives(session, accepted_epoch("n0", session.0, commit(epoch, 1, 5), vec![]));
    }
    b.grace();
    assert_eq!(b.m.epoch.number, 41);
}

/// Regression test: a thief of a node's key reported false tasks, and an operator had to drop them job by job.
#[test]
fn one_command_forgets_all_that_a_host_reported() {
    let forget = |host: &str| Request::NodeForget { hosts: host.parse().unwrap(), reports: true };
    let mut b = Bench::new();
    b.up("n1", "b", vec![held("prolog", "one", 0, live())]);
    let attacker = b.session();
    let reported = (0..400).map(|n| held("prolog", &format!("x{n}"), 0, live())).collect();
    b.receives(attacker, FromAgent::Hello(hello("n0", "b", 1 << 39, reported)));
    b.receives(attacker, FromAgent::EpochRefused { seen: Epoch { number: 99, nonce: 0 } });
    assert_eq!((b.drained().len(), b.unknown_tasks(), b.view().accepted_epoch), (2, 401, Some(99)));
    assert_eq!(starts(&b.run("prolog", "j", "n0")), []);
    let (reply, effects) = b.ask(forget("n0"));
    assert_eq!(reply, Ok(Reply::Reached { tasks: 400 }));
    assert!(matches!(&effects[..], [Effect::Close { session, .. }] if *session == attacker), "{effects:?}");
    assert_eq!((b.unknown_tasks(), b.view().accepted_epoch), (1, None));
    assert_eq!(b.drained(), [("n1", false)]);
    // The true agent is welcome and reports anew; its jobs begin.
    let own = b.session();
    let effects = b.receives(own, FromAgent::Hello(hello("n0", "b", 5, vec![])));
    assert_eq!(starts(&effects), [(own, 0)], "{effects:?}");
    assert!(matches!(b.ask(forget("n9")).0, Err(Refusal::NoSuchNode(_))));
}
