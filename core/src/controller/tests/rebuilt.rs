//! A store that was lost while a job let go of its ranks one by one: its epilog had grown, and each node tells of what it had when it began there.

use super::release::{add, bench, contexts, finish};
use super::*;
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::outcome::Verdict;

/// A task of an epilog that was over these ranks when it was begun; rank 0 is on n0.
fn told(rank: u32, ranks: &str, state: HeldState) -> Held {
    let (ranks, name): (IdSet, _) = (ranks.parse().unwrap(), |rank| format!("n{rank}"));
    let hosts = crate::HostList::from_names(ranks.iter().map(name)).unwrap();
    Held { ranks, hosts, ..held("epilog", "j", rank, "n0", state) }
}

fn t(rank: u32) -> TaskId {
    task("epilog", "j", rank)
}

pub(super) fn sets(b: &Bench) -> (String, String, String, Option<Verdict>) {
    let row = b.action("epilog", "j", 0);
    (row.ranks.to_string(), row.accepted.to_string(), row.unknown.to_string(), row.verdict)
}

/// Found by a review: the ends of ranks that came later were acknowledged and thrown away.
#[test]
fn an_action_that_had_grown_is_rebuilt_with_all_its_ranks() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![told(0, "0-1", live())]);
    b.says(n0, finished(t(0), Outcome::Ok));
    let (n1, _) = b.up("n1", "b", vec![told(1, "0-1", live())]);
    b.says(n1, finished(t(1), Outcome::Ok));
    // Others may have been let go of later: nobody knows yet, and so it is not over.
    assert_eq!(sets(&b), ("0-1".into(), "".into(), "".into(), None));
    let (n3, _) = b.up("n3", "b", vec![told(3, "0-3", live())]);
    assert_eq!(sets(&b), ("0-3".into(), "3".into(), "2".into(), None));
    let mut b = b.restart();
    let (n3, effects) = {
        b.batch(vec![Input::Closed { session: n3, why: String::new() }]);
        b.up("n3", "b", vec![told(3, "0-3", live())])
    };
    assert_eq!(starts(&effects), []);
    b.says(n3, finished(t(3), exit(3)));
    assert_eq!(b.outcome(t(3)), exit(3));
    let (n2, _) = b.up("n2", "b", vec![told(2, "0-3", HeldState::Ended)]);
    b.says(n2, finished(t(2), Outcome::Ok));
    assert_eq!(sets(&b).3, None);
    // Its resource manager says that it is over: the verdict is that of all.
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((sets(&b).0, sets(&b).3), ("0-3".into(), Some(Verdict::Failed)));
    assert!(b.store.attempts[0].complete, "{:?}", b.store.attempts[0]);
}

#[test]
fn what_is_rebuilt_has_the_limit_that_such_actions_have_here_and_the_one_that_its_node_tells() {
    let (mut b, n) = bench(2, |s| s.timeouts = [(crate::ActionName::new("epilog").unwrap(), 900_000)].into());
    b.batch(n.iter().map(|n| Input::Closed { session: *n, why: String::new() }).collect());
    b.up("n0", "b", vec![Held { limit_ms: Some(600_000), ..told(0, "0-1", live()) }]);
    let row = b.action("epilog", "j", 0);
    assert_eq!((row.timeout_ms, row.limits.clone()), (Some(900_000), BTreeMap::from([(600_000, IdSet::from(0..=0))])));
}

