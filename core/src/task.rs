//! What a task is on its node: the order to start it, what the node decided to run, and what it left behind.
//!
//! These are the contents of the files in a task's directory (`intent.json`, `claim`, `steps.jsonl`, `result.json`,
//! `outcome.json`, and the tombstone); the agent writes and reads them, the runner reads the first and writes the next
//! three.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, BootId, InvocationId, JobId, TaskId};
use crate::idset::IdSet;
use crate::mark::Commit;
use crate::outcome::{ExitStatus, Outcome};

mod ended;
mod tombstone;

pub use ended::Ended;
pub use tombstone::{Reboot, Tombstone, survives_reboot};

/// What a runner exits with that found no directory, or no intent in it that is its task's: it claimed nothing and ran
/// nothing.
pub const NO_TASK: u8 = 66;
/// What it exits with that came too late, or found its task claimed by another: it ran nothing either (EX_TEMPFAIL of
/// sysexits.h).
pub const NOT_OURS: u8 = 75;
/// ... that could not write its claim.
pub const NO_CLAIM: u8 = 73;
/// All of them: no runner that had a claim exits so.
pub const RAN_NOTHING: [u8; 3] = [NO_TASK, NOT_OURS, NO_CLAIM];

/// The first words of a remark about an end that is `ok` because there was no script to run.
pub const NO_SCRIPT: &str = "no script ran";

/// What the agent makes in a task's directory once the controller has it on disk that a script of it announced a boot.
pub const BOOT_EXPECTED: &str = "boot-expected";
/// What the agent makes in a task's directory before it sends TERM to the runner: perilog was asked to stop it.
pub const STOP_ASKED: &str = "stop-asked";

/// The order to run an action on one rank. Says *that* it runs; the node says what ([`Plan`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    /// The boot it is meant for.
    pub boot: BootId,
    /// From receipt, in milliseconds: past it nothing may be claimed.
    pub not_after_ms: u64,
    /// All ranks of the action, and the host of each in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    /// The job's owner.
    pub userid: Option<u32>,
    /// What the requester would like scripts to see; the node's list decides ([`crate::environment`]).
    pub env: BTreeMap<String, String>,
    /// A limit for the whole task; the smaller of this and the plan's stands.
    pub timeout_ms: Option<u64>,
    /// It cleans up after its attempt: from here on nothing may prepare that on this host any more.
    #[serde(default)]
    pub after: bool,
    /// The controller's commit that caused it; 0: an older controller, which does not number them.
    #[serde(default)]
    pub commit: u64,
}

/// What this node runs for an action: its configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub run: Run,
    /// The user of scripts that name none.
    pub user: String,
    pub cwd: String,
    pub path: String,
    pub umask: u32,
    /// Set by the node for every script; stands above what came from outside.
    pub env: BTreeMap<String, String>,
    /// Limit of the whole task and of each script.
    pub timeout_ms: Option<u64>,
    pub script_timeout_ms: Option<u64>,
    pub on_timeout: OnTimeout,
    pub on_error: OnError,
    /// The outcome of a task that has no script to run.
    #[serde(default)]
    pub empty: Empty,
    pub lingering: Lingering,
    pub retries: Retries,
    /// By file name of the script.
    pub scripts: BTreeMap<String, ScriptPlan>,
    pub nofile: u64,
    pub memory_max: Option<u64>,
    pub tasks_max: Option<u64>,
    pub cpu_weight: Option<u64>,
    pub oom_score_adjust: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// Script directories, in order; within one, names sorted by bytes.
    Directories(Vec<String>),
    /// One command and its arguments.
    Command(Vec<String>),
}

/// What differs for one script.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScriptPlan {
    pub user: Option<String>,
    pub timeout_ms: Option<u64>,
    pub retries: Option<Retries>,
    /// A non-zero exit of it is `tolerable`.
    #[serde(default)]
    pub tolerable: bool,
}

/// How often a failed script is tried again, waiting `backoff_ms`, doubled each time up to `ceiling_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retries {
    pub count: u32,
    pub backoff_ms: u64,
    pub ceiling_ms: u64,
}

/// Past a limit: TERM once, then ...
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// ... it goes on, overdue, and its node is drained.
    #[default]
    Drain,
    /// ... KILL after a grace.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    #[default]
    Continue,
    Stop,
}

/// The outcome of a task that has no script to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Empty {
    /// `ok`, and its end says that no script ran.
    #[default]
    Ok,
    /// `failed`: the site means each node to run some.
    Fail,
}

/// What becomes of processes that outlive the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lingering {
    /// The task has not ended; they are named.
    #[default]
    Hold,
    Kill,
    /// They are meant to stay (a mount daemon); recorded.
    Keep,
}

/// `intent.json`: all that is needed to run the task, written before anything else happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub start: Start,
    pub plan: Plan,
    /// The environment that passed the node's list, and how many variables did not.
    pub env: BTreeMap<String, String>,
    pub dropped_env: u32,
    /// CLOCK_BOOTTIME in milliseconds; past it nothing may be claimed.
    pub not_after_boottime_ms: u64,
    /// CLOCK_BOOTTIME in milliseconds when it was taken on.
    pub accepted_boottime_ms: u64,
    /// Run for the host itself (`io.perilog.Agent.Exec`): no controller is told, none is asked.
    pub local: bool,
    /// The commit that caused it; `None`: the host's own, or an older controller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// Of such a one: what its hook asked for beside.
    #[serde(default, skip_serializing_if = "Hook::is_empty")]
    pub hook: Hook,
}

