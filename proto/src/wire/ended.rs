//! The end of a task, with all details, on the wire.

use perilog_core::judge::{MAX_LISTED, MAX_TAILS};
use perilog_core::task;

use super::outcome::{Outcome, Status, outcome};
use crate::bounds::{LISTED_TEXT, TEXT, clip};
use crate::error::{At, Fault};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ended {
    #[prost(message, optional, tag = "1")]
    pub outcome: Option<Outcome>,
    /// Time of the begin of the first script, in milliseconds since 1970; `None`: no script is known to have begun.
    #[prost(uint64, optional, tag = "2")]
    pub began_ms: Option<u64>,
    /// Time of the task's end, in milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub ended_ms: u64,
    #[prost(uint64, optional, tag = "4")]
    pub elapsed_ms: Option<u64>,
    #[prost(message, repeated, tag = "5")]
    pub steps: Vec<Step>,
    #[prost(message, repeated, tag = "6")]
    pub checks: Vec<Check>,
    #[prost(string, repeated, tag = "7")]
    pub milestones: Vec<String>,
    #[prost(string, optional, tag = "8")]
    pub user_message: Option<String>,
    #[prost(bool, tag = "9")]
    pub expect_reboot: bool,
    #[prost(message, repeated, tag = "10")]
    pub lingering: Vec<Process>,
    #[prost(message, repeated, tag = "11")]
    pub tails: Vec<Tail>,
    #[prost(string, optional, tag = "12")]
    pub forensics: Option<String>,
    #[prost(uint64, optional, tag = "13")]
    pub cpu_ns: Option<u64>,
    /// Peak memory use of the task's unit, in bytes.
    #[prost(uint64, optional, tag = "14")]
    pub memory_peak: Option<u64>,
    #[prost(uint32, tag = "15")]
    pub dropped_env: u32,
    #[prost(string, optional, tag = "16")]
    pub note: Option<String>,
    #[prost(bool, tag = "17")]
    pub booted: bool,
    /// Script files that the runner skipped. An older agent omits this field and `empty`.
    #[prost(string, repeated, tag = "18")]
    pub skipped: Vec<String>,
    #[prost(bool, tag = "19")]
    pub empty: bool,
    /// Whether the outcome is `refused` because the node does not configure the action, or has its maximum of tasks or
    /// tombstones. An older agent omits the field.
    #[prost(bool, tag = "20")]
    pub excused: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Step {
    #[prost(string, tag = "1")]
    pub script: String,
    #[prost(string, tag = "2")]
    pub digest: String,
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
    #[prost(uint64, tag = "4")]
    pub began_ms: u64,
    #[prost(uint64, tag = "5")]
    pub elapsed_ms: u64,
    #[prost(message, optional, tag = "6")]
    pub status: Option<Status>,
    #[prost(bool, tag = "7")]
    pub tolerable: bool,
    #[prost(bool, tag = "8")]
    pub timed_out: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Check {
    #[prost(string, tag = "1")]
    pub check: String,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Process {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub command: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Tail {
    #[prost(string, tag = "1")]
    pub script: String,
    #[prost(string, tag = "2")]
    pub text: String,
}

impl Ended {
    /// Encodes a task's end. If the end would exceed `most` bytes, cuts the texts in its lists further, and says so in
    /// the note.
    pub(crate) fn of(ended: &task::Ended, most: usize) -> Self {
        let mut wire = Self::with_texts(ended, TEXT);
        if prost::Message::encoded_len(&wire) > most {
            wire = Self::with_texts(ended, LISTED_TEXT);
            let note = wire.note.take().map_or_else(String::new, |note| format!("{note}; "));
            wire.note = Some(note + "texts were cut to fit into a message");
        }
        wire
    }

    fn with_texts(ended: &task::Ended, listed: usize) -> Self {
        let text = |text: &String| clip(text, TEXT);
        let mut room = MAX_TAILS;
        Self {
            outcome: Some(Outcome::of(&ended.outcome)),
            began_ms: ended.began_ms,
            ended_ms: ended.ended_ms,
            elapsed_ms: ended.elapsed_ms,
            steps: ended.steps.iter().take(MAX_LISTED).map(|step| Step::of(step, listed)).collect(),
            checks: ended
                .checks
                .iter()
                .take(MAX_LISTED)
                .map(|c| Check { check: clip(&c.check, listed), message: clip(&c.message, listed) })
                .collect(),
            milestones: ended.milestones.iter().take(MAX_LISTED).map(|name| clip(name, listed)).collect(),
            user_message: ended.user_message.as_ref().map(text),
            expect_reboot: ended.expect_reboot,
            booted: ended.booted,
            lingering: processes(&ended.lingering, MAX_LISTED, listed),
            tails: ended
                .tails
                .iter()
                .take(MAX_LISTED)
                .map(|tail| {
                    let text = clip(&tail.text, room);
                    room -= text.len();
                    Tail { script: clip(&tail.script, listed), text }
                })
                .collect(),
            forensics: ended.forensics.as_ref().map(|seen| clip(seen, MAX_TAILS)),
            cpu_ns: ended.cpu_ns,
            memory_peak: ended.memory_peak,
            dropped_env: ended.dropped_env,
            note: ended.note.as_ref().map(text),
            skipped: ended.skipped.iter().take(MAX_LISTED).map(|file| clip(file, listed)).collect(),
            empty: ended.empty,
            excused: ended.excused,
        }
    }

    pub(crate) fn value(self) -> Result<task::Ended, Fault> {
        Ok(task::Ended {
            outcome: outcome(self.outcome)?,
            began_ms: self.began_ms,
            ended_ms: self.ended_ms,
            elapsed_ms: self.elapsed_ms,
            steps: self.steps.into_iter().map(Step::value).collect::<Result<_, _>>().at("steps")?,
            checks: self.checks.into_iter().map(|c| task::Check { check: c.check, message: c.message }).collect(),
            milestones: self.milestones,
            user_message: self.user_message,
            expect_reboot: self.expect_reboot,
            booted: self.booted,
            lingering: processes_back(self.lingering),
            tails: self.tails.into_iter().map(|t| task::Tail { script: t.script, text: t.text }).collect(),
            forensics: self.forensics,
            cpu_ns: self.cpu_ns,
            memory_peak: self.memory_peak,
            dropped_env: self.dropped_env,
            note: self.note,
            skipped: self.skipped,
            empty: self.empty,
            excused: self.excused,
        })
    }
}

impl Step {
    fn of(step: &task::Step, listed: usize) -> Self {
        Self {
            script: clip(&step.script, listed),
            digest: clip(&step.digest, listed),
            attempt: step.attempt,
            began_ms: step.began_ms,
            elapsed_ms: step.elapsed_ms,
            status: step.status.map(Status::of),
            tolerable: step.tolerable,
            timed_out: step.timed_out,
        }
    }

    fn value(self) -> Result<task::Step, Fault> {
        Ok(task::Step {
            script: self.script,
            digest: self.digest,
            attempt: self.attempt,
            began_ms: self.began_ms,
            elapsed_ms: self.elapsed_ms,
            status: self.status.map(Status::value).transpose().at("status")?,
            tolerable: self.tolerable,
            timed_out: self.timed_out,
        })
    }
}

pub(crate) fn processes(processes: &[task::Process], most: usize, text: usize) -> Vec<Process> {
    processes.iter().take(most).map(|p| Process { pid: p.pid, command: clip(&p.command, text) }).collect()
}

pub(crate) fn processes_back(processes: Vec<Process>) -> Vec<task::Process> {
    processes.into_iter().map(|p| task::Process { pid: p.pid, command: p.command }).collect()
}
