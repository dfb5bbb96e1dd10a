//! Recovery: a store that may be behind begins, sends and releases nothing until each attempt is vouched for.

use super::release::{add, bench, contexts, finish};
use super::*;
use crate::controller::io::ReleasePolicy;
use crate::job::Terms;
use crate::mark::{Commit, Mark};

const GATE_MS: u64 = 5_000;

pub(super) fn commit(number: u64, nonce: u64, of: u64) -> Commit {
    Commit { epoch: Epoch { number, nonce }, number: of }
}

/// Builds the Hello of a node that has obeyed commits up to `newest` and holds the tasks `held`. `link` is the agent's
/// number of the session.
fn obeyed(host: &str, link: u64, newest: Commit, held: Vec<Held>) -> FromAgent {
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

pub(super) fn assert(attempts: Vec<Listed>) -> Request {
    page(source(), None, false, attempts)
}

pub(super) fn confirm(job: Option<&str>, word: Confirm) -> Request {
    Request::Recover(Recover::Confirm { job: job.map(|job| JobId::new(job).unwrap()), attempt: None, word })
}

impl Bench {
    pub(super) fn in_recovery(&self) -> bool {
        self.store.recovery.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    pub(super) fn view(&mut self) -> crate::controller::view::RecoveryView {
        let Ok(Reply::Recovery(view)) = self.ask(Request::Recover(Recover::List)).0 else { panic!("a list") };
        *view
    }

    /// Starts a controller on a copy made by `controller backup`, and lets the wait for nodes pass.
    pub(super) fn restored(self, copy: &Snapshot) -> Self {
        let store = Snapshot { stamp: Some(1_700_000_000_000), ..copy.clone() };
        let settings = self.settings.clone();
        let mut bench = Self { sessions: self.sessions, ..Self::load_with(store, settings, self.now) };
        bench.pass(2 * GATE_MS);
        bench
    }

    pub(super) fn drained(&self) -> Vec<(&str, bool)> {
        self.store.drains.iter().map(|drain| (drain.host.as_str(), drain.lifted)).collect()
    }

    /// Ends a task with `ok`.
    pub(super) fn ends(&mut self, session: SessionId, of: TaskId) -> Vec<Effect> {
        self.says(session, finished(of, Outcome::Ok))
    }
}

/// Creates a bench with a finished job on n[0-1]. Its epilog has ended on n0, and waits on n1, which is away.
pub(super) fn owing() -> (Bench, SessionId) {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    (b, n[0])
}

#[test]
fn debts_wait_after_a_start_for_known_nodes_or_a_while() {
    for comes in [false, true] {
        let (b, _) = owing();
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
    let (b, _) = owing();
    let mut b = b.restart_settling();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), []);
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n1, 1)], "the job's own");
    assert_eq!(starts(&b.run("prolog", "other", "n1")), [(n1, 0)]);
}

#[test]
fn a_store_is_judged_when_it_is_loaded() {
    // The only life in the store is epoch 1, nonce 7.
    let (b, _) = owing();
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
        let unvouched = c.store.attempts.iter().filter(|attempt| attempt.unvouched).count();
        assert_eq!(unvouched, usize::from(recovers));
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
            let effects = b.says(session, obeyed(&format!("n{node}"), session.0, commit(1, 7, 10_000), vec![]));
            let is_welcome = |e: &Effect| matches!(e, Effect::Send { message: ToAgent::Welcome { .. }, .. });
            welcomed.push(effects.iter().any(is_welcome));
        }
        assert_eq!((b.in_recovery(), &welcomed[..]), expect, "{known} {foreign:?}");
        assert_eq!(b.view().suspects.len(), usize::from(!expect.0));
    }
}

#[test]
fn what_is_known_of_other_lives_is_no_evidence() {
    let (b, _) = owing();
    let mut b = b.restart_settling();
    let session = b.session();
    b.says(session, obeyed("n0", session.0, commit(1, 7, 2), vec![]));
    let elsewhere = Mark { cluster: ClusterId::from_name("other"), commit: commit(9, 9, 9) };
    let session = b.session();
    b.says(session, FromAgent::Hello(Hello { newest: Some(elsewhere), ..hello("n1", "b", session.0, vec![]) }));
    assert!(!b.in_recovery() && b.view().suspects.is_empty());
}

