//! Milestones: reports of ranks, and the moment when the job has reached a milestone.

use serde_json::{Value, json};

use crate::job::{Terms, Tolerance};
use crate::task::Check;

use super::release::{add, bench, contexts, finish, job};
use super::*;

fn reported(b: &Bench) -> Vec<Value> {
    contexts(b, "milestone")
}

/// Returns the ranks that each `milestone` event names, in the order of the events. The entry `job` is an event without
/// ranks: the whole job has reached the milestone.
fn who(b: &Bench) -> Vec<String> {
    reported(b).iter().map(|c| c["ranks"].as_str().unwrap_or("job").to_owned()).collect()
}

fn reports(b: &mut Bench, session: SessionId, action: &str, rank: u32, name: &str) {
    b.receives(session, FromAgent::Milestone { task: task(action, "j", rank), name: name.to_owned() });
}

fn ends(b: &mut Bench, session: SessionId, action: &str, rank: u32, outcome: Outcome, milestones: &[&str]) {
    let checks = match outcome {
        Outcome::Tolerable => vec![Check { check: "lustre".into(), message: "gone".into() }],
        _ => vec![],
    };
    let milestones = milestones.iter().map(|name| (*name).to_owned()).collect();
    let ended = Ended { milestones, checks, ..ended(outcome) };
    b.receives(session, FromAgent::Finished { task: task(action, "j", rank), ended: Box::new(ended) });
}

fn milestone_request(name: &str, targets: Option<&str>) -> Request {
    let targets = targets.map(|t| t.parse().unwrap());
    Request::Milestone { job: job("j"), attempt: None, name: MilestoneName::new(name).unwrap(), targets }
}

fn reached_reply(ranks: &str, reached: bool) -> Result<Reply, Refusal> {
    Ok(Reply::MilestoneReached { ranks: ranks.parse().unwrap(), reached })
}

#[test]
fn each_rank_says_it_once_and_the_job_once_over_any_restart() {
    let (mut b, n) = bench(2, |_| {});
    b.run("prolog", "j", "n[0-1]");
    for session in &n {
        b.receives(*session, FromAgent::Accepted { task: task("prolog", "j", (session.0 - 1) as u32), limit_ms: None });
    }
    reports(&mut b, n[0], "prolog", 0, "data-in");
    reports(&mut b, n[0], "prolog", 0, "data-in");
    assert_eq!(who(&b), ["0"]);
    let mut b = b.restart();
    // The agent repeats all reports, and sends them once more with the end.
    let held = |rank| vec![super::held("prolog", "j", rank, live())];
    let (n0, _) = b.up("n0", "b", held(0));
    let (n1, _) = b.up("n1", "b", held(1));
    reports(&mut b, n0, "prolog", 0, "data-in");
    reports(&mut b, n1, "prolog", 1, "data-in");
    ends(&mut b, n0, "prolog", 0, Outcome::Ok, &["data-in"]);
    let mut b = b.restart();
    let (n1, _) = b.up("n1", "b", held(1));
    ends(&mut b, n1, "prolog", 1, Outcome::Ok, &["data-in"]);
    assert_eq!(who(&b), ["0", "1", "job"]);
    assert_eq!(
        reported(&b)[1..],
        [
            json!({"action": "prolog", "attempt": "0", "name": "data-in", "ranks": "1", "hosts": "n1"}),
            json!({"attempt": "0", "name": "data-in"})
        ]
    );
    // The resource manager gets a notice of the job's milestone only.
    let of_job = b.store.outbox.iter().filter(|entry| entry.body.value()["event"] == "milestone").count();
    assert_eq!(of_job, 1);
}

#[test]
fn ranks_that_say_it_in_one_batch_are_one_event() {
    let (mut b, n) = bench(4, |_| {});
    b.run("prolog", "j", "n[0-3]");
    let reported_by = |rank: u32| FromAgent::Milestone { task: task("prolog", "j", rank), name: "data-in".into() };
    b.batch((0..4).map(|rank| from(n[rank as usize], reported_by(rank))).collect());
    assert_eq!(who(&b), ["0-3", "job"]);
}

