//! A task on its node: the order to start the task, what the node decided to run, and the files that the task left
//! behind.
//!
//! These types are the contents of the files in a task's directory (`intent.json`, `claim`, `steps.jsonl`,
//! `result.json`, `outcome.json`, and the tombstone); the agent writes and reads them, the runner reads the first and
//! writes the next three.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, BootId, InvocationId, JobId, MilestoneName, TaskId};
use crate::idset::IdSet;
use crate::mark::Commit;
use crate::outcome::{ExitStatus, Outcome};

mod ended;
mod tombstone;

pub use ended::Ended;
pub use tombstone::{Reboot, Tombstone, survives_reboot};

/// The exit status of a runner that found no directory, or no intent of the task: the runner claimed nothing and ran
/// nothing.
pub const NO_TASK: u8 = 66;
/// The exit status of a runner that came too late, or found the task claimed by another program: the runner ran nothing
/// (EX_TEMPFAIL of sysexits.h).
pub const NOT_OURS: u8 = 75;
/// The exit status of a runner that could not write its claim.
pub const NO_CLAIM: u8 = 73;
/// All exit statuses of a runner that ran nothing. A runner that has claimed a task never exits with one of these.
pub const RAN_NOTHING: [u8; 3] = [NO_TASK, NOT_OURS, NO_CLAIM];

/// The first words of a remark about an end that is `ok` because there was no script to run.
pub const NO_SCRIPT: &str = "no script ran";

/// The file that the agent creates in a task's directory once the controller has stored that the script announced a
/// reboot.
pub const BOOT_EXPECTED: &str = "boot-expected";
/// The file that the agent creates in a task's directory before it sends TERM to the runner: perilog was asked to stop
/// the task.
pub const STOP_ASKED: &str = "stop-asked";

/// The order to run an action on one rank. A Start says *that* the action runs; the node decides what runs ([`Plan`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    /// The boot that the Start is meant for: the node refuses the Start in another boot.
    pub boot: BootId,
    /// The start-grace in milliseconds, counted from receipt; afterwards no process may claim the task.
    pub not_after_ms: u64,
    /// All ranks of the action; `hosts`: the host of each rank, in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    /// Uid of the job's owner, if known.
    pub userid: Option<u32>,
    /// The variables that the requester would like scripts to see; the node's list decides ([`crate::environment`]).
    pub env: BTreeMap<String, String>,
    /// A limit for the whole task; the smaller of this limit and the plan's limit counts.
    pub timeout_ms: Option<u64>,
    /// The action is an after-action: from now on no setup action of the attempt may begin on this host.
    #[serde(default)]
    pub after: bool,
    /// Milestones that the attempt had when the controller made the Start: new names of the scripts need room beside
    /// them. Empty from an older controller.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub milestones: BTreeSet<MilestoneName>,
    /// The controller's commit that caused the Start; 0: an older controller, which does not number commits.
    #[serde(default)]
    pub commit: u64,
}

/// The plan of an action on this node: the node's configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub run: Run,
    /// The user who runs scripts, unless a script has a user of its own.
    pub user: String,
    pub cwd: String,
    pub path: String,
    pub umask: u32,
    /// The variables that the node sets for every script; they override variables from outside.
    pub env: BTreeMap<String, String>,
    /// Limit in milliseconds of the whole task; `script_timeout_ms`: of each script. `None`: no limit.
    pub timeout_ms: Option<u64>,
    pub script_timeout_ms: Option<u64>,
    pub on_timeout: OnTimeout,
    pub on_error: OnError,
    /// The outcome of a task that has no script to run.
    #[serde(default)]
    pub empty: Empty,
    pub lingering: Lingering,
    pub retries: Retries,
    /// Settings of single scripts, by file name.
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
    /// A command with its arguments.
    Command(Vec<String>),
}

/// The settings that differ for one script.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScriptPlan {
    pub user: Option<String>,
    pub timeout_ms: Option<u64>,
    pub retries: Option<Retries>,
    /// A non-zero exit of the script is `tolerable`.
    #[serde(default)]
    pub tolerable: bool,
}

/// How often the runner tries a failed script again. The runner waits `backoff_ms`, doubled each time up to
/// `ceiling_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retries {
    pub count: u32,
    pub backoff_ms: u64,
    pub ceiling_ms: u64,
}

/// The runner's act on a script past its limit, after one TERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// The script continues, overdue, and perilog drains the node.
    #[default]
    Drain,
    /// The runner sends KILL after a grace.
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
    /// `ok`; the end says that no script ran.
    #[default]
    Ok,
    /// `failed`: on this site each node must run a script.
    Fail,
}

/// The policy for processes that outlive the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lingering {
    /// The task does not end before the processes do; perilog names the processes.
    #[default]
    Hold,
    Kill,
    /// Such processes are meant to stay (a mount daemon); perilog records them.
    Keep,
}

/// `intent.json`: everything that a runner needs to run the task. The agent writes the file before any other act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub start: Start,
    pub plan: Plan,
    /// The environment that passed the node's list, and how many variables did not.
    pub env: BTreeMap<String, String>,
    pub dropped_env: u32,
    /// The not-after: CLOCK_BOOTTIME in milliseconds after which no process may claim the task.
    pub not_after_boottime_ms: u64,
    /// CLOCK_BOOTTIME in milliseconds when the agent accepted the task.
    pub accepted_boottime_ms: u64,
    /// The host's own task (`io.perilog.Agent.Exec`): the agent neither reports the task to a controller nor asks one.
    pub local: bool,
    /// The commit that caused the intent; `None`: the host's own task, or an older controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The details that the resource manager's hook reported, for a host's own task; otherwise empty.
    #[serde(default, skip_serializing_if = "Hook::is_empty")]
    pub hook: Hook,
}

