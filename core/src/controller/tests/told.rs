//! What a node tells to have run there for a store that was lost, an old copy of one or another controller: it is cleaned up after, or its node is
//! drained.

use std::collections::BTreeSet;

use super::rebuilt::sets;
use super::release::{add, bench, contexts, finish};
use super::superseded::{begun, end, named, of};
use super::*;
use crate::idset::IdSet;
use crate::job::Terms;
use crate::outcome::{ExitStatus, Loss};

/// Found by the simulator: its own node had told of what the lost store had begun there, and the rank went back without an epilog when another attempt
/// took the place of the one that was asked for anew.
#[test]
fn what_a_lost_store_had_begun_is_followed_where_another_attempt_takes_its_place() {
    let stone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let stone = Held { ranks: IdSet::new(), hosts: Default::default(), ..held("prolog", "j", 0, "n0", stone) };
    // The node is there, or went away after it had told -> what the epilog is over, and what goes back at once
    for (away, followed, back) in [(false, "0", Some("1")), (true, "0-1", None)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![stone.clone()]);
        b.up("n1", "b", vec![]);
        if away {
            b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
            // On n0 it waits, and is withdrawn: nothing that this store knows was begun there.
            b.run("prolog", "j", "n[0-1]");
        } else {
            b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        }
        b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
        let given = contexts(&b, "release").first().map(|release| release["ranks"].as_str().unwrap().to_owned());
        assert_eq!(
            (b.action("epilog", "j", 0).ranks.to_string(), given.as_deref()),
            (followed.to_owned(), back),
            "{away}"
        );
    }
}

/// Found by the simulator: a prolog was withdrawn on a node as never begun, and while its other nodes still held all of it that one told that a lost
/// store had begun it; the rank went back without an epilog.
#[test]
fn what_is_told_to_have_run_on_a_rank_that_was_let_go_is_followed_there_until_it_goes_back() {
    let stone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let stone = Held { ranks: IdSet::new(), hosts: Default::default(), ..held("prolog", "j", 1, "n1", stone) };
    for (gone, followed, back) in [(false, "0-1", &["0-1"][..]), (true, "0", &["1", "0"])] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![]);
        let (n1, _) = b.up("n1", "b", vec![]);
        b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
        b.run("prolog", "j", "n[0-1]");
        b.says(n0, FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
        b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
        assert_eq!(sets(&b).0, "0");
        let cancelled = finished(task("prolog", "j", 0), Outcome::Cancelled { status: None });
        if gone {
            b.says(n0, cancelled.clone());
        }
        let (n1, _) = b.up("n1", "b", vec![stone.clone()]);
        assert_eq!(sets(&b).0, followed, "{gone}");
        b.says(n0, cancelled);
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        b.says(n1, finished(task("epilog", "j", 1), Outcome::Ok));
        let given = contexts(&b, "release");
        let given: Vec<_> = given.iter().map(|release| release["ranks"].as_str().unwrap()).collect();
        assert_eq!(given, back, "{gone}");
    }
}

