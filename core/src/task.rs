//! Task on its node: types for the Start, for the node's plan, and for the contents of a task's files.
//!
//! The files in a task's directory, all of which the agent reads:
//!
//! * `intent.json` and `outcome.json`: the agent writes them, and the runner reads the intent.
//! * `claim`: the runner creates it, or the agent to withdraw the task.
//! * `steps.jsonl` and `result.json`: the runner writes them.
//! * [`BOOT_EXPECTED`] and [`STOP_ASKED`]: the agent creates them on occasion.
//!
//! The tombstone is a file outside of the directory.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, BootId, InvocationId, JobId, MilestoneName, TaskId};
use crate::idset::IdSet;
use crate::mark::Commit;
use crate::outcome::{ExitStatus, Outcome};

mod ended;
mod lingering;
mod plan;
mod tombstone;

pub use ended::Ended;
pub use lingering::{Leftover, Lingering, Process, Treatment};
pub use plan::{Empty, OnError, OnTimeout, Plan, Retries, Run, ScriptPlan};
pub use tombstone::{Reboot, Tombstone, survives_reboot};

/// The exit status of a runner that found no directory or no intent of the task, claimed nothing and ran nothing.
pub const NO_TASK: u8 = 66;
/// The exit status of a runner that came after the not-after, or found the task claimed already, and ran nothing
/// (EX_TEMPFAIL of sysexits.h).
pub const NOT_OURS: u8 = 75;
/// The exit status of a runner that failed to write the claim, or the file `room` that reserves space for its last
/// records, and ran nothing (EX_CANTCREAT of sysexits.h).
pub const NO_CLAIM: u8 = 73;
/// All exit statuses that say that the runner ran no script. A runner that has the claim never exits with these.
pub const RAN_NOTHING: [u8; 3] = [NO_TASK, NOT_OURS, NO_CLAIM];

/// The first words of the remark about a task that is `ok` because it had no script to run.
pub const NO_SCRIPT: &str = "no script ran";

/// The file that the agent creates in a task's directory once the controller has stored the announced reboot.
pub const BOOT_EXPECTED: &str = "boot-expected";
/// The file that the agent creates in a task's directory before sending TERM: the proof of a request to stop the task.
pub const STOP_ASKED: &str = "stop-asked";

/// The order to run an action on one rank. A Start says *that* the action runs; the node decides what runs ([`Plan`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub task: TaskId,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    /// The node's boot that the Start is meant for. In another boot the agent does not accept the task.
    pub boot: BootId,
    /// The not-after, in milliseconds from the receipt of the Start. After that time no runner may claim the task.
    pub not_after_ms: u64,
    /// All ranks of the action. `hosts`: the host of each of these ranks, in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    /// Uid of the job's owner, if known.
    pub userid: Option<u32>,
    /// The variables that the requester offers to scripts; the node's list decides which pass ([`crate::environment`]).
    pub env: BTreeMap<String, String>,
    /// The requester's limit in milliseconds for the whole task. The smaller of this limit and the plan's counts.
    pub timeout_ms: Option<u64>,
    /// Whether the action is an after-action. A node that has a task or tombstone of an attempt's after-action accepts
    /// no setup action of the attempt.
    #[serde(default)]
    pub after: bool,
    /// The milestones of the attempt so far. When a script reports a new one, the runner uses their number to enforce
    /// [`crate::milestone::MAX_NAMES`]. Empty from an older controller.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub milestones: BTreeSet<MilestoneName>,
    /// Number of the controller's newest commit when it sent the Start; 0: an older controller, which numbers none.
    #[serde(default)]
    pub commit: u64,
}