/// The controller's virtual machine is put back to a snapshot: the process goes on in the same epoch, and would use
/// commit numbers again. A node that knows a later commit shows this, and the controller begins a new epoch.
#[test]
fn a_process_that_was_put_back_goes_on_in_an_epoch_of_its_own() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    let session = b.session();
    let effects = b.says(session, obeyed("n0", session.0, commit(1, 7, 1_000), vec![]));
    assert!(effects.iter().any(|e| matches!(e, Effect::Close { session, .. } if *session == n[1])), "{effects:?}");
    assert_eq!((b.in_recovery(), b.m.epoch.number), (true, 2));
    let session = b.session();
    let effects = b.says(session, obeyed("n0", session.0, commit(1, 7, 1_000), vec![]));
    assert!(matches!(effects[0], Effect::Send { message: ToAgent::Welcome { .. }, .. }), "{effects:?}");
}

#[test]
fn recovery_freezes_debts_and_records_ends() {
    let (mut b, n) = bench(2, |s| s.release_hook = true);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let (n1, effects) = b.up("n1", "b", vec![held("epilog", "j", 1, HeldState::Ended)]);
    assert_eq!(effects, []);
    b.up("n0", "b", vec![]);
    // The last epilog ends: recovery holds the verdict and the release back.
    let acked = b.ends(n1, task("epilog", "j", 1));
    assert!(acked.contains(&ack(n1, task("epilog", "j", 1))));
    b.pass(86_400_000);
    let row = b.action("epilog", "j", 0);
    assert_eq!((row.ok.to_string(), row.verdict), ("0-1".to_owned(), None));
    assert!(contexts(&b, "release").is_empty() && b.in_recovery());
    let view = b.view();
    assert_eq!((view.attempts.len(), view.attempts[0].job.as_str()), (1, "j"));
    // The hook repeats that the job is over.
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!(contexts(&b, "release").len(), 1);
    assert!(!b.in_recovery(), "nothing is left to vouch for");
    assert_eq!(b.store.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook).count(), 1);
}

#[test]
fn an_owed_release_is_told_when_its_attempt_was_vouched_for() {
    let (mut b, n) = bench(1, |s| s.release_hook = true);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let owed = |b: &mut Bench| {
        let request = Request::Releases { first: vec![], except: Default::default(), limit: 9 };
        let Ok(Reply::Outbox(entries)) = b.ask(request).0 else { panic!() };
        entries.len()
    };
    assert_eq!(owed(&mut b), 1);
    for (word, told) in [(Confirm::Over, 1), (Confirm::Gone, 0)] {
        let (mut c, _) = bench(1, |s| s.release_hook = true);
        c.settings = b.settings.clone();
        let mut c = c.restored(&copy);
        assert_eq!(owed(&mut c), 0, "frozen");
        c.ask(confirm(Some("j"), word)).0.unwrap();
        assert_eq!((owed(&mut c), c.in_recovery()), (told, false), "{word:?}");
    }
}

/// Regression test: a restored store had the notices of two releases, and the lost life had sent one of them. The
/// controller must send only the release of the rank that is still listed.
#[test]
fn an_owed_release_is_told_of_listed_ranks_alone() {
    let (mut b, n) = bench(2, |settings| {
        settings.release_hook = true;
        settings.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
    });
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    (0..2).for_each(|rank| drop(b.ends(n[rank as usize], task("epilog", "j", rank))));
    let owed = |b: &Bench, reader: Reader| {
        let of_reader = b.store.outbox.iter().filter(|entry| entry.reader == reader).map(|entry| entry.body.value());
        let releases = of_reader.filter(|body| body["event"] == "release");
        releases.map(|body| body["hosts"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!([Reader::Manager, Reader::ReleaseHook].map(|reader| owed(&b, reader)), [["n0", "n1"], ["n0", "n1"]]);
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.ask(add("j", "n1", Terms::default())).0.unwrap();
    assert_eq!([Reader::Manager, Reader::ReleaseHook].map(|reader| owed(&b, reader)), [["n1"], ["n1"]]);
    assert_eq!(contexts(&b, "release-forgotten").len(), 1);
    let finals = b.store.outbox.iter().map(|entry| entry.body.value()).filter(|body| body["final"] == true);
    assert_eq!(finals.count(), 2, "n1 is the last that the resource manager waits for");
}

/// A hook or an operator adds a job again after a restore, with fewer hosts. No edge will list this job. So the
/// controller takes the hosts that the request leaves out as released by the lost life.
#[test]
fn who_adds_a_job_with_fewer_hosts_answers_for_the_others() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let n2 = b.up("n2", "b", vec![]).0;
    b.ask(add("j", "n2", Terms::default())).0.unwrap();
    assert!(!b.in_recovery(), "nothing is left to vouch for");
    let row = &b.store.attempts[0];
    assert_eq!((row.hold.ranks.to_string(), row.released.ranks.to_string()), ("2".to_owned(), "0-1".to_owned()));
    assert!(b.store.outbox.is_empty(), "{:?}", b.store.outbox);
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n2, 2)]);
}