impl Intent {
    /// How long the whole task may take: the smaller of what its Start and its plan say.
    pub fn limit_ms(&self) -> Option<u64> {
        self.start.timeout_ms.into_iter().chain(self.plan.timeout_ms).min()
    }

    /// Made from the unit of a task whose directory was gone: nothing may be claimed by it, it stands for what has
    /// begun.
    pub const fn is_rebuilt(&self) -> bool {
        self.not_after_boottime_ms == 0
    }

    /// CLOCK_BOOTTIME in milliseconds: what stays of it is kept at least as long. Of a rebuilt one only when it was
    /// found is known.
    pub fn kept_until_boottime_ms(&self) -> u64 {
        self.not_after_boottime_ms.max(self.accepted_boottime_ms)
    }

    /// As one that was made so.
    #[must_use]
    pub const fn rebuilt(mut self) -> Self {
        self.not_after_boottime_ms = 0;
        self
    }
}

/// What a resource manager's hook tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hook {
    /// The program to run where no hook hears how the task ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<String>,
    /// Tells two jobs of one number apart: the time at which the resource manager began this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl Hook {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Is it of another job than the one with this instance? Unknown where this hook does not say.
    pub fn is_of_another(&self, known: &str) -> bool {
        self.instance.as_deref().is_some_and(|own| own != known)
    }
}

/// `claim`: made with O_EXCL; whoever made it decides whether scripts run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A runner, with its unit's invocation.
    Runner(InvocationId),
    /// The agent, so that no runner can: the task was cancelled before it began.
    Cancelled,
    /// The agent, so that no runner can, and how the task ends by that: refused, or its unit could not be started.
    Withdrawn(Outcome),
}

/// A line of `steps.jsonl`. `seq` counts tries of scripts from 0 within the task. Times are milliseconds: `at_ms` since
/// the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepRecord {
    /// Written before a script starts; a step that cannot be recorded is not run.
    Begin {
        seq: u32,
        script: String,
        digest: String,
        user: String,
        attempt: u32,
        at_ms: u64,
        of: u32,
    },
    End {
        seq: u32,
        script: String,
        at_ms: u64,
        elapsed_ms: u64,
        status: ExitStatus,
        tolerable: bool,
        timed_out: bool,
    },
    /// Could not be executed at all.
    NotRun {
        seq: u32,
        script: String,
        at_ms: u64,
        why: String,
    },
    /// A limit has passed: what was seen before anything was done about it.
    Overdue {
        seq: u32,
        script: String,
        at_ms: u64,
        limit_ms: u64,
        forensics: String,
        /// The one line of it that says most: `4711 D mount in rpc_wait_bit_killable`. Empty where nothing could be
        /// seen.
        #[serde(default)]
        doing: String,
    },
    /// What a script said about itself.
    Report {
        seq: u32,
        script: String,
        at_ms: u64,
        report: Report,
    },
    /// Cancel reached the runner.
    Cancelled {
        at_ms: u64,
    },
}

/// What a script may say (perilog-report).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// A named check failed; it is the job's to tolerate.
    Tolerable {
        check: String,
        message: String,
    },
    Milestone {
        name: String,
    },
    Progress {
        message: String,
    },
    ExpectReboot,
    /// A sentence the job's owner may read.
    User {
        message: String,
    },
}

/// `result.json`: written once, whole, as the runner's last act but its exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub invocation: InvocationId,
    pub began_ms: u64,
    pub ended_ms: u64,
    pub elapsed_ms: u64,
    /// Scripts that were run, and how many there were.
    pub ran: u32,
    pub of: u32,
    /// The largest status of a script that is not tolerable, as a shell gives it: what the runner exits with.
    pub status: u8,
    /// The status that `status` came from.
    pub worst: Option<ExitStatus>,
    /// A script, or the whole, ended past its limit.
    pub timed_out: bool,
    pub cancelled: bool,
    /// Nothing could run: missing directory, writable script, unknown user.
    pub configuration: Option<String>,
    /// A script could not be executed.
    pub exec: Option<String>,
    /// Files that were left out and may have been meant: `/etc/perilog/prolog.d/10-hello is skipped: not executable`.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// A process that is or was in a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

/// One try of one script, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub script: String,
    pub digest: String,
    /// Which try of its script it is, counted from 1.
    pub attempt: u32,
    pub began_ms: u64,
    pub elapsed_ms: u64,
    /// `None`: it did not end, or not be known to.
    pub status: Option<ExitStatus>,
    pub tolerable: bool,
    pub timed_out: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Check {
    pub check: String,
    pub message: String,
}

/// The end of the output of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    pub script: String,
    pub text: String,
}

/// What systemd says of a unit. Believe it only through [`crate::judge`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitFacts {
    /// LoadState is `loaded`.
    pub loaded: bool,
    /// A job of the unit is queued or running.
    pub job_pending: bool,
    pub active: String,
    pub sub: String,
    pub result: String,
    pub main_pid: u32,
    /// ExecMainCode: CLD_EXITED 1, CLD_KILLED 2, CLD_DUMPED 3; 0 while there is none.
    pub main_code: i32,
    pub main_status: i32,
    pub invocation: Option<InvocationId>,
    /// Below the cgroup root, as systemd gives it.
    pub cgroup: Option<String>,
    pub cpu_ns: Option<u64>,
    pub memory_peak: Option<u64>,
}

impl UnitFacts {
    /// Has the main process come and gone?
    pub fn main_ended(&self) -> bool {
        self.main_code != 0 && self.main_pid == 0
    }

    /// Will its job bring a main process? A stop that waits for its turn, on a node that goes down, brings none after
    /// the one that has gone.
    pub fn is_to_start(&self) -> bool {
        self.job_pending && self.main_code == 0
    }
}