/// The job reaches a milestone without ranks that failed within the tolerance, or that were released while the job went
/// on.
#[test]
fn the_job_reaches_it_without_those_that_it_goes_on_without() {
    let terms = Terms { tolerate: Some(Tolerance::Ranks(1)), shrink: true, ..Terms::default() };
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", terms)).0.unwrap();
    b.run("prolog", "j", "n[0-3]");
    ends(&mut b, n[0], "prolog", 0, Outcome::Ok, &["ready"]);
    ends(&mut b, n[1], "prolog", 1, Outcome::Ok, &["ready"]);
    ends(&mut b, n[2], "prolog", 2, Outcome::Ok, &["ready"]);
    assert_eq!(who(&b), ["0", "1", "2"]);
    // The verdict forgives rank 3, and the job has reached the milestone of the others.
    ends(&mut b, n[3], "prolog", 3, Outcome::Tolerable, &[]);
    assert_eq!(who(&b), ["0", "1", "2", "job"]);
    assert_eq!(reported(&b)[3], json!({"attempt": "0", "name": "ready", "without": "3"}));
    // Rank 3 is handed over, and so is rank 2, early.
    b.ask(finish("j", Some("2"))).0.unwrap();
    assert_eq!(b.ask(milestone_request("data-out", Some("0-1"))).0, reached_reply("0-1", false));
    ends(&mut b, n[2], "epilog", 2, Outcome::Ok, &[]);
    assert_eq!(who(&b)[4..], ["0-1"], "what was dropped with it has not ended, and so it is not released");
    // Both ranks are released without a report: the job goes on without them.
    ends(&mut b, n[3], "epilog", 3, Outcome::Ok, &[]);
    assert_eq!(who(&b)[4..], ["0-1", "job"]);
    let mut b = b.restart();
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!(reported(&b).last().unwrap()["without"], "2-3");
}

#[test]
fn released_early_each_as_it_comes() {
    let (mut b, n) = bench(3, |settings| {
        settings.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
    });
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    b.ask(milestone_request("half", Some("0-1"))).0.unwrap();
    b.ask(finish("j", Some("2"))).0.unwrap();
    assert_eq!(who(&b), ["0-1"]);
    ends(&mut b, n[2], "epilog", 2, Outcome::Ok, &[]);
    assert_eq!(who(&b), ["0-1", "job"]);
    // After the job's end no rank leaves the milestone: a rank that fails in its epilog has not reached it.
    b.ask(finish("j", None)).0.unwrap();
    ends(&mut b, n[0], "epilog", 0, Outcome::Ok, &["data-out"]);
    ends(&mut b, n[1], "epilog", 1, exit(1), &[]);
    assert_eq!(contexts(&b, "release").last().unwrap()["final"], true);
    assert_eq!(who(&b), ["0-1", "job", "0"]);
}

#[test]
fn a_milestone_in_the_last_end_is_sent_before_the_last_release() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    ends(&mut b, n[0], "epilog", 0, Outcome::Ok, &["data-out"]);
    assert_eq!(b.reported("j")[3..], ["milestone", "milestone", "finish", "verdict", "release"]);
}

#[test]
fn what_comes_late_was_reported_all_the_same() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    b.ask(Request::Resolve { which: which("j", Some("0")), ok: true, reason: "seen".into() }).0.unwrap();
    ends(&mut b, n[0], "prolog", 0, Outcome::Ok, &["data-in"]);
    assert_eq!(who(&b), ["0", "job"]);
}

