use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input, Policy};
use crate::agent::session::MAX_PENDING;
use crate::ids::Epoch;
use crate::message::{Ask, FromAgent, MAX_ACTIONS, ToAgent};
use crate::task::Report;

fn up(counter: u64) -> Input {
    Input::LinkUp { counter }
}

fn probe() -> Input {
    message(ToAgent::Probe { nonce: 5 })
}

#[test]
fn hello_waits_until_everything_is_found() {
    let mut bed = Bed::cold();
    bed.check(up(7), &[]);
    bed.check(joined(vec![], vec![]), &["hello 7 []"]);
    bed.check(joined(vec![], vec![]), &[]);
}

#[test]
fn an_epoch_is_on_disk_before_its_session_is_accepted() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    let id = task("j", 1, "prolog", 0);
    bed.checks([
        (up(1), &["hello 1 []"]),
        (welcome(3), &["write-epoch 3"]),
        (start_message("j", 1, "prolog", 0), &[]),
        (probe(), &[]),
        (epoch_written(3), &["redial 1000", "write-intent j.1.prolog.0", "probed 5"]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
    ]);
}

#[test]
fn the_epoch_that_was_accepted_last_is_not_written_again() {
    let mut bed = Bed::cold();
    let accepted = Some(accepted(3));
    bed.check(Input::Joined { found: vec![], tombstones: vec![], accepted }, &[]);
    bed.check(up(1), &["hello 1 []"]);
    bed.check(welcome(3), &["redial 1000"]);
    bed.check(probe(), &["probed 5"]);
}

#[test]
fn a_lower_or_rival_epoch_is_refused() {
    let welcome_of = |number, nonce| {
        message(ToAgent::Welcome { epoch: Epoch { number, nonce }, cluster: cluster(), redial_window_ms: 1, commit: 0 })
    };
    for (number, nonce) in [(2, 2), (3, 4)] {
        let mut bed = Bed::cold();
        let accepted = Some(accepted(3));
        bed.check(Input::Joined { found: vec![], tombstones: vec![], accepted }, &[]);
        bed.check(up(1), &["hello 1 []"]);
        let seen = accepted.map(|accepted| accepted.epoch).unwrap();
        // The command is wrong while another controller runs.
        let why = format!(
            "its epoch {number} (nonce {nonce:x}) is not above the epoch 3 (nonce {:x}) that this host has accepted \
             before. If no other controller runs, run on this one's host: perilog controller recover --take-over*",
            seen.nonce
        );
        let (error, hang) = (format!("error: the controller was rejected: {why}"), format!("hang: {why}"));
        bed.check(welcome_of(number, nonce), &["epoch-refused 3", &error, &hang]);
        // The machine ignores messages until the next session.
        bed.check(start_message("j", 1, "prolog", 0), &[]);
        bed.check(welcome(3), &[]);
        assert_eq!(bed.machine.status_line(), "turned away; idle");
        bed.check(Input::LinkDown, &[]);
        bed.check(up(2), &["hello 2 []"]);
        bed.check(welcome(3), &["redial 1000"]);
    }
}

/// Regression test: one Welcome of a thief, with a huge epoch, shut the true controller out until the node's next boot.
#[test]
fn an_epoch_that_no_controller_can_have_is_not_accepted() {
    let now = 1_800_000_000_000;
    let (lost, right) = (Epoch::highest_acceptable(0), Epoch::highest_acceptable(now));
    for (known, wall_ms, number, accepts) in [
        (Some(accepted(3)), now, right, true),
        (Some(accepted(3)), now, right + 1, false),
        (Some(accepted(3)), now + 1000, right + 1, true),
        (Some(accepted(3)), now, u64::MAX, false),
        (None, 0, lost, true),
        (None, 0, lost + 1, false),
    ] {
        let mut bed = Bed::cold();
        bed.now.wall_ms = wall_ms;
        bed.check(Input::Joined { found: vec![], tombstones: vec![], accepted: known }, &[]);
        bed.check(up(1), &["hello 1 []"]);
        let wrote = format!("write-epoch {number}");
        let refused = ["error: the controller was rejected: *", "hang: its epoch*"];
        let accepted = [wrote.as_str()];
        bed.check(welcome(number), if accepts { &accepted } else { &refused });
        if !accepts {
            bed.check(Input::LinkDown, &[]);
            bed.check(up(2), &["hello 2 []"]);
            bed.check(welcome(4), &["write-epoch 4"]);
        }
    }
    // The agent keeps accepting its controller when its own clock is set back.
    let mut bed = Bed::cold();
    bed.check(Input::Joined { found: vec![], tombstones: vec![], accepted: Some(accepted(right)) }, &[]);
    bed.check(up(1), &["hello 1 []"]);
    bed.check(welcome(right), &["redial 1000"]);
}