#[test]
fn a_job_that_nodes_told_of_is_added_again_with_all_that_it_has() {
    let terms = || Terms { resources: [ResourceName::new("rabbit1").unwrap()].into(), ..Terms::default() };
    let told_of = || {
        let (mut b, n) = bench(5, |_| {});
        b.batch(n.iter().map(|n| Input::Closed { session: *n, why: String::new() }).collect());
        let (n0, _) = b.up("n0", "b", vec![told(0, "0-1", live())]);
        b.says(n0, finished(t(0), Outcome::Ok));
        b
    };
    // What contradicts it is another job.
    let mut b = told_of();
    for nodes in ["n[1-4]", "n0", "n0,n[2-4]"] {
        let reply = b.ask(add("j", nodes, terms())).0;
        assert!(
            matches!(&reply, Err(Refusal::Conflict(text)) if text.contains("is on ranks 0-1 (n[0-1])")),
            "{nodes}: {reply:?}"
        );
    }
    assert!(matches!(b.ask(add("j", "n[0-3]", terms())).0, Ok(Reply::Added { attached: false, .. })));
    assert!(matches!(b.ask(add("j", "n[0-3]", terms())).0, Ok(Reply::Added { attached: true, .. })));
    let attempt = &b.store.attempts[0];
    assert_eq!((attempt.hold.ranks.to_string(), attempt.hold.resources.len()), ("0-3".into(), 1));
    // A rank beyond it is none of its epilog.
    b.up("n4", "b", vec![told(4, "0-4", live())]);
    assert_eq!(sets(&b).0, "0-1");
    let (n1, _) = b.up("n1", "b", vec![told(1, "0-1", live())]);
    b.says(n1, finished(t(1), Outcome::Ok));
    assert_eq!(sets(&b).3, None, "the job has others still");
    // What nobody told of has its epilog when the job lets go of it.
    let (n2, _) = b.up("n2", "b", vec![]);
    let (n3, _) = b.up("n3", "b", vec![]);
    let (_, effects) = b.ask(finish("j", None));
    assert_eq!(starts(&effects), [(n2, 2), (n3, 3)]);
    b.says(n2, finished(t(2), Outcome::Ok));
    b.says(n3, finished(t(3), Outcome::Ok));
    assert_eq!((sets(&b).0, sets(&b).3), ("0-3".into(), Some(Verdict::Ok)));
    assert!(b.store.attempts[0].complete);
    // All of it was told of: nothing more can come.
    let mut b = told_of();
    b.ask(add("j", "n[0-1]", terms())).0.unwrap();
    let (n1, _) = b.up("n1", "b", vec![told(1, "0-1", live())]);
    b.says(n1, finished(t(1), Outcome::Ok));
    assert_eq!(sets(&b).3, Some(Verdict::Ok));
}

#[test]
fn what_a_bare_run_began_is_no_part_of_another_job() {
    let (mut b, _) = bench(4, |_| {});
    b.run("prolog", "j", "n0");
    let reply = b.ask(add("j", "n[0-3]", Terms::default())).0;
    assert!(
        matches!(&reply, Err(Refusal::Conflict(text)) if text.contains("is on rank 0 (n0); asked for ranks 0-3 (n[0-3])")),
        "{reply:?}"
    );
    // Nor does it grow by what an earlier job of that name had on other nodes.
    b.run("epilog", "j", "n0");
    b.up("n5", "b", vec![Held { hosts: "n0,n5".parse().unwrap(), ..told(1, "0-1", live()) }]);
    assert_eq!(sets(&b).0, "0");
}

/// Whoever began an epilog by hand is there again, and says over what: it has its verdict without a resource manager.
#[test]
fn who_began_it_by_hand_ends_the_wait_for_more() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![told(0, "0-1", live())]);
    let (n1, _) = b.up("n1", "b", vec![told(1, "0-1", live())]);
    b.says(n0, finished(t(0), Outcome::Ok));
    b.says(n1, finished(t(1), Outcome::Ok));
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    assert_eq!((rows.len(), rows[0].state.as_str(), rows[0].hosts.to_string()), (1, "held", "n[0-1]".into()));
    assert!(rows[0].why.ends_with("perilog job finish j"), "{}", rows[0].why);
    assert_eq!(b.run("epilog", "j", "n[0-1]"), [Effect::OutboxGrew]);
    assert_eq!(sets(&b).3, Some(Verdict::Ok));
    assert_eq!(contexts(&b, "verdict").len(), 1);
}

/// A task of this attempt on n2, of which nobody but that node knows.
fn of_attempt(attempt: u64) -> Held {
    let task = TaskId { action: id("prolog", "j", attempt), rank: Rank(0) };
    Held { task, attempt: Attempt::from_number(attempt), ..held("prolog", "j", 0, "n2", live()) }
}

