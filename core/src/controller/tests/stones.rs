//! What stays of a task on its node tells of boots.

use super::boots::{LIMIT, accepted_in, announced, closed, over, t, wait_in_vain};
use super::*;
use crate::outcome::Loss;

fn stone(outcome: Outcome, reboot: Reboot) -> Held {
    held("prolog", "j", 0, "n[0-1]", HeldState::Tombstone { outcome, past_ms: 0, reboot })
}

/// Found by the simulator: another controller had acknowledged the end, and by its tombstone the prolog was ok before its boot.
#[test]
fn a_tombstone_waits_for_the_boot_as_the_end_does_that_it_stands_for() {
    let lost = || Outcome::Lost { why: Loss::Rebooted };
    let bare = "told by the node's tombstone; details were acknowledged before";
    // What was told of the boot before, and what the tombstone tells -> the end, and what is kept of it. Its outcome is the last word, details have
    // only those that were told.
    for (told, stands, note) in [
        (None, Outcome::Ok, bare),
        (None, Outcome::Tolerable, bare),
        (Some(Outcome::Ok), Outcome::Ok, "steps so far"),
        (Some(Outcome::Ok), Outcome::Tolerable, "steps so far"),
        (Some(exit(3)), Outcome::Ok, "steps so far"),
    ] {
        for issued in ["b1", "b0"] {
            let (mut b, n0) = match &told {
                Some(outcome) => announced(outcome.clone(), Some(LIMIT)),
                // Another controller had begun it in this boot.
                None => accepted_in(issued),
            };
            b.batch(vec![closed(n0)]);
            let (n0, _) = b.up("n0", "b1", vec![stone(stands.clone(), Reboot::Expected)]);
            assert!(b.action("prolog", "j", 0).accepted.contains(0), "{told:?} {stands}");
            b.batch(vec![closed(n0)]);
            b = b.restart();
            b.up("n0", "b2", vec![]);
            assert_eq!(b.outcome(t()), stands, "{told:?}");
            let row = b.store.ranks.iter().find(|row| row.task == t()).unwrap();
            assert_eq!(row.ended.note, Some(format!("{note}; the boot that it expected is its end")));
        }
    }
    // A soft reboot has left it: its end, in the boot that came; and one that none was announced for is one that was prepared before.
    for (reboot, expect) in [(Reboot::Come, Outcome::Ok), (Reboot::None, lost())] {
        let (mut b, n0) = accepted_in("b1");
        b.batch(vec![closed(n0)]);
        let (n0, _) = b.up("n0", "b2", vec![stone(Outcome::Ok, reboot)]);
        assert_eq!(b.outcome(t()), expect);
        b.batch(vec![closed(n0)]);
        b.up("n0", "b3", vec![]);
        assert_eq!(b.outcome(t()), lost());
    }
    // Nobody has to wait for it who has cancelled it.
    let (mut b, n0) = accepted_in("b1");
    b.batch(vec![closed(n0)]);
    b.ask(Request::Cancel { which: which("j", None), why: "w".into() }).0.unwrap();
    b.up("n0", "b1", vec![stone(Outcome::Ok, Reboot::Expected)]);
    assert_eq!(b.outcome(t()), Outcome::Cancelled { status: None });
}

/// Found by a review: a store that was lost had run it before a soft reboot, which undid it, and only its node knew.
#[test]
fn what_a_soft_reboot_undid_is_no_success_whoever_had_begun_it() {
    for (action, stands) in [("prolog", false), ("epilog", true)] {
        let is_ok = |b: &Bench| {
            // An ok of which nothing else is known has no row.
            b.action(action, "j", 0).ok.contains(0)
                || b.outcome(task(action, "j", 0)) != Outcome::Lost { why: Loss::Rebooted }
        };
        let state = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::Since };
        let (stone, t) = (held(action, "j", 0, "n0", state), task(action, "j", 0));
        // Asked for when the node had told of it, which answers; told of by the other node, and settled by what this one had told.
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1+1", vec![stone.clone()]);
        b.run(action, "j", "n0");
        let ended = Ended::of_tombstone(Outcome::Ok, Reboot::Since, 1);
        b.says(n0, FromAgent::Finished { task: t, ended: Box::new(ended) });
        assert_eq!(is_ok(&b), stands, "{action}");
        let mut b = Bench::new();
        b.up("n0", "b1+1", vec![stone]);
        let other = held(action, "j", 1, "n[0-1]", live());
        b.up("n1", "b1", vec![other]);
        assert_eq!(is_ok(&b), stands, "{action}");
    }
}

/// Found by the simulator: the limit was its node's own, and nobody came for it.
#[test]
fn a_boot_that_a_tombstone_tells_of_has_the_limit_that_its_node_tells() {
    let timeout = Outcome::Timeout { status: None };
    let stone = || Held { limit_ms: Some(LIMIT), ..stone(Outcome::Ok, Reboot::Expected) };
    // Known when the node tells of it; asked for when it had told.
    for (known, away, expect) in [
        (true, false, timeout.clone()),
        (true, true, Outcome::Lost { why: Loss::Unreachable }),
        (false, false, timeout),
    ] {
        let (mut b, n0) = if known { accepted_in("b1") } else { (Bench::new(), SessionId(0)) };
        if known {
            b.batch(vec![closed(n0)]);
        }
        let (n0, _) = b.up("n0", "b1", vec![stone()]);
        if !known {
            b.run("prolog", "j", "n0");
            // As the node answers that: with its limit first.
            let ended = Box::new(Ended::of_tombstone(Outcome::Ok, Reboot::Expected, 1));
            b.says(n0, FromAgent::ExpectsBoot { task: t(), within_ms: Some(LIMIT), ended });
            b.says(n0, over(Outcome::Ok));
        }
        if away {
            b.batch(vec![closed(n0)]);
        }
        wait_in_vain(&mut b);
        assert_eq!(b.outcome(t()), expect, "{known} {away}");
    }
}

/// Found by a review: the controller knew of the boot that a script had announced, and saw its node only after another one.
#[test]
fn of_soft_reboots_it_is_known_how_many_came() {
    for (boot, outcome, expect) in [
        ("b1+1", Outcome::Ok, Outcome::Ok),
        ("b1+2", Outcome::Ok, Outcome::Lost { why: Loss::Rebooted }),
        ("b1+2", exit(3), exit(3)),
        // Hard ones may have been any number.
        ("b3", Outcome::Ok, Outcome::Ok),
    ] {
        let (mut b, n0) = announced(outcome, Some(LIMIT));
        b.batch(vec![closed(n0)]);
        b.up("n0", boot, vec![]);
        assert_eq!(b.outcome(t()), expect, "{boot}");
    }
}