#[test]
fn what_operators_say() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    for (targets, reply) in [
        (Some("0-1"), reached_reply("0-1", false)),
        (Some("1"), reached_reply("", false)),
        (Some("7"), Err(Refusal::Invalid("rank 7 is not one of ranks 0-2 (n[0-2])".into()))),
        (None, reached_reply("2", true)),
        (None, reached_reply("", true)),
    ] {
        assert_eq!(b.ask(milestone_request("data-out", targets)).0, reply, "{targets:?}");
    }
    assert_eq!(reported(&b)[0]["by"], 0);
    let refused = b.ask(milestone_request("finish", None)).0;
    assert!(matches!(refused, Err(Refusal::Invalid(text)) if text.contains("an event in the logs of jobs")));
    // The next attempt has no reports yet, and the older attempt accepts none.
    b.ask(Request::Run(request("prolog", "j", Some("n[0-2]"), Some(1)))).0.unwrap();
    assert_eq!(b.ask(milestone_request("data-out", Some("0"))).0, reached_reply("0", false));
    let older = Request::Milestone {
        job: job("j"),
        attempt: Some(Attempt::FIRST),
        name: MilestoneName::new("x").unwrap(),
        targets: None,
    };
    assert!(matches!(b.ask(older).0, Err(Refusal::AttemptClosed(_))));
}

/// While a rank that the job handed over early is not released, the job reaches no milestone without this rank. This
/// holds even if the job ends before the epilog of the rank does.
#[test]
fn a_rank_handed_over_early_counts_until_it_is_released() {
    for late in [false, true] {
        let (mut b, n) = bench(2, |settings| {
            settings.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
        });
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        b.ask(finish("j", Some("1"))).0.unwrap();
        if !late {
            ends(&mut b, n[1], "epilog", 1, Outcome::Ok, &[]);
        }
        b.ask(finish("j", None)).0.unwrap();
        b.receives(n[0], FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
        reports(&mut b, n[0], "epilog", 0, "data-out");
        let mut b = b.restart();
        if late {
            assert_eq!(who(&b), ["0"]);
            let n1 = b.up("n1", "b1", vec![held("epilog", "j", 1, live())]).0;
            ends(&mut b, n1, "epilog", 1, Outcome::Ok, &[]);
        }
        assert_eq!(who(&b), ["0", "job"], "{late}");
    }
}

/// Regression test: an attempt has room for 64 milestones, and a client that waited for the 65th waited for ever.
#[test]
fn the_lack_of_room_for_other_names_is_reported_once() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    let noted = |b: &mut Bench| {
        let Ok(Reply::Ps { notes, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
        notes.iter().any(|note| note.contains("job j attempt 0: the limit of 64 milestones"))
    };
    for number in 0..80 {
        assert_eq!(contexts(&b, "milestones-full").len(), usize::from(number >= 64), "{number}");
        assert_eq!(noted(&mut b), number >= 64, "{number}");
        reports(&mut b, n[0], "prolog", 0, &format!("m{number}"));
    }
    assert_eq!(
        contexts(&b, "milestones-full"),
        [json!({"attempt": contexts(&b, "milestone")[0]["attempt"], "most": 64})]
    );
    assert!(!reported(&b).iter().any(|reported| reported["name"] == "m64"));
}

/// Regression test: an attempt has room for 64 milestones, and its prolog and its epilog reported 40 each. Every script
/// got a confirmation, but the controller dropped 16 of the names.
#[test]
fn a_start_brings_the_milestones_that_its_attempt_has() {
    let brought = |effects: &[Effect]| {
        let starts = effects.iter().filter_map(|effect| match effect {
            Effect::Fan { start, .. } => Some(&**start),
            Effect::Send { message: ToAgent::Start(start), .. } => Some(start),
            _ => None,
        });
        starts.flat_map(|start| &start.milestones).map(ToString::to_string).collect::<Vec<_>>()
    };
    let (mut b, n) = bench(2, |_| {});
    assert!(brought(&b.run("prolog", "j", "n[0-1]")).is_empty());
    for number in 0..70 {
        reports(&mut b, n[0], "prolog", 0, &format!("m{}", 10 + number));
    }
    let most: Vec<String> = (10..74).map(|number| format!("m{number}")).collect();
    // A node that has not received its Start is sent it again.
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), [(n1, 1)]);
    assert_eq!(brought(&effects), most);
    ends(&mut b, n[0], "prolog", 0, Outcome::Ok, &[]);
    ends(&mut b, n1, "prolog", 1, Outcome::Ok, &[]);
    assert_eq!(brought(&b.run("epilog", "j", "n[0-1]")), most);
}
