//! Holds and releases: the holder of each rank and named resource of a job, and the moment of its release.

use serde_json::{Value, json};

use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::outcome::Verdict;
use crate::resource_set::ResourceSet;

use super::*;

pub(super) fn job(name: &str) -> JobId {
    JobId::new(name).unwrap()
}

pub(super) fn add(name: &str, nodes: &str, terms: Terms) -> Request {
    Request::JobAdd(Box::new(JobAdd {
        source: None,
        job: job(name),
        attempt: None,
        nodes: (!nodes.is_empty()).then(|| nodes.parse().unwrap()),
        userid: Some(1000),
        terms,
    }))
}

pub(super) fn finish(name: &str, targets: Option<&str>) -> Request {
    Request::JobFinish { job: job(name), attempt: None, targets: targets.map(|t| t.parse().unwrap()), resources: None }
}

/// Creates a bench with `nodes` connected nodes, and with settings that `change` has changed.
pub(super) fn bench(nodes: u32, change: impl Fn(&mut Settings)) -> (Bench, Vec<SessionId>) {
    let mut b = Bench::new();
    let mut settings = settings();
    change(&mut settings);
    b.settings = settings.clone();
    b.batch(vec![Input::Settings(settings)]);
    let sessions = (0..nodes).map(|i| b.up(&format!("n{i}"), "b", vec![]).0).collect();
    (b, sessions)
}

/// Creates a bench with this release policy for the action `epilog`.
fn with_policy(policy: ReleasePolicy, nodes: u32) -> (Bench, Vec<SessionId>) {
    bench(nodes, |settings| {
        settings.release.insert(ActionName::new("epilog").unwrap(), policy);
    })
}

/// Returns the contexts of all events with this name.
pub(super) fn contexts(b: &Bench, name: &str) -> Vec<Value> {
    let of = b.events.iter().filter(|(_, _, event)| event.name() == name);
    of.map(|(_, _, event)| Value::Object(event.context().cloned().unwrap())).collect()
}

/// Returns the fields `ranks` and `final` of each `release` event so far.
fn releases(b: &Bench) -> Vec<(String, bool)> {
    let reported = contexts(b, "release");
    reported.iter().map(|c| (c["ranks"].as_str().unwrap().to_owned(), c["final"].as_bool().unwrap())).collect()
}

fn done(b: &mut Bench, sessions: &[SessionId], action: &str, rank: u32, outcome: Outcome) -> Vec<Effect> {
    b.receives(sessions[rank as usize], finished(task(action, "j", rank), outcome))
}

fn released(ranks: &str, last: bool) -> (String, bool) {
    (ranks.to_owned(), last)
}

#[test]
fn a_job_holds_all_and_its_epilog_takes_over_in_the_same_step() {
    let (mut b, n) = bench(2, |_| {});
    let (reply, _) = b.ask(add("j", "n[0-1]", Terms::default()));
    assert!(matches!(reply, Ok(Reply::Added { attached: false, .. })), "{reply:?}");
    b.run("prolog", "j", "n[0-1]");
    done(&mut b, &n, "prolog", 0, Outcome::Ok);
    done(&mut b, &n, "prolog", 1, Outcome::Ok);
    assert_eq!(releases(&b), []);
    let (reply, effects) = b.ask(finish("j", None));
    assert_eq!(reply, Ok(Reply::Finished(Part::of_ranks("0-1".parse().unwrap()))));
    assert_eq!(starts(&effects), [(n[0], 0), (n[1], 1)]);
    // One step: the ranks have a holder at every moment.
    let attempt = &b.store.attempts[0];
    assert!(attempt.hold.is_empty() && attempt.released.is_empty());
    assert_eq!(b.action("epilog", "j", 0).held.ranks.to_string(), "0-1");
    done(&mut b, &n, "epilog", 0, Outcome::Ok);
    assert_eq!(releases(&b), []);
    done(&mut b, &n, "epilog", 1, Outcome::Ok);
    assert_eq!(releases(&b), [released("0-1", true)]);
    assert_eq!(
        b.reported("j"),
        [
            "attempt",
            "action-start",
            "finish",
            "finish",
            "verdict",
            "job-finish",
            "action-start",
            "finish",
            "finish",
            "verdict",
            "release"
        ]
    );
    // A repeated finish hands nothing over, and no further action begins.
    assert_eq!(b.ask(finish("j", None)).0, Ok(Reply::Finished(Part::default())));
    let (reply, _) = b.ask(Request::Run(request("housekeeping", "j", None, None)));
    assert!(matches!(reply, Err(Refusal::Conflict(text)) if text.contains("job j attempt 0 no longer holds ranks \
                                                                           0-1")));
}