#[test]
fn an_epoch_that_is_being_written_counts_as_seen() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.checks([
        (up(1), &["hello 1 []"]),
        (welcome(3), &["write-epoch 3"]),
        (Input::LinkDown, &[]),
        (up(2), &["hello 2 []"]),
        (welcome(2), &["epoch-refused 3", "error: *", "hang: *"]),
        (up(3), &["hello 3 []"]),
        // The same epoch needs no second write.
        (welcome(3), &[]),
        (probe(), &[]),
        (up(4), &["hello 4 []"]),
        (welcome(5), &["write-epoch 5"]),
        (epoch_written(3), &[]),
        (probe(), &[]),
        (epoch_written(5), &["redial 1000", "probed 5"]),
    ]);
}

#[test]
fn an_epoch_that_cannot_be_written_is_not_accepted() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    let full = || Input::EpochWritten { epoch: epoch(3), result: Err("full".to_owned()) };
    bed.checks([
        (up(1), &["hello 1 []"]),
        (welcome(3), &["write-epoch 3"]),
        (start_message("j", 1, "prolog", 0), &[]),
        (full(), &["hang: the controller's epoch cannot be recorded on this host: full"]),
        (up(2), &["hello 2 []"]),
        (welcome(3), &["write-epoch 3"]),
        (epoch_written(3), &["redial 1000"]),
    ]);
}

#[test]
fn what_waits_for_an_epoch_is_not_without_number() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(up(1), &["hello 1 []"]);
    bed.check(welcome(3), &["write-epoch 3"]);
    for _ in 0..MAX_PENDING {
        bed.check(probe(), &[]);
    }
    bed.check(probe(), &["hang: the controller sent more than 256 messages before this host had its epoch on disk"]);
    bed.check(epoch_written(3), &[]);
    bed.check(up(2), &["hello 2 []"]);
    bed.check(welcome(3), &["redial 1000"]);
}

#[test]
fn a_controller_that_speaks_before_its_welcome_is_hung_up_on() {
    let orders = [
        start_message("j", 1, "prolog", 0),
        cancel("j", 1, "prolog", 0),
        ack(task("j", 1, "prolog", 0)),
        begin(task("j", 1, "prolog", 0)),
        forget(task("j", 1, "prolog", 0)),
        probe(),
    ];
    for order in orders {
        let mut bed = Bed::cold();
        bed.check(up(1), &[]);
        bed.check(joined(vec![], vec![]), &["hello 1 []"]);
        bed.check(order, &["hang: the controller broke the protocol: it sent a message before its Welcome"]);
        bed.check(welcome(1), &[]);
    }
    // Before Hello even a Welcome is too early; without a link the machine ignores all messages.
    let mut bed = Bed::cold();
    bed.check(welcome(1), &[]);
    bed.check(up(1), &[]);
    bed.check(welcome(1), &["hang: the controller broke the protocol: it sent a message before its Welcome"]);
    bed.check(joined(vec![], vec![]), &[]);
}

#[test]
fn a_second_welcome_ends_the_session() {
    let mut bed = Bed::up();
    bed.check(welcome(1), &["hang: the controller broke the protocol: it sent Welcome twice"]);
}