/// Contents of `intent.json`: everything that a runner needs to run the task. The agent writes the file before it
/// accepts the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub start: Start,
    pub plan: Plan,
    /// Variables of the requester that the node lets pass. `dropped_env`: the number of dropped variables.
    pub env: BTreeMap<String, String>,
    pub dropped_env: u32,
    /// The not-after, as CLOCK_BOOTTIME in milliseconds: after it no runner may claim the task. 0 in a rebuilt intent.
    pub not_after_boottime_ms: u64,
    /// CLOCK_BOOTTIME in milliseconds when the agent accepted the task.
    pub accepted_boottime_ms: u64,
    /// Whether the task is local: a caller on the node's own socket requested it (`io.perilog.Agent.Exec`). No
    /// controller orders such a task or stores its end.
    pub local: bool,
    /// The commit that caused the intent; `None`: a local task (`Exec`), a rebuilt intent, or an older controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// Facts that the resource manager's hook reported about its job; empty for a controller's task.
    #[serde(default, skip_serializing_if = "Hook::is_empty")]
    pub hook: Hook,
}

impl Intent {
    /// Returns the limit of the whole task in milliseconds: the smaller one of the limits in the Start and in the
    /// plan. `None`: no limit.
    pub fn limit_ms(&self) -> Option<u64> {
        self.start.timeout_ms.into_iter().chain(self.plan.timeout_ms).min()
    }

    /// Returns `true` if the agent rebuilt the intent from the unit of a task whose directory was gone. No process may
    /// claim such a task: its scripts have begun already.
    pub const fn is_rebuilt(&self) -> bool {
        self.not_after_boottime_ms == 0
    }

    /// Returns the time (CLOCK_BOOTTIME in milliseconds) until which the task's tombstone stays despite a Forget: the
    /// not-after, or for a rebuilt intent the time when the agent found the unit.
    pub fn kept_until_boottime_ms(&self) -> u64 {
        self.not_after_boottime_ms.max(self.accepted_boottime_ms)
    }

    /// Returns the intent, marked as rebuilt ([`Intent::is_rebuilt`]).
    #[must_use]
    pub const fn rebuilt(mut self) -> Self {
        self.not_after_boottime_ms = 0;
        self
    }
}

/// Facts that a resource manager's hook reports about its job. The hook is the program that the resource manager runs
/// on the host, such as Slurm's prolog, and that requests a task with `io.perilog.Agent.Exec`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hook {
    /// The program that the agent runs for the task if the hook or the resource manager's daemon has died. The hook can
    /// then no longer pass on the task's end.
    #[serde(rename = "orphaned", default, skip_serializing_if = "Option::is_none")]
    pub orphan_program: Option<String>,
    /// The time at which the resource manager began this job, as text. It distinguishes two jobs with the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Path of the hook's note on disk, by which the epilog runs again if a boot cuts it off. The agent removes the
    /// file once the task's outcome is written, because the hook may be dead by then. The file stays if a signal may
    /// have cut the scripts off ([`crate::outcome::Outcome::may_be_cut_off`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Hook {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the hook names an instance, and it is not the instance `known`: the hook belongs to another
    /// job with the same number.
    pub fn is_of_another(&self, known: &str) -> bool {
        self.instance.as_deref().is_some_and(|own| own != known)
    }
}

/// Contents of `claim`. The process that creates the file (O_EXCL) decides whether the scripts run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A runner claimed the task and runs its scripts. Contains the invocation of the runner's unit.
    Runner(InvocationId),
    /// The agent took the claim before any runner did, because the task was cancelled before its begin.
    Cancelled,
    /// The agent took the claim before any runner did, because the task must not begin. Contains the outcome of the
    /// task.
    Withdrawn(Outcome),
}