#[test]
fn an_epilog_that_hangs_holds_its_own_node_only() {
    let (mut b, n) = with_policy(ReleasePolicy::Each, 4);
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    for rank in [2, 0, 3] {
        done(&mut b, &n, "epilog", rank, Outcome::Ok);
    }
    assert_eq!(releases(&b), [released("2", false), released("0", false), released("3", false)]);
    // A restart repeats no release and forgets none.
    let mut b = b.restart();
    b.pass(1);
    assert_eq!(releases(&b).len(), 3);
    let which = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", Some("1")) };
    b.ask(Request::Resolve { which, ok: false, reason: "power-cycled".into() }).0.unwrap();
    assert_eq!(releases(&b)[3..], [released("1", true)]);
}

#[test]
fn what_a_job_hands_over_early_does_not_wait_for_its_end() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.ask(finish("j", Some("0-1"))).0.unwrap();
    done(&mut b, &n, "epilog", 1, Outcome::Ok);
    // The policy `together` covers the ranks that the job has handed over so far.
    b.ask(finish("j", Some("2"))).0.unwrap();
    done(&mut b, &n, "epilog", 0, Outcome::Ok);
    assert_eq!(releases(&b), []);
    done(&mut b, &n, "epilog", 2, Outcome::Ok);
    assert_eq!(releases(&b), [released("0-2", false)]);
    b.ask(finish("j", None)).0.unwrap();
    done(&mut b, &n, "epilog", 3, Outcome::Ok);
    assert_eq!(releases(&b)[1..], [released("3", true)]);
}