/// Found by a review: its epilog would have run beside what another attempt had begun there, or after that.
#[test]
fn what_is_told_to_have_run_where_a_later_attempt_has_begun_drains_its_node_and_is_not_followed() {
    let (text, cancelled) = (
        "prolog: ran, as its node tells only now, and attempt 1 has begun there: nothing cleans up after it",
        Outcome::Cancelled { status: Some(ExitStatus::Signal(15)) },
    );
    // Does anything follow jobs there?
    for (cleans, expect) in [(true, Some(format!("{text} (job j attempt 0)"))), (false, None)] {
        let (mut b, n) = bench(2, |s| {
            if !cleans {
                s.after.clear()
            }
        });
        b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
        b.run("prolog", "j", "n[0-1]");
        b.says(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
        b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
        // n1 has it as not begun: it is cancelled, and the next one begins there. But its runner was faster.
        let (n1, effects) = b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", HeldState::Unclaimed)]);
        assert_eq!(starts(&effects), [(n1, 1)]);
        b.says(n1, finished(task("prolog", "j", 1), cancelled.clone()));
        assert!(!cleans || sets(&b).0 == "0");
        assert_eq!(b.m.drains.get("n1").map(|drain| drain.reason.clone()), expect);
    }
}

/// Found by a review: of two tombstones of one Hello the one that tells of the epilog may come second.
#[test]
fn an_epilog_that_its_node_tells_of_too_has_cleaned_up_there_whichever_comes_first() {
    let ok = || HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let mut epilog_second = BTreeSet::new();
    for name in ["j", "k", "l", "m", "n", "o", "p", "q"] {
        let (mut b, n) = bench(2, |_| {});
        b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
        b.run("prolog", name, "n[0-1]");
        b.says(n[0], FromAgent::Accepted { task: task("prolog", name, 0), limit_ms: None });
        b.ask(Request::Run(request("prolog", name, None, Some(1)))).0.unwrap();
        let (n1, effects) = b.up("n1", "b", vec![]);
        assert_eq!(starts(&effects), [(n1, 1)]);
        b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
        let stones = ["prolog", "epilog"].map(|action| held(action, name, 1, "n[0-1]", ok()));
        epilog_second.insert(stones[0].task < stones[1].task);
        b.up("n1", "b", stones.to_vec());
        assert_eq!(b.store.drains, [], "{name}");
    }
    assert_eq!(epilog_second.len(), 2, "both orders");
}

/// Found by a review: an old copy of the store had begun nothing there, and the rank had gone back when its node came.
#[test]
fn what_is_told_to_have_run_on_a_rank_that_has_gone_back_drains_its_node_unless_that_was_cleaned_up() {
    let cancelled = || Outcome::Cancelled { status: None };
    let stone = |outcome| HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None };
    let of = |action: &str, state| held(action, "j", 0, "n0", state);
    let (prolog, epilog) = (|state| of("prolog", state), |state| of("epilog", state));
    let runs = Phase::Running { script: "a".into(), index: 1, of: 1, progress: None };
    let live = |phase| HeldState::Live { phase, age_ms: 1 };
    let ran = Some("prolog: ran, as its node tells only now, and its rank had gone back: nothing cleans up after it");
    let lives = Some("prolog: lives, and its rank had gone back as one where nothing was begun");
    // What its Hello has -> why it is drained; what it finishes as -> and then.
    for (holds, expect, ended, then) in [
        (vec![prolog(HeldState::Ended)], None, Some(Outcome::Ok), ran),
        (vec![prolog(HeldState::Ended)], None, Some(cancelled()), None),
        (vec![prolog(live(Phase::Starting))], None, Some(cancelled()), None),
        (vec![prolog(live(Phase::Starting))], None, Some(exit(1)), ran),
        (vec![prolog(live(runs))], lives, Some(Outcome::Ok), lives),
        (vec![prolog(stone(Outcome::Ok))], ran, None, ran),
        (vec![prolog(stone(Outcome::Ok)), epilog(stone(Outcome::Ok))], None, None, None),
        // It was refused, or taken back before it began: it has cleaned up nothing.
        (vec![prolog(stone(Outcome::Ok)), epilog(stone(cancelled()))], ran, None, ran),
        (vec![prolog(HeldState::Ended), epilog(HeldState::Unclaimed)], None, Some(Outcome::Ok), None),
        (vec![prolog(HeldState::Unclaimed)], None, None, None),
        (vec![], None, None, None),
    ] {
        let mut b = Bench::new();
        b.run("prolog", "j", "n0");
        b.ask(Request::Cancel { which: which("j", None), why: "user".into() }).0.unwrap();
        b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
        assert_eq!(contexts(&b, "release").len(), 1);
        let (n0, _) = b.up("n0", "b", holds.clone());
        let why = |b: &Bench| b.store.drains.first().map(|row| row.reason.clone());
        let of_job = |why: Option<&str>| why.map(|why| format!("{why} (job j attempt 0)"));
        assert_eq!(why(&b), of_job(expect), "{holds:?}");
        if let Some(ended) = ended {
            b.says(n0, finished(task("prolog", "j", 0), ended));
        }
        assert_eq!(why(&b), of_job(then), "{holds:?}");
        // Whoever lifts that has seen it.
        if then.is_some() {
            b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false }).0.unwrap();
            b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
            let mut b = b.restart();
            b.up("n0", "b", holds);
            assert_eq!(why(&b), None);
        }
    }
}