/// Regression test: a user added a job again after a restore, with fewer hosts. The tasks on the other hosts were shown
/// as resolved by uid 0.
#[test]
fn ranks_that_a_request_leaves_out_are_resolved_by_its_user() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.run("prolog", "j", "n[0-1]");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.batch(vec![Input::Request { client: 99, uid: 1001, request: add("j", "n1", Terms::default()) }]);
    let Outcome::Resolved { by, .. } = b.outcome(task("epilog", "j", 0)) else { panic!("{:?}", b.store.ranks) };
    assert_eq!(by, 1001);
}

#[test]
fn a_stale_setup_action_begins_only_when_it_is_asked_for_again() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    b.run("prolog", "j", "n[0-1]");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), []);
    let (reply, effects) = b.ask(add("j", "n[0-1]", Terms::default()));
    assert!(matches!(reply, Ok(Reply::Added { attached: true, .. })) && starts(&effects).is_empty(), "{reply:?}");
    assert_eq!(starts(&b.run("prolog", "j", "n[0-1]")), [(n1, 1)]);
}

#[test]
fn an_absent_task_is_lost_once_its_attempt_is_vouched_for() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    for (rank, session) in (0..).zip(&n) {
        b.says(*session, FromAgent::Accepted { task: task("prolog", "j", rank), limit_ms: None });
    }
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![]);
    b.up("n1", "b2", vec![]);
    assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0-1", "nobody is lost in recovery");
    b.run("prolog", "j", "n[0-1]");
    let lost = |why| Outcome::Lost { why };
    assert_eq!(b.outcome(task("prolog", "j", 0)), lost(crate::outcome::Loss::Vanished));
    assert_eq!(b.outcome(task("prolog", "j", 1)), lost(crate::outcome::Loss::Rebooted));
}

#[test]
fn an_attempt_that_an_edge_does_not_list_is_over_in_silence() {
    over_in_silence(|b| Request::OutboxApplied { through: b.store.outbox_last });
    // Flux's edge reads no notices; it follows the attempts.
    over_in_silence(|_| Request::Attempts(AttemptsOf { source: source(), jobs: None, after: None, limit: 9 }));
}