#[test]
fn batches_are_released_as_the_policy_says() {
    let policy = ReleasePolicy::Batches { first_ms: 100, ceiling_ms: 150 };
    let (mut b, n) = with_policy(policy, 6);
    b.ask(add("j", "n[0-5]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    done(&mut b, &n, "epilog", 0, Outcome::Ok);
    done(&mut b, &n, "epilog", 1, Outcome::Ok);
    b.pass(50);
    assert_eq!(releases(&b), []);
    b.pass(60);
    assert_eq!(releases(&b), [released("0-1", false)]);
    done(&mut b, &n, "epilog", 2, Outcome::Ok);
    b.pass(110);
    assert_eq!(releases(&b).len(), 1);
    b.pass(50);
    assert_eq!(releases(&b)[1..], [released("2", false)]);
    // The last batch waits for no clock.
    for rank in [3, 4, 5] {
        done(&mut b, &n, "epilog", rank, Outcome::Ok);
    }
    assert_eq!(releases(&b)[2..], [released("3-5", true)]);
}

#[test]
fn a_job_may_drop_ranks_and_named_resources_early() {
    let (mut b, n) = with_policy(ReleasePolicy::Each, 3);
    let resources = ["rabbit1"].map(|name| ResourceName::new(name).unwrap()).into();
    b.ask(add("j", "n[0-2]", Terms { resources, ..Terms::default() })).0.unwrap();
    let (_, effects) = b.ask(finish("j", Some("n1")));
    assert_eq!(starts(&effects), [(n[1], 1)]);
    done(&mut b, &n, "epilog", 1, Outcome::Ok);
    assert_eq!(releases(&b), [released("1", false)]);
    assert_eq!(b.action("epilog", "j", 0).verdict, None, "more of it is to come");
    let (_, effects) = b.ask(finish("j", None));
    assert_eq!(starts(&effects), [(n[0], 0), (n[2], 2)]);
    let reported = contexts(&b, "release");
    assert_eq!((&reported[1]["ranks"], &reported[1]["resources"]), (&json!(""), &json!(["rabbit1"])));
    done(&mut b, &n, "epilog", 0, Outcome::Ok);
    done(&mut b, &n, "epilog", 2, Outcome::Ok);
    assert_eq!(releases(&b)[2..], [released("0", false), released("2", true)]);
    assert_eq!(b.action("epilog", "j", 0).verdict, Some(Verdict::Ok));
}

#[test]
fn fragments_are_cut_from_r_and_add_up_to_it() {
    let r = json!({"version": 1, "execution": {"R_lite": [{"rank": "19-21", "children": {"core": "0-3"}}, {"rank": "22",
        "children": {"core": "0-1"}}], "nodelist": ["n[0-3]"]}, "scheduling": {"graph": {}}});
    let r = ResourceSet::from_json(&r.to_string()).unwrap();
    let (mut b, n) = with_policy(ReleasePolicy::Each, 4);
    b.ask(add("j", "", Terms { r: Some(Box::new(r.clone())), ..Terms::default() })).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    for (rank, session) in [(21, n[2]), (19, n[0]), (22, n[3]), (20, n[1])] {
        b.receives(session, finished(task("epilog", "j", rank), Outcome::Ok));
    }
    let fragments: Vec<ResourceSet> =
        contexts(&b, "release").iter().map(|c| serde_json::from_value(c["R"].clone()).unwrap()).collect();
    let ranks: Vec<String> = fragments.iter().map(|f| f.ranks().to_string()).collect();
    assert_eq!(ranks, ["21", "19", "22", "20"]);
    assert_eq!(fragments[2].hosts().to_string(), "n3");
    let all = fragments.iter().fold(ResourceSet::default(), |all, f| all.union(f).unwrap());
    assert_eq!(all, r);
}

#[test]
fn an_epilog_never_runs_beside_its_prolog() {
    let (mut b, n) = bench(2, |s| s.timeouts = BTreeMap::new());
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    b.receives(n[1], FromAgent::Accepted { task: task("prolog", "j", 1), limit_ms: None });
    let (_, effects) = b.ask(Request::JobCancel { job: job("j"), attempt: None, why: "user".into() });
    assert_eq!(starts(&effects), []);
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Send { message: ToAgent::Cancel { .. }, .. })).count(), 2);
    // An epilog that waits is never late, across a restart and a reconnect.
    b.pass(10_000_000);
    let mut b = b.restart();
    b.pass(10_000_000);
    let (n0, effects) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    assert_eq!(starts(&effects), []);
    let effects = b.receives(n0, finished(task("prolog", "j", 0), Outcome::Cancelled { status: None }));
    assert_eq!(starts(&effects), [(n0, 0)]);
    // The epilog's own start-grace counts from here.
    b.pass(59_000);
    assert_eq!(b.action("epilog", "j", 0).not_ok.to_string(), "");
    b.pass(2_000);
    assert_eq!(b.action("epilog", "j", 0).not_ok.to_string(), "0");
    assert_eq!(b.action("epilog", "j", 0).waiting.to_string(), "1");
    let (n1, effects) = b.up("n1", "b2", vec![]);
    // The prolog ended with the reboot; the epilog runs all the same.
    assert_eq!(starts(&effects), [(n1, 1)]);
}

#[test]
fn a_second_attempt_ends_the_hold_of_the_first() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    assert_eq!(releases(&b), [], "its prolog runs still");
    done(&mut b, &n, "prolog", 0, exit(1));
    assert_eq!(releases(&b), [], "what follows it has it");
    done(&mut b, &n, "epilog", 0, Outcome::Ok);
    assert_eq!(releases(&b), [released("0", true)]);
    assert_eq!(contexts(&b, "release")[0]["attempt"], "0");
    assert_eq!(b.store.attempts.iter().find(|a| a.open).unwrap().hold.ranks, IdSet::from(0..=0));
}

