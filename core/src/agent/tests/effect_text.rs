//! Writes effects as short texts for the tables of the tests. A task is written `job.attempt.action.rank`, a local task
//! (`Exec`) as `local:job.attempt.action.rank`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::agent::io::{Effect, ExecReply, Level};
use crate::ids::{self, TaskId};
use crate::message::{FromAgent, Held, HeldState, Phase};
use crate::task::{Claim, Reboot};

use super::values::*;

/// The short names of all tasks that tests may use: by task id, and by stem.
static NAMES: LazyLock<(HashMap<TaskId, String>, HashMap<String, String>)> = LazyLock::new(|| {
    let (mut by_id, mut by_stem) = (HashMap::new(), HashMap::new());
    for j in ["h", "j", "k", "l", "m"] {
        for a in ["prolog", "epilog", "sweep", "mount", "nothing"] {
            for (attempt, rank) in (0..5).flat_map(|attempt| (0..5).map(move |rank| (attempt, rank))) {
                let name = format!("{j}.{attempt}.{a}.{rank}");
                for (id, name) in
                    [(task(j, attempt, a, rank), name.clone()), (local(j, attempt, a, rank), format!("local:{name}"))]
                {
                    by_stem.insert(ids::stem(&action(a), &job(j), id), name.clone());
                    by_id.insert(id, name);
                }
            }
        }
    }
    (by_id, by_stem)
});

pub(super) fn name(task: TaskId) -> String {
    NAMES.0.get(&task).cloned().unwrap_or_else(|| task.to_string())
}

fn of_stem(stem: &str) -> String {
    NAMES.1.get(stem).cloned().unwrap_or_else(|| stem.to_owned())
}

pub(super) fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::WriteIntent { stem, .. } => format!("write-intent {}", of_stem(stem)),
        Effect::StartUnit { stem, .. } => format!("start-unit {}", of_stem(stem)),
        Effect::Watch { stem, .. } => format!("watch {}", of_stem(stem)),
        Effect::WatchEmpty { task, .. } => format!("watch-empty {}", name(*task)),
        Effect::Inspect { stem, .. } => format!("inspect {}", of_stem(stem)),
        Effect::TakeClaim { stem, claim, .. } => format!("take-claim {} {}", of_stem(stem), claim_text(claim)),
        Effect::SignalRunner { stem, signal } => format!("signal {} {signal}", of_stem(stem)),
        Effect::MarkBootExpected { stem } => format!("mark-boot-expected {}", of_stem(stem)),
        Effect::KillLingering { stem } => format!("kill-lingering {}", of_stem(stem)),
        Effect::WriteOutcome { stem, ended, .. } => format!("write-outcome {} {}", of_stem(stem), ended.outcome),
        Effect::Unload { stem } => format!("unload {}", of_stem(stem)),
        Effect::WriteTombstone { stem, tombstone } => format!(
            "write-tombstone {} \
                                                               {}",
            of_stem(stem),
            tombstone.outcome
        ),
        Effect::RemoveTombstone { stem, .. } => format!("remove-tombstone {}", of_stem(stem)),
        Effect::WriteEpoch { accepted } if accepted.commit == 0 => format!("write-epoch {}", accepted.epoch.number),
        Effect::WriteEpoch { accepted } => format!("write-epoch {} commit {}", accepted.epoch.number, accepted.commit),
        Effect::Send(message) => message_text(message),
        Effect::Hang { why } => format!("hang: {why}"),
        Effect::RedialWindow { ms } => format!("redial {ms}"),
        Effect::WakeAt { boot_ms } => format!("wake {boot_ms}"),
        Effect::ExecReply { caller, reply } => format!("reply {caller} {}", reply_text(reply)),
        Effect::StatusReply { caller, tasks } => format!("status {caller} {}", tasks.len()),
        Effect::Answer { question, tasks, .. } => format!("answer {question} {}", tasks.len()),
        Effect::CallHook(notifying) => {
            let received = if notifying.env["PERILOG_END_RECEIVED"].is_empty() { "" } else { ", end received" };
            format!("call {} {} {}{received}", of_stem(&notifying.stem), notifying.program, notifying.event)
        }
        Effect::Note { level, text, .. } => match level {
            Level::Info => format!("info: {text}"),
            Level::Warning => format!("warning: {text}"),
            Level::Error => format!("error: {text}"),
        },
    }
}