/// Checks that an attempt which its edge does not list is cleaned up, and that no notice about it is sent. `heard`
/// returns the request after which the edge counts as knowing the releases: it confirms the notices, or asks for its
/// attempts.
fn over_in_silence(heard: fn(&Bench) -> Request) {
    let (mut b, n) = bench(3, |s| s.release_hook = true);
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running), listed("b", "n[1-2]", JobPhase::Running)])).0.unwrap();
    assert_eq!(b.store.attempts.len(), 2);
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let mut sessions = Vec::new();
    for node in 0..n.len() {
        sessions.push(b.up(&format!("n{node}"), "b", vec![]).0);
    }
    // The list lacks `a`, has rank 0 of `b`, and a new attempt `c`.
    let mut part = listed("b", "n[1-2]", JobPhase::Running);
    (part.ranks, part.hosts) = ([0].into_iter().collect(), "n1".parse().unwrap());
    let (reply, effects) = b.ask(assert(vec![part, listed("c", "n0", JobPhase::Preparing)]));
    let Ok(Reply::Synced(told)) = reply else { panic!("{reply:?}") };
    assert_eq!((told.vouched, told.added, told.over.len(), told.refused.len()), (1, 1, 1, 0));
    assert!(!b.in_recovery());
    // n2 is free: it is drained, cleaned up, and undrained. n0 is held by `c`, so the epilog of `a` waits.
    assert_eq!(starts(&effects), [(sessions[2], 1)]);
    assert_eq!(b.drained(), [("n0", false), ("n2", false)]);
    b.ends(sessions[2], task("epilog", "b", 1));
    assert_eq!(b.drained(), [("n0", false)]);
    b.ask(finish("c", None)).0.unwrap();
    // `c` counts as the holder of n0 until its edge has read the release.
    assert_eq!(starts(&b.ends(sessions[0], task("epilog", "c", 0))), []);
    let untold = |b: &Bench| b.store.outbox.iter().all(|entry| entry.job.as_str() == "c");
    assert!(untold(&b), "{:?}", b.store.outbox);
    let (_, effects) = b.ask(heard(&b));
    assert_eq!(starts(&effects), [(sessions[0], 0)]);
    b.ends(sessions[0], task("epilog", "a", 0));
    assert_eq!(b.drained(), []);
    // No notice was sent about `a` or about the disowned rank of `b`.
    assert!(untold(&b), "{:?}", b.store.outbox);
}

#[test]
fn a_resource_manager_that_forgot_a_release_is_told_again() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    b.ends(n[0], task("epilog", "a", 0));
    let told = |b: &Bench| b.store.outbox.iter().filter(|entry| entry.body.value()["event"] == "release").count();
    assert_eq!(told(&b), 1);
    // The edge has not read the release yet.
    b.ask(assert(vec![listed("a", "n0", JobPhase::Ended)])).0.unwrap();
    assert_eq!(told(&b), 1);
    b.ask(Request::OutboxApplied { through: b.store.outbox_last }).0.unwrap();
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let entry = b.store.outbox.last().unwrap().body.value();
    assert_eq!((told(&b), &entry["ranks"], &entry["final"]), (1, &"0".into(), &true.into()));
}

#[test]
fn a_list_of_another_instance_says_nothing() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let other = Source { instance: "i2".into(), ..source() };
    b.ask(page(other, None, false, vec![])).0.unwrap();
    assert!(b.store.attempts[0].open);
    b.ask(add("by-hand", "n0", Terms::default())).0.unwrap();
    b.ask(assert(vec![])).0.unwrap();
    let open: Vec<_> = b.store.attempts.iter().filter(|a| a.open).map(|a| a.job.as_str()).collect();
    assert_eq!(open, ["by-hand"]);
}

#[test]
fn what_contradicts_is_refused_and_changes_nothing() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let other_user = Listed { userid: Some(7), ..listed("a", "n0", JobPhase::Running) };
    for wrong in [listed("a", "n1", JobPhase::Running), other_user] {
        let before = b.store.attempts.clone();
        let Ok(Reply::Synced(told)) = b.ask(assert(vec![wrong])).0 else { panic!() };
        assert_eq!((told.refused.len(), told.over.len()), (1, 0));
        assert_eq!(b.store.attempts, before);
    }
}

/// Regression test: a thief of a node's key reported false tasks, and an operator had to drop them job by job.
#[test]
fn one_command_forgets_all_that_a_host_told() {
    let forget = |host| Request::Recover(Recover::Forget { host: HostName::new(host).unwrap() });
    let mut b = Bench::new();
    b.up("n1", "b", vec![held("prolog", "one", 0, live())]);
    let thief = b.session();
    let told = (0..400).map(|n| held("prolog", &format!("x{n}"), 0, live())).collect();
    b.says(thief, FromAgent::Hello(hello("n0", "b", 1 << 39, told)));
    b.says(thief, FromAgent::EpochRefused { seen: Epoch { number: 99, nonce: 0 } });
    b.pass(GATE_MS);
    assert_eq!((b.drained().len(), b.view().orphans.len(), b.view().obeyed), (2, 401, Some(99)));
    assert_eq!(starts(&b.run("prolog", "j", "n0")), []);
    let (reply, effects) = b.ask(forget("n0"));
    assert_eq!(reply, Ok(Reply::Reached { tasks: 400 }));
    assert!(matches!(&effects[..], [Effect::Close { session, .. }] if *session == thief), "{effects:?}");
    assert_eq!((b.view().orphans.len(), b.view().obeyed), (1, None));
    assert_eq!(b.drained(), [("n1", false)]);
    // The true agent is welcome and reports anew; its jobs begin.
    let own = b.session();
    let effects = b.says(own, FromAgent::Hello(hello("n0", "b", 5, vec![])));
    assert_eq!(starts(&effects), [(own, 0)], "{effects:?}");
    assert!(matches!(b.ask(forget("n9")).0, Err(Refusal::NoSuchNode(_))));
}