#[test]
fn jobs_are_added_once() {
    let (mut b, _) = bench(2, |_| {});
    let terms = Terms { tolerate: "1".parse().ok(), ..Terms::default() };
    b.run("prolog", "k", "n0");
    b.run("prolog", "m", "n[0-1]");
    b.ask(finish("m", Some("0"))).0.unwrap();
    for (request, expect) in [
        (add("j", "n[0-1]", terms.clone()), Ok(false)),
        (add("j", "n[0-1]", terms.clone()), Ok(true)),
        (add("j", "n[0-1]", Terms::default()), Err("other terms")),
        (add("j", "n0", terms.clone()), Err("already exists on ranks 0-1 (n[0-1]); the request names rank 0 (n0)")),
        (add("k", "n0", terms.clone()), Ok(false)),
        (add("m", "n[0-1]", terms.clone()), Err("has already dropped some ranks or resources")),
        (add("l", "", terms.clone()), Err("needs R, or the names of its hosts")),
        (add("l", "n0,n0", terms.clone()), Err("n0 is named twice")),
        (add("l", "n[0-1]", Terms { keep: Some(3), ..terms.clone() }), Err("cannot keep 3 ranks of a job that has 2")),
        (add("l", "n[0-1]", Terms { keep: Some(0), ..terms.clone() }), Err("keep at least one rank")),
    ] {
        let asked = format!("{request:?}");
        match (b.ask(request).0, expect) {
            (Ok(Reply::Added { attached, .. }), Ok(expect)) => assert_eq!(attached, expect, "{asked}"),
            (Err(refusal), Err(expect)) => assert!(format!("{refusal:?}").contains(expect), "{refusal:?}"),
            (reply, _) => panic!("{asked}: {reply:?}"),
        }
    }
}

#[test]
fn an_idle_job_that_a_client_will_finish_is_not_pruned() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    done(&mut b, &n, "prolog", 0, Outcome::Ok);
    b.pass(40 * 86_400_000);
    assert_eq!(b.store.attempts.len(), 1);
    b.ask(finish("j", None)).0.unwrap();
    let mut b = b.restart();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.receives(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!(releases(&b), [released("0", true)]);
    b.pass(40 * 86_400_000);
    assert_eq!(b.store.attempts, []);
}

/// Regression test: the timer of one release policy stayed in force when the policy changed. The machine then asked
/// again and again for a wake-up at a time in the past.
#[test]
fn a_policy_change_stops_the_clock_of_a_waiting_batch() {
    let batches = ReleasePolicy::Batches { first_ms: 10_000, ceiling_ms: 60_000 };
    for (then, waits) in [(ReleasePolicy::Each, false), (ReleasePolicy::Together, true)] {
        let (mut b, n) = with_policy(batches, 2);
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        b.ask(finish("j", None)).0.unwrap();
        done(&mut b, &n, "epilog", 0, Outcome::Ok);
        let mut settings = b.settings.clone();
        settings.release.insert(ActionName::new("epilog").unwrap(), then);
        b.settings = settings.clone();
        b.batch(vec![Input::Settings(settings)]);
        b.pass(10_000);
        assert_eq!(releases(&b).is_empty(), waits);
        let next = b.m.facts().next_check();
        assert!(next.is_none_or(|at| at > b.now.mono_ms), "{next:?}");
    }
}

/// The controller refuses a prolog on ranks that the job has handed over, because no epilog would clean up after it. It
/// also refuses an epilog over a part of the held ranks, because it would never run on the rest.
#[test]
fn setup_begins_on_held_ranks_and_an_epilog_covers_them_all() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    let of = |action: &str, targets: Option<&str>| {
        let targets = targets.map(|t| t.parse().unwrap());
        Request::Run(RunRequest { targets, ..request(action, "j", None, None) })
    };
    let refused = |reply: Result<Reply, Refusal>, expect: &str| {
        assert!(matches!(&reply, Err(Refusal::Conflict(text)) if text.contains(expect)), "{reply:?}");
    };
    refused(b.ask(of("epilog", Some("0"))).0, "also holds ranks 1-3, where epilog would not run later");
    b.ask(finish("j", Some("0"))).0.unwrap();
    refused(b.ask(of("prolog", Some("0-1"))).0, "no longer holds rank 0: prolog cannot begin there");
    // `All` means all ranks that the job still holds.
    let (reply, _) = b.ask(of("prolog", None));
    assert!(matches!(&reply, Ok(Reply::Running { ranks, .. }) if ranks.to_string() == "1-3"), "{reply:?}");
    b.ask(finish("j", None)).0.unwrap();
    refused(b.ask(of("check", None)).0, "no longer holds ranks 0-3: check cannot begin there");
    for rank in 1..4 {
        done(&mut b, &n, "prolog", rank, Outcome::Ok);
    }
    for rank in 0..4 {
        done(&mut b, &n, "epilog", rank, Outcome::Ok);
    }
    assert_eq!(releases(&b).last(), Some(&released("0-3", true)));
}