fn open(b: &Bench) -> Vec<String> {
    b.store.attempts.iter().filter(|row| row.open).map(|row| row.attempt.to_string()).collect()
}

/// Attempt 0 was asked for, on n0 and n1; n2 tells of attempt 7.
fn contested(added: bool) -> Bench {
    let (mut b, n) = bench(2, |_| {});
    if added {
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    }
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        b.says(n[rank as usize], finished(task("prolog", "j", rank), Outcome::Ok));
    }
    let (_, effects) = b.up("n2", "b", vec![of_attempt(7)]);
    assert_eq!(starts(&effects), []);
    b
}

/// Found by a review: one node, with a bug or with its key stolen, could end any job, and its epilog began beside it.
#[test]
fn a_node_that_tells_of_a_newer_attempt_ends_none_that_was_asked_for() {
    for added in [true, false] {
        let mut b = contested(added).restart();
        assert_eq!(
            (open(&b), b.store.attempts[0].hold.ranks.to_string()),
            (vec!["0".into(), "7".into()], "0-1".into())
        );
        assert_eq!((b.store.actions.len(), contexts(&b, "release").len()), (2, 0));
        // Only what is known from nodes gives way to what nodes tell of.
        b.up("n2", "b2", vec![of_attempt(9)]);
        assert_eq!(open(&b), ["0", "9"]);
        let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: true }).0 else { panic!() };
        let held = rows.iter().filter(|row| row.state == "held").map(|row| row.why.rsplit(": ").next().unwrap());
        assert_eq!(held.collect::<Vec<_>>(), ["perilog job finish j", "perilog job finish j --attempt 9"]);
    }
}

#[test]
fn whoever_asks_for_an_attempt_that_nodes_tell_of_ends_the_one_before() {
    let run = |action: &str, attempt| Request::Run(request(action, "j", None, attempt));
    let added = |attempt| {
        let Request::JobAdd(job) = add("j", "n2", Terms::default()) else { panic!() };
        Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(attempt)), ..*job }))
    };
    let service = |attempt| {
        let run = request("stage", "j", None, Some(attempt));
        Request::ActionStart(Box::new(ActionStart { run, resources: Default::default(), lease_ms: 1 }))
    };
    let older = "attempt 3 of job j comes before attempt 7, of which a node has told; the open one is 0: ask for attempt 7, or for a later one";
    let first =
        "attempt 0 of job j has not been given back: stage of attempt 7 can start when that was begun (job add, run)";
    let (older, first) = (Refusal::AttemptClosed(older.to_owned()), Refusal::Unavailable(first.to_owned()));
    // what is asked for -> refused; open after it
    for (what, refused, expect) in [
        (run("prolog", Some(7)), None, &["7"][..]),
        (run("check", Some(7)), None, &["7"]),
        (added(7), None, &["7"]),
        (run("check", Some(8)), None, &["8"]),
        (run("check", Some(3)), Some(older), &["0", "7"]),
        (service(7), Some(first), &["0", "7"]),
        (run("check", None), None, &["0", "7"]),
        (run("check", Some(0)), None, &["0", "7"]),
    ] {
        let mut b = contested(true);
        let (reply, _) = b.ask(what.clone());
        assert_eq!((reply.err(), open(&b)), (refused, expect.iter().map(|n| (*n).to_owned()).collect()), "{what:?}");
        let closed = contexts(&b, "attempt-closed").iter().any(|context| context["attempt"] == "0");
        let followed = b.store.actions.iter().any(|row| row.id == id("epilog", "j", 0));
        assert_eq!((closed, followed), (expect[0] != "0", expect[0] != "0"), "{what:?}");
    }
    // A requeue is of the one that was asked for.
    let mut b = contested(true);
    b.ask(run("prolog", Some(8))).0.unwrap();
    assert_eq!(b.store.attempts[2].hosts.to_string(), "n[0-1]");
    // Without a number that one is meant, too.
    let mut b = contested(true);
    assert_eq!(b.ask(finish("j", None)).0, Ok(Reply::Finished(Part::of_ranks("0-1".parse().unwrap()))));
    assert_eq!(b.store.attempts[1].hold.ranks.to_string(), "0");
}