#[test]
fn why_names_the_recovery_as_the_next_step() {
    let (b, _) = owing();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n1", "b", vec![]);
    let Ok(Reply::Why(view)) = b.ask(Request::Why { host: HostName::new("n1").unwrap() }).0 else { panic!() };
    assert_eq!(view.open[0].next, ["perilog controller recover", "perilog show j"]);
}

#[test]
fn a_nodes_word_makes_no_attempt_and_touches_no_other_host() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    let (attempts, actions) = (b.store.attempts.clone(), b.store.actions.clone());
    // The node reports a newer attempt of the job, its epilog on all ranks, and an unknown job.
    let newer = TaskId { action: id("epilog", "j", 9), rank: Rank(0) };
    let newer = Held { task: newer, attempt: Attempt::from_number(9), ..held("epilog", "j", 0, live()) };
    let told = vec![newer, held("epilog", "j", 1, live()), held("prolog", "other", 0, live())];
    let (n9, _) = b.up("n9", "b", told);
    b.says(n9, finished(task("prolog", "j", 0), exit(1)));
    b.pass(2 * GATE_MS);
    assert_eq!((&b.store.attempts, &b.store.actions), (&attempts, &actions));
    assert_eq!(b.drained(), [("n9", false)]);
    assert!(contexts(&b, "release").is_empty());
    // The job goes on where it was.
    b.ends(n[0], task("prolog", "j", 0));
    b.ends(n[1], task("prolog", "j", 1));
    assert_eq!(b.action("prolog", "j", 0).ok.to_string(), "0-1");
}

#[test]
fn a_take_over_is_a_recovery() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.says(n[0], FromAgent::EpochRefused { seen: Epoch { number: 40, nonce: 1 } });
    assert_eq!(b.view().obeyed, Some(40));
    b.ask(Request::Recover(Recover::TakeOver)).0.unwrap();
    assert!(b.in_recovery() && b.view().obeyed.is_none());
    // Nodes come with commits of the lost life: these are known to be lost.
    let session = b.session();
    b.says(session, obeyed("n0", session.0, commit(40, 1, 5), vec![]));
    b.ask(confirm(None, Confirm::Running)).0.unwrap();
    assert!(!b.in_recovery());
    let reply = b.ask(confirm(None, Confirm::Running)).0;
    assert!(matches!(reply, Err(Refusal::Conflict(_))), "{reply:?}");
}

#[test]
fn a_recovery_outlives_a_restart() {
    let (b, _) = owing();
    let copy = b.store.clone();
    let mut b = b.restored(&copy).restart();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert!(b.in_recovery() && starts(&effects).is_empty());
    assert_eq!(starts(&b.ask(confirm(Some("j"), Confirm::Over)).1), [(n1, 1)]);
}

#[test]
fn drains_of_a_copy_are_told_again_when_the_recovery_is_over() {
    let (mut b, n) = bench(1, |s| s.drain_hook = true);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    b.says(n[0], finished(task("prolog", "j", 0), exit(3)));
    let telling = b.store.drains[0].telling;
    b.ask(Request::DrainDone { host: HostName::new("n0").unwrap(), telling, lifted: false }).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let drain = b.store.drains[0].clone();
    assert_eq!((drain.confirmed, drain.unvouched, drain.telling), (false, true, telling));
    b.ask(confirm(None, Confirm::Over)).0.unwrap();
    let drain = b.store.drains[0].clone();
    assert!(!drain.confirmed && !drain.unvouched && drain.telling > telling, "{drain:?}");
}