/// Found by a review: that another node had told of its epilog too passed for its being there.
#[test]
fn an_epilog_that_only_another_node_tells_of_cleans_up_nothing() {
    for other_first in [true, false] {
        let mut b = Bench::new();
        b.run("prolog", "j", "n[0-1]");
        b.ask(Request::Cancel { which: which("j", None), why: "user".into() }).0.unwrap();
        b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
        assert_eq!(contexts(&b, "release").len(), 1);
        let stone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
        let mut nodes = [
            ("n0", vec![held("epilog", "j", 0, "n[0-1]", live())]),
            ("n1", vec![held("prolog", "j", 1, "n[0-1]", stone)]),
        ];
        if !other_first {
            nodes.reverse();
        }
        for (host, holds) in nodes {
            b.up(host, "b", holds);
        }
        let drained: Vec<&str> = b.store.drains.iter().map(|row| row.host.as_str()).collect();
        assert_eq!(drained, ["n1"], "{other_first}");
    }
}

/// Found by the simulator: where a lost store had run the epilog a mount was begun once more, and the epilog's tombstone passed for what follows it.
#[test]
fn nothing_that_prepares_a_rank_begins_where_a_node_told_of_its_epilog() {
    let stone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let stone = Held { ranks: IdSet::new(), hosts: Default::default(), ..held("epilog", "j", 0, "n0", stone) };
    let run = |nodes| Request::Run(request("check", "j", nodes, None));
    for (added, nodes) in [(true, None), (true, Some("n[0-1]")), (false, Some("n[0-1]"))] {
        let mut b = Bench::new();
        b.up("n0", "b", vec![stone.clone()]);
        let (n1, _) = b.up("n1", "b", vec![]);
        if added {
            b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        }
        let text = "epilog of job j attempt 0 covers rank 0, and nothing would follow check there: begin another attempt (--attempt 1)";
        assert_eq!(b.ask(run(nodes)).0, Err(Refusal::Conflict(text.to_owned())), "{added} {nodes:?}");
        if added {
            assert_eq!(starts(&b.run("check", "j", "n1")), [(n1, 1)]);
        }
    }
    // Its node told only later: what waits for it there, or was sent and never came, does not begin, whether or not the epilog waits behind it.
    for (finished, sent) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut b = Bench::new();
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        let n0 = sent.then(|| b.up("n0", "b", vec![]).0);
        b.run("check", "j", "n[0-1]");
        if let Some(session) = n0 {
            b.batch(vec![Input::Closed { session, why: String::new() }]);
        }
        if finished {
            b.ask(finish("j", None)).0.unwrap();
        }
        let (_, effects) = b.up("n0", "b", vec![stone.clone()]);
        assert_eq!(starts(&effects), [], "{finished} {sent}");
        assert_eq!(b.outcome(task("check", "j", 0)), Outcome::Cancelled { status: None });
    }
}

/// Found by the simulator: the store was lost, the same was asked for and cancelled before its node was there, and the job began anew.
#[test]
fn what_ended_without_a_start_and_ran_is_followed() {
    let t = task("prolog", "j", 0);
    let lost = |why| HeldState::Tombstone { outcome: Outcome::Lost { why }, past_ms: 1, reboot: Reboot::None };
    let states = [
        (HeldState::Ended, true),
        (HeldState::Live { phase: Phase::Lingering { processes: vec![] }, age_ms: 1 }, true),
        (HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 1, reboot: Reboot::None }, true),
        (HeldState::Unclaimed, false),
        // Its runner may be faster than the cancel.
        (HeldState::Live { phase: Phase::Starting, age_ms: 1 }, true),
        (lost(Loss::Vanished), true),
        (lost(Loss::Offline), false),
        (
            HeldState::Tombstone { outcome: Outcome::Cancelled { status: None }, past_ms: 1, reboot: Reboot::None },
            false,
        ),
    ];
    for (state, ran) in states {
        let mut b = Bench::new();
        b.run("prolog", "j", "n0");
        b.ask(Request::Cancel { which: which("j", None), why: "user".into() }).0.unwrap();
        assert_eq!(b.outcome(t), Outcome::Cancelled { status: None });
        b.up("n0", "b", vec![held("prolog", "j", 0, "n0", state.clone())]);
        let mut b = b.restart();
        b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
        let epilogs = b.store.actions.iter().filter(|row| row.name.as_str() == "epilog").count();
        assert_eq!(epilogs, usize::from(ran), "{state:?}");
    }
}