#[test]
fn a_host_that_is_turned_away_says_so_and_hangs_up() {
    let turned_away = || message(ToAgent::TurnedAway { why: "cloned".to_owned() });
    let expect: &[&str] = &["warning: the controller turned this host away: cloned", "hang: turned away: cloned"];
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(up(1), &["hello 1 []"]);
    bed.check(turned_away(), expect);
    bed.check(up(2), &["hello 2 []"]);
    bed.check(welcome(1), &["write-epoch 1"]);
    bed.check(turned_away(), expect);
    bed.check(epoch_written(1), &[]);
    let mut bed = Bed::up();
    bed.check(turned_away(), expect);
}

#[test]
fn an_unknown_message_is_noted_once_a_session() {
    let mut bed = Bed::up();
    let unsupported = || message(ToAgent::Unsupported { message: 99 });
    bed.check(unsupported(), &["warning: the controller does not know a message (type 99) that this agent sends*"]);
    bed.check(unsupported(), &[]);
    bed.reconnect("hello 2 []", &["redial 1000"]);
    bed.check(unsupported(), &["warning: the controller does not know a message (type 99)*"]);
}

#[test]
fn questions_are_handed_on_with_the_tasks_they_are_about() {
    let mut bed = Bed::up();
    bed.live("j", 1, "prolog", 0);
    bed.live("k", 1, "prolog", 0);
    let logs = Ask::Logs { job: job("k"), action: None, attempt: None, rank: None, lines: 10 };
    bed.check(message(ToAgent::Ask { question: 1, ask: logs }), &["answer 1 1"]);
    bed.check(message(ToAgent::Ask { question: 2, ask: Ask::Status }), &["answer 2 2"]);
}

#[test]
fn what_happens_between_hello_and_welcome_is_reported_after_it() {
    let mut bed = Bed::up();
    let running = bed.claimed("j", 1, "prolog", 0);
    let ending = bed.claimed("k", 1, "prolog", 0);
    let recording = task("l", 1, "prolog", 0);
    bed.feed(start_message("l", 1, "prolog", 0));
    bed.check(Input::LinkDown, &[]);
    let effects = bed.feed(up(2));
    let [Effect::Send(FromAgent::Hello(hello))] = &effects[..] else { unreachable!() };
    // Hello omits a task whose intent is not on disk.
    assert_eq!(hello.tasks.len(), 2);
    let mut seen = seen_running(&intent("j", 1, "prolog", 0), 1);
    seen.steps = vec![begin_step(0, "a", 1), report_step(Report::Milestone { name: "half".to_owned() })];
    bed.feed(task_changed(running));
    bed.check(inspected(running, seen), &[]);
    bed.feed(task_changed(ending));
    bed.check(inspected(ending, seen_exited(&intent("k", 1, "prolog", 0), 1, 0)), &["write-outcome k.1.prolog.0 ok"]);
    bed.check(outcome_written(ending), &["unload k.1.prolog.0"]);
    bed.check(intent_written(recording), &["start-unit l.1.prolog.0"]);
    bed.check(
        welcome(1),
        &[
            "redial 1000",
            "accepted j.1.prolog.0",
            "moved j.1.prolog.0 running a 1/1",
            "milestone j.1.prolog.0 half",
            "finished k.1.prolog.0 ok",
            "accepted l.1.prolog.0",
            "moved l.1.prolog.0 starting",
        ],
    );
    // The agent reports an event once; milestones once a session, because a frame of the last session may be lost.
    bed.reconnect_any(&["redial 1000", "milestone j.1.prolog.0 half", "finished k.1.prolog.0 ok"]);
}