fn claim_text(claim: &Claim) -> String {
    match claim {
        Claim::Runner(_) => "for its runner".to_owned(),
        Claim::Cancelled => "cancelled".to_owned(),
        Claim::Withdrawn(outcome) => outcome.to_string(),
    }
}

fn message_text(message: &FromAgent) -> String {
    match message {
        FromAgent::Hello(hello) => {
            let held: Vec<String> = hello.tasks.iter().map(held_text).collect();
            let more = if hello.more { " more" } else { "" };
            format!("hello {} [{}]{more}", hello.link, held.join(", "))
        }
        FromAgent::EpochRefused { seen } => format!("epoch-refused {}", seen.number),
        FromAgent::Accepted { task, .. } => format!("accepted {}", name(*task)),
        FromAgent::PhaseChanged { task, phase, .. } => format!("moved {} {}", name(*task), phase_text(phase)),
        FromAgent::Milestone { task, name: milestone } => format!("milestone {} {milestone}", name(*task)),
        FromAgent::Finished { task, ended } => {
            let excused = if ended.excused { "excused, " } else { "" };
            format!("finished {} {excused}{}", name(*task), ended.outcome)
        }
        FromAgent::ExpectsBoot { task, within_ms, ended } => {
            let within = within_ms.map_or("any time".to_owned(), |ms| ms.to_string());
            format!("expects-boot {} {} within {within}", name(*task), ended.outcome)
        }
        FromAgent::Probed { nonce } => format!("probed {nonce}"),
        FromAgent::Answer { question, .. } => format!("answer {question}"),
        FromAgent::Unsupported { message } => format!("unsupported {message}"),
    }
}

pub(super) fn held_text(held: &Held) -> String {
    let state = match &held.state {
        HeldState::Unclaimed => "unclaimed".to_owned(),
        HeldState::Live { phase, .. } => format!("live {}", phase_text(phase)),
        HeldState::Ended => "ended".to_owned(),
        HeldState::Tombstone { outcome, reboot: Reboot::None, .. } => format!("tombstone {outcome}"),
        HeldState::Tombstone { outcome, reboot, .. } => format!("tombstone {outcome}, boot {reboot:?}"),
    };
    format!("{} {state}", name(held.task))
}

fn phase_text(phase: &Phase) -> String {
    match phase {
        Phase::Waiting { why } => format!("waiting for {why}"),
        Phase::Starting => "starting".to_owned(),
        Phase::Running { script, index, of, progress } => {
            let progress = progress.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("running {script} {index}/{of}{progress}")
        }
        Phase::Overdue { script, limit_ms, doing } => format!("overdue {script} {limit_ms} {doing}"),
        Phase::Lingering { processes } => format!("lingering {}", processes.len()),
    }
}

fn reply_text(reply: &ExecReply) -> String {
    match reply {
        ExecReply::Attached { attached: false, .. } => "started".to_owned(),
        ExecReply::Attached { .. } => "attached".to_owned(),
        ExecReply::Phase(phase) => phase_text(phase),
        ExecReply::Milestone(name) => format!("milestone {name}"),
        ExecReply::Ended(ended) => format!("ended {}", ended.outcome),
        ExecReply::EndedBefore(outcome) => format!("ended before {outcome}"),
        ExecReply::Refused(why) => format!("refused: {why}"),
        ExecReply::Cancelling => "cancelling".to_owned(),
        ExecReply::Noted => "noted".to_owned(),
    }
}