/// Found by the simulator: the store was lost, and the job was added on other hosts than its nodes tell of; then it began anew.
#[test]
fn what_ran_on_a_host_that_the_job_was_added_with_is_followed_though_its_hosts_contradict() {
    let mut b = Bench::new();
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", HeldState::Ended)]);
    assert!(b.store.actions.is_empty());
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    let epilogs = b.store.actions.iter().filter(|row| row.name.as_str() == "epilog").map(|row| row.ranks.to_string());
    assert_eq!(epilogs.collect::<Vec<_>>(), ["0"]);
}

/// The store was lost. What a node tells of itself is cleaned up after; of the other it had only heard.
#[test]
fn what_another_controller_had_begun_is_followed_where_its_node_tells() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", live())]);
    b.up("n1", "b", vec![]);
    assert_eq!(b.outcome(of(0, "prolog", 1)).word(), "lost");
    assert!(b.store.drains.is_empty(), "only n0 had said that it was there");
    let (_, effects) = b.ask(Request::Run(request("prolog", "j", Some("n[0-1]"), Some(1))));
    assert_eq!(begun(&effects), named("prolog", "1"), "n1 says that it never had it");
    assert_eq!(b.action("epilog", "j", 0).ranks.to_string(), "0");
    end(&mut b, n0, of(0, "prolog", 0), Outcome::Ok);
    assert_eq!(b.action("epilog", "j", 0).sent.to_string(), "0");
}

/// Found by a trial: a prolog whose directory held no executable file was `ok` on every node, and only `perilog logs` knew.
#[test]
fn an_ok_that_ran_nothing_says_so_to_everybody_and_for_good() {
    let skipped = || vec!["/etc/perilog/prolog.d/10-hello is skipped: not executable".to_owned()];
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-3]");
    let says = |b: &mut Bench, rank: u32, ended: Ended| {
        let task = task("prolog", "j", rank);
        b.says(n[rank as usize], FromAgent::Finished { task, ended: Box::new(ended) });
    };
    says(&mut b, 0, empty());
    says(&mut b, 1, Ended { skipped: skipped(), ..empty() });
    says(&mut b, 2, Ended { skipped: skipped(), ..ended(Outcome::Ok) });
    says(&mut b, 3, ended(Outcome::Ok));
    let results: Vec<String> =
        contexts(&b, "finish").iter().map(|of| of["result"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        results,
        [
            "ok (no script ran)",
            "ok (no script ran; /etc/perilog/prolog.d/10-hello is skipped: not executable)",
            "ok (/etc/perilog/prolog.d/10-hello is skipped: not executable)",
            "ok",
        ]
    );
    let remarks = |b: &mut Bench| {
        let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new("j").unwrap() }).0 else { panic!("no show") };
        view.attempts[0].actions[0]
            .remarks
            .iter()
            .map(|(text, ranks)| (text.starts_with("no script ran"), ranks.to_string()))
            .collect::<Vec<_>>()
    };
    let all = [(false, "2".to_owned()), (true, "0".to_owned()), (true, "1".to_owned())];
    assert_eq!(remarks(&mut b), all);
    // No rank has a row of its own for it: on ten thousand nodes it is one text.
    assert_eq!(b.store.ranks, []);
    let mut b = b.restart();
    assert_eq!(remarks(&mut b), all);
    // In ps, where an epilog that had nothing to do waits for the others.
    b.ask(finish("j", None)).0.unwrap();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.says(n0, FromAgent::Finished { task: task("epilog", "j", 0), ended: Box::new(empty()) });
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: true }).0 else { panic!("no ps") };
    let held = rows.iter().find(|row| row.state == "held").map(|row| row.why.clone()).unwrap_or_default();
    assert!(held.starts_with("done here (no script ran); given back together with n[1-3] ("), "{held}");
}