#[test]
fn hello_shows_every_task_in_its_state() {
    let mut bed = Bed::cold();
    let unclaimed = found(&intent("j", 1, "prolog", 0), seen_nothing());
    let live = found(&intent("k", 1, "prolog", 0), seen_running(&intent("k", 1, "prolog", 0), 1));
    let mut ended = found(&intent("l", 1, "prolog", 0), seen_nothing());
    ended.ended = Some(crate::task::Ended::bare(crate::outcome::Outcome::Ok, 0));
    let tombstone = tombstone(&intent("l", 2, "prolog", 0), crate::outcome::Outcome::Ok);
    bed.feed(joined(vec![unclaimed, live, ended], vec![tombstone]));
    let effects = bed.feed(up(1));
    let [Effect::Send(FromAgent::Hello(hello))] = &effects[..] else { unreachable!() };
    let mut held: Vec<String> = hello.tasks.iter().map(super::effect_text::held_text).collect();
    held.sort();
    assert_eq!(
        held,
        ["j.1.prolog.0 unclaimed", "k.1.prolog.0 live starting", "l.1.prolog.0 ended", "l.2.prolog.0 tombstone ok"]
    );
    for held in &hello.tasks {
        assert_eq!(held.userid.is_none(), held.attempt == crate::ids::Attempt::from_number(2));
    }
    assert_eq!(
        (hello.host.as_str(), hello.machine.as_str(), hello.boot.as_str(), hello.version.as_str()),
        ("n0", "m0", BOOT, "0.1.0")
    );
}

#[test]
fn hello_comes_in_pages_that_fit_a_frame() {
    let pages = |tombstones: Vec<crate::task::Tombstone>| -> Vec<(usize, bool)> {
        let mut bed = Bed::cold();
        bed.feed(joined(vec![], tombstones));
        let effects = bed.feed(up(1));
        let page = |effect: &Effect| match effect {
            Effect::Send(FromAgent::Hello(hello)) => Some((hello.tasks.len(), hello.more)),
            _ => None,
        };
        effects.iter().filter_map(page).collect()
    };
    let tombstones =
        |n: u32| (0..n).map(|rank| tombstone(&intent("j", 1, "prolog", rank), crate::outcome::Outcome::Ok)).collect();
    assert_eq!(pages(tombstones(0)), [(0, false)]);
    assert_eq!(pages(tombstones(512)), [(512, false)]);
    assert_eq!(pages(tombstones(1030)), [(512, true), (512, true), (6, false)]);
}

/// The controller knows a node's actions from its last Hello, so an agent whose actions change in a reload says Hello
/// again.
#[test]
fn a_node_that_configures_other_actions_says_hello_anew() {
    let names = |effects: Vec<Effect>| -> Option<Vec<String>> {
        let hello = effects.into_iter().find_map(|effect| match effect {
            Effect::Send(FromAgent::Hello(hello)) => Some(hello),
            _ => None,
        });
        hello?.actions.map(|names| names.iter().map(ToString::to_string).collect())
    };
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    assert_eq!(names(bed.feed(up(1))).unwrap(), ["epilog", "mount", "prolog", "sweep"]);
    bed.feed(welcome(1));
    bed.feed(epoch_written(1));
    // The same names: the controller needs no news.
    bed.check(Input::Policy(Policy { serialize_host: true, ..node().policy }), &[]);
    let mut fewer = node().policy;
    fewer.actions.remove(&action("mount"));
    bed.check(Input::Policy(fewer.clone()), &["hang: the configured actions of this node have changed*"]);
    bed.check(Input::LinkDown, &[]);
    assert_eq!(names(bed.feed(up(2))).unwrap(), ["epilog", "prolog", "sweep"]);
    // Without a session the next Hello has the actions anyway.
    bed.check(Input::LinkDown, &[]);
    bed.check(Input::Policy(node().policy), &[]);
    // More actions than a Hello takes: the Hello says nothing, as one of an older agent.
    let plan = fewer.actions[&action("prolog")].clone();
    let many = (0..=MAX_ACTIONS).map(|n| (action(&format!("a{n}")), plan.clone())).collect();
    bed.check(Input::Policy(Policy { actions: many, ..fewer }), &[]);
    assert_eq!(names(bed.feed(up(3))), None);
}