impl Intent {
    /// Returns the limit of the whole task: the smaller of the limits of its Start and its plan.
    pub fn limit_ms(&self) -> Option<u64> {
        self.start.timeout_ms.into_iter().chain(self.plan.timeout_ms).min()
    }

    /// Returns `true` if the agent rebuilt the intent from the unit of a task whose directory was gone. No process may
    /// claim such a task; the intent only stands for scripts that have begun.
    pub const fn is_rebuilt(&self) -> bool {
        self.not_after_boottime_ms == 0
    }

    /// Returns the earliest time (CLOCK_BOOTTIME in milliseconds) at which the agent may remove the task's remains. For
    /// a rebuilt intent the agent knows only when it found the unit.
    pub fn kept_until_boottime_ms(&self) -> u64 {
        self.not_after_boottime_ms.max(self.accepted_boottime_ms)
    }

    /// Marks the intent as rebuilt.
    #[must_use]
    pub const fn rebuilt(mut self) -> Self {
        self.not_after_boottime_ms = 0;
        self
    }
}

/// The details that a resource manager's hook reports about its job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hook {
    /// The program that the agent runs if no hook hears how the task ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<String>,
    /// The time at which the resource manager began this job; distinguishes two jobs with the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl Hook {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the hook speaks for another job than the one with the instance `known`; `false` if this hook
    /// has no instance.
    pub fn is_of_another(&self, known: &str) -> bool {
        self.instance.as_deref().is_some_and(|own| own != known)
    }
}

/// The contents of `claim`, created with O_EXCL; the creator of the claim decides whether scripts run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A runner, with its unit's invocation.
    Runner(InvocationId),
    /// The agent claimed the task, so that no runner can: the task was cancelled before it began.
    Cancelled,
    /// The agent claimed the task, so that no runner can: perilog refused the task, or systemd could not start its
    /// unit. Contains the outcome of the task.
    Withdrawn(Outcome),
}

/// A line of `steps.jsonl`. `seq` counts tries of scripts from 0 within the task. `at_ms` is in milliseconds since the
/// epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepRecord {
    /// The runner writes this line before a script starts. If the write fails, the runner does not run the step.
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
    /// The runner could not execute the script at all.
    NotRun {
        seq: u32,
        script: String,
        at_ms: u64,
        why: String,
    },
    /// A limit has passed: the state of the processes before the runner did anything about it.
    Overdue {
        seq: u32,
        script: String,
        at_ms: u64,
        limit_ms: u64,
        forensics: String,
        /// The most telling line of `seen`: `4711 D mount in rpc_wait_bit_killable`. Empty if the runner could see
        /// nothing.
        #[serde(default)]
        doing: String,
    },
    /// A report of a script about itself.
    Report {
        seq: u32,
        script: String,
        at_ms: u64,
        report: Report,
    },
    /// A TERM reached the runner.
    Cancelled {
        at_ms: u64,
    },
}

/// The reports that a script may make (perilog-report).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// A named check failed; the job may tolerate the failure.
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
    /// A sentence that the job's owner may read.
    User {
        message: String,
    },
}

/// `result.json`: the runner writes the file once, whole, as the last act before its exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub invocation: InvocationId,
    pub began_ms: u64,
    pub ended_ms: u64,
    pub elapsed_ms: u64,
    /// The number of scripts that ran, and the number of all scripts.
    pub ran: u32,
    pub of: u32,
    /// The largest status of a script that is not tolerable, as a shell gives it: the exit status of the runner.
    pub status: u8,
    /// The status that `status` came from.
    pub worst: Option<ExitStatus>,
    /// A script, or the whole task, ended past a limit.
    pub timed_out: bool,
    pub cancelled: bool,
    /// The configuration error because of which nothing could run: missing directory, writable script, unknown user.
    pub configuration: Option<String>,
    /// The reason why a script could not be executed.
    pub exec: Option<String>,
    /// Files that the runner skipped and that may have been meant as scripts: `/etc/perilog/prolog.d/10-hello is
    /// skipped: not executable`.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// A process that is or was in a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

/// A try of a script, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub script: String,
    pub digest: String,
    /// The number of the try, counted from 1 for each script.
    pub attempt: u32,
    pub began_ms: u64,
    pub elapsed_ms: u64,
    /// `None`: the try did not end, or its end is unknown.
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

/// The facts that systemd reports about a unit. Believe these facts only through [`crate::judge`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitFacts {
    /// The unit's LoadState is `loaded`.
    pub loaded: bool,
    /// A job of the unit is queued or running.
    pub job_pending: bool,
    pub active: String,
    pub sub: String,
    pub result: String,
    pub main_pid: u32,
    /// ExecMainCode of systemd: CLD_EXITED 1, CLD_KILLED 2, CLD_DUMPED 3; 0 before the main process has ended.
    pub main_code: i32,
    pub main_status: i32,
    pub invocation: Option<InvocationId>,
    /// The unit's cgroup below the cgroup root, as systemd gives it.
    pub cgroup: Option<String>,
    pub cpu_ns: Option<u64>,
    pub memory_peak: Option<u64>,
}

impl UnitFacts {
    /// Returns `true` if the main process has ended.
    pub fn main_ended(&self) -> bool {
        self.main_code != 0 && self.main_pid == 0
    }

    /// Returns `true` if the pending job will start a main process. On a node that goes down a stop job may wait after
    /// the main process has ended: such a job starts none.
    pub fn is_to_start(&self) -> bool {
        self.job_pending && self.main_code == 0
    }
}