/// A line of `steps.jsonl`. `seq` numbers the tries of all scripts of the task, from 0. `at_ms` is in milliseconds
/// since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepRecord {
    /// A try of a script begins. The runner writes this record before it executes the script; if the write fails, the
    /// script does not run. `attempt`: the number of the try, from 1. `of`: the number of all scripts of the task.
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
    /// A limit has passed, of the script or of the whole task; or a script past a limit was sent KILL in vain.
    /// `forensics`: the state of the script's processes before the runner acts on the limit.
    Overdue {
        seq: u32,
        script: String,
        at_ms: u64,
        limit_ms: u64,
        forensics: String,
        /// The line of `forensics` that best explains the delay: `4711 D mount in rpc_wait_bit_killable`. Empty if the
        /// runner could see nothing.
        #[serde(default)]
        doing: String,
    },
    /// A script made a report with perilog-report.
    Report {
        seq: u32,
        script: String,
        at_ms: u64,
        report: Report,
    },
    /// A TERM reached the runner, from perilog or another sender.
    Cancelled {
        at_ms: u64,
    },
    /// Processes outlive the scripts, which have all ended. `processes`: those that live when the runner writes the
    /// record, or that it then kills. The runner writes another record when they change.
    Left {
        at_ms: u64,
        treatment: Treatment,
        processes: Vec<Leftover>,
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
    /// A message for the owner of the job.
    User {
        message: String,
    },
}

/// Contents of `result.json`. The runner writes the file once, whole, as its last act before the exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub invocation: InvocationId,
    pub began_ms: u64,
    pub ended_ms: u64,
    pub elapsed_ms: u64,
    /// The number of scripts that ran; `of`: the number of all scripts.
    pub ran: u32,
    pub of: u32,
    /// The exit status of the runner: the largest status, as a shell gives it, of the scripts that are not tolerable.
    /// If scripts were left to run, a cancel counts as 143, and a passed limit as 124. An error in the configuration
    /// counts as 78. A status in [`RAN_NOTHING`] becomes 1.
    pub status: u8,
    /// The exit code or signal of the script with the largest status, among the scripts that are not tolerable. `None`:
    /// no such script ended with a failure.
    pub worst: Option<ExitStatus>,
    /// Whether a script or the whole task ran past its limit.
    pub timed_out: bool,
    pub cancelled: bool,
    /// The error in the configuration that kept scripts from running: missing directory, writable script, unknown user.
    /// A step that the runner cannot record counts as such an error. `None`: no such error.
    pub configuration: Option<String>,
    /// The reason why a script could not be executed; `None`: the runner executed every script that it began.
    pub exec: Option<String>,
    /// Files that the runner skipped but that may be meant as scripts: `/etc/perilog/prolog.d/10-hello is skipped: not
    /// executable`.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// Program of a task's unit, as the packages install it.
pub const RUNNER: &str = "/usr/libexec/perilog/perilog-runner";

/// Beginning of `doing` in [`Phase::Overdue`](crate::message::Phase::Overdue) for a script past its limit that has got
/// SIGKILL and has not ended: it hangs in the kernel.
pub const KILLED_IN_VAIN: &str = "SIGKILL was sent, in vain";

/// One try of a script: its begin, duration and exit status, as operators see them in the end of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub script: String,
    pub digest: String,
    /// The number of the try, counted from 1 for each script.
    pub attempt: u32,
    pub began_ms: u64,
    pub elapsed_ms: u64,
    /// The exit status of the try; `None`: the try did not end, or its end is unknown.
    pub status: Option<ExitStatus>,
    pub tolerable: bool,
    pub timed_out: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Check {
    pub check: String,
    pub message: String,
}

/// The last part of a failed script's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    pub script: String,
    pub text: String,
}

/// The facts that systemd reports about a unit. For an outcome, [`crate::judge`] decides whether to believe these
/// facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UnitFacts {
    /// Whether the unit's LoadState is `loaded`.
    pub loaded: bool,
    /// Whether a systemd job of the unit is queued or running.
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
    /// Returns `true` if the unit's main process, the runner, has run and ended.
    pub fn main_ended(&self) -> bool {
        self.main_code != 0 && self.main_pid == 0
    }

    /// Returns `true` if a systemd job of the unit is pending and the unit's main process has not ended: it is to
    /// start, or it runs. The start job of a Type=oneshot unit is pending until the main process has ended. A stop job
    /// that is pending after that, on a node that goes down, does not count.
    pub fn is_to_start(&self) -> bool {
        self.job_pending && self.main_code == 0
    }
}
