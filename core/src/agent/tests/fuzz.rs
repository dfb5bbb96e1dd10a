//! Random inputs, also such that no daemon would hand in: the machine may neither panic nor grow. Histories in which a
//! world answers the machine consistently are the simulator's (`sim/`).

use proptest::collection::vec;
use proptest::prelude::*;

use super::values::*;
use crate::agent::io::{Effect, Exec, HookEvent, Input, Now, Seen, StartReply};
use crate::agent::machine::Machine;
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::Hook;

/// The tasks of every random history, as (job, attempt, action, rank). The last two are local tasks (`Exec`).
const TASKS: [(&str, u64, &str, u32); 8] = [
    ("j", 1, "prolog", 0),
    ("j", 1, "prolog", 1),
    ("j", 1, "epilog", 0),
    ("j", 2, "prolog", 0),
    ("k", 1, "prolog", 0),
    ("k", 1, "sweep", 0),
    ("j", 1, "prolog", 2),
    ("l", 1, "epilog", 0),
];

/// A step of a history as three random numbers: they choose the event, the task or other object, and the variant.
type Step = (u8, u8, u8);

/// Returns the configuration of the property tests: at least 400 cases each, more if the environment variable
/// `PROPTEST_CASES` says so.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(400), failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_that_is_put_in_makes_it_panic_or_grow(history in vec(any::<Step>(), 1..300)) {
        let mut machine = Machine::new(node());
        let mut now = Now::default();
        let mut written = std::collections::BTreeSet::new();
        for step in history {
            let input = anything(step);
            if let Input::OutcomeWritten { task, result: Ok(()) } = &input {
                written.insert(*task);
            }
            if let Input::Joined { .. } = &input {
                written.extend(TASKS.iter().flat_map(|(j, n, a, rank)| [task(j, *n, a, *rank),
                    local(j, *n, a, *rank)]));
            }
            now.boot_ms = now.boot_ms.saturating_add(u64::from(step.2));
            let effects = machine.handle(input, now);
            prop_assert!(effects.len() < 100);
            for effect in effects {
                if let Effect::Send(crate::message::FromAgent::Finished { task, ended }) = effect {
                    let bare = matches!(ended.outcome,
                                        Outcome::Refused { .. } | Outcome::Cancelled { .. } | Outcome::Lost { .. });
                    prop_assert!(bare || written.contains(&task));
                }
            }
            let kept = machine.tasks.len() + machine.tombstones.len();
            prop_assert!(kept <= node().policy.max_tombstones + TASKS.len() * 2);
            prop_assert!(machine.stems.len() <= machine.tasks.len() + machine.tombstones.len());
            prop_assert!(machine.kept_failed.len() <= node().policy.keep_failed);
        }
    }
}

/// Makes an arbitrary input, also one that no daemon would hand in.
fn anything((what, which, how): Step) -> Input {
    let (j, attempt, a, rank) = TASKS[usize::from(which) % TASKS.len()];
    let own = which % 8 >= 6;
    let id = if own { local(j, attempt, a, rank) } else { task(j, attempt, a, rank) };
    let intent = if own { local_intent(j, attempt, a, rank) } else { intent(j, attempt, a, rank) };
    let result = if how % 4 == 0 { Err("no".to_owned()) } else { Ok(()) };
    let seen = |how: u8| match how % 8 {
        0 => seen_nothing(),
        1 => seen_running(&intent, how),
        2 => seen_exited(&intent, how, 0),
        3 => seen_exited(&intent, how, 3),
        4 => Seen { processes: processes(&[1, u32::from(how)]), ..seen_exited(&intent, how, 0) },
        5 => Seen { claim: None, ..seen_exited(&intent, how, 0) },
        6 => Seen { unit_ids: None, claim: None, ..seen_running(&intent, how) },
        _ => Seen { claim: Some(claim(how)), ..seen_nothing() },
    };
    match what % 24 {
        0 => {
            let mut found = found(&intent, seen(how));
            if how & 16 != 0 {
                found.intent = None;
            }
            if how & 32 != 0 {
                found.ended = Some(crate::task::Ended::bare(Outcome::Ok, 0));
            }
            let tombstones = if how & 64 != 0 { vec![tombstone(&intent, Outcome::Ok)] } else { vec![] };
            Input::Joined {
                found: vec![found.clone(), found],
                tombstones,
                accepted: (how & 128 != 0).then(|| accepted(2)),
            }
        }
        1 => Input::BusLost,
        2 => Input::LinkUp { counter: u64::from(how) },
        3 => Input::LinkDown,
        4 => welcome(u64::from(how % 4)),
        5 => Input::EpochWritten { epoch: epoch(u64::from(how % 4)), result },
        6 | 7 => start_message(j, attempt, a, rank),
        8 => cancel(j, attempt, a, rank),
        9 => ack(id),
        10 => forget(id),
        11 => begin(id),
        12 => message(ToAgent::Signal { task: id, signal: how }),
        13 => Input::IntentWritten { task: id, result },
        14 => {
            let text = "text".to_owned();
            let reply =
                [StartReply::Queued, StartReply::Exists, StartReply::Rejected(text.clone()), StartReply::Unknown(text)];
            start_reply(id, reply[usize::from(how) % 4].clone())
        }
        15 => Input::TaskChanged { task: id },
        16 | 17 => Input::Inspected { task: id, seen: result.map(|()| seen(how / 8)) },
        18 => Input::ClaimTaken { task: id, result: result.map(|()| how % 2 == 0) },
        19 => Input::OutcomeWritten { task: id, result },
        20 => Input::TombstoneWritten { task: id, result },
        21 => Input::Tick,
        22 => Input::Exec {
            caller: u64::from(how),
            exec: Exec { hook: hook(how), daemon_died: how.is_multiple_of(5), ..exec(j, attempt, a, rank) },
        },
        _ => match how % 5 {
            3 => Input::DaemonDied { caller: u64::from(how), task: id },
            4 => Input::HookCalled {
                task: id,
                event: if how % 2 == 0 { HookEvent::Begun } else { HookEvent::Ended },
                result,
            },
            0 => Input::Hangup { caller: u64::from(how) },
            1 => Input::CancelLocal { caller: u64::from(how), task: id },
            _ => Input::Policy(node().policy),
        },
    }
}

/// Returns the hook of a task, with a program in `orphaned` if `how` is even.
fn hook(how: u8) -> Hook {
    Hook { orphan_program: how.is_multiple_of(2).then(|| "/p".to_owned()), instance: None, note: None }
}
