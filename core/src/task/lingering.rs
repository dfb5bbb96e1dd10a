//! Lingering processes: decides what the runner does with the processes that outlive its scripts, in its unit or
//! elsewhere.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::defect;

use super::{OnTimeout, Plan};

/// The policy for processes that outlive the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lingering {
    /// The task does not end before the processes do; perilog names the processes.
    #[default]
    Hold,
    Kill,
    /// The processes may go on after the end of the task, as a mount daemon has to. The end lists them.
    Keep,
}

/// A process that outlives, or outlived, the scripts of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

impl Process {
    /// Returns the commands of the processes as a text without their ids, such as `sleep, sh`: equal on nodes where the
    /// same was left.
    pub(crate) fn commands(processes: &[Self]) -> String {
        let names: BTreeSet<&str> = processes.iter().map(|process| process.command.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// A process that descends from a task's scripts and outlives them, as the runner records it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leftover {
    pub pid: u32,
    /// Start time of the process in clock ticks since the kernel's boot (proc_pid_stat(5)): with the pid, it names one
    /// process only.
    pub start: u64,
    pub command: String,
    pub uid: u32,
    /// The process's cgroup, if it has left the cgroup of the task's unit. `None`: it is in the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

impl Leftover {
    /// Returns the process with a command line for operators, such as `sleep 8 (uid 1, in
    /// /user.slice/user-1.slice/session-c1.scope)`.
    pub fn named(&self) -> Process {
        let uid = (self.uid != 0).then(|| format!("uid {}", self.uid));
        let place = self.cgroup.as_ref().map(|cgroup| format!("in {cgroup}"));
        let about: Vec<String> = uid.into_iter().chain(place).collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        Process { pid: self.pid, command: format!("{}{about}", self.command) }
    }
}

/// Treatment of the processes that outlive the scripts of a task, by the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// The runner names them, and exits.
    Keep,
    /// The runner waits until they have ended. `term`: it first sends them TERM, once. `kill`: it sends them KILL after
    /// the grace that a script past its limit has.
    Hold { term: bool, kill: bool },
    /// The runner sends them KILL, and waits until they have ended.
    Kill,
}

impl Plan {
    /// Returns the treatment of processes that outlive the scripts. `failed`: the runner's exit status is not 0.
    /// `timed_out`: a script or the task ran past its limit.
    pub fn treatment(&self, failed: bool, timed_out: bool) -> Treatment {
        match self.lingering {
            _ if defect!(RunnerLeavesProcesses) => Treatment::Keep,
            Lingering::Keep => Treatment::Keep,
            Lingering::Kill => Treatment::Kill,
            Lingering::Hold => {
                Treatment::Hold { term: failed || timed_out, kill: timed_out && self.on_timeout == OnTimeout::Kill }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::values::plan;

    #[test]
    fn policy_and_end_of_the_scripts_decide_what_becomes_of_leftovers() {
        let hold = |term, kill| Treatment::Hold { term, kill };
        for (lingering, on_timeout, failed, timed_out, expect) in [
            (Lingering::Hold, OnTimeout::Drain, false, false, hold(false, false)),
            (Lingering::Hold, OnTimeout::Drain, true, false, hold(true, false)),
            (Lingering::Hold, OnTimeout::Drain, true, true, hold(true, false)),
            (Lingering::Hold, OnTimeout::Kill, true, false, hold(true, false)),
            (Lingering::Hold, OnTimeout::Kill, false, true, hold(true, true)),
            (Lingering::Kill, OnTimeout::Drain, false, false, Treatment::Kill),
            (Lingering::Kill, OnTimeout::Kill, true, true, Treatment::Kill),
            (Lingering::Keep, OnTimeout::Drain, false, false, Treatment::Keep),
            (Lingering::Keep, OnTimeout::Kill, true, true, Treatment::Keep),
        ] {
            let plan = Plan { lingering, on_timeout, ..plan() };
            assert_eq!(plan.treatment(failed, timed_out), expect, "{lingering:?} {on_timeout:?} {failed} {timed_out}");
        }
    }

    #[test]
    fn a_leftover_is_named_with_its_user_and_its_place() {
        let leftover = |uid, cgroup: Option<&str>| {
            let cgroup = cgroup.map(str::to_owned);
            Leftover { pid: 7, start: 1, command: "sleep 8".to_owned(), uid, cgroup }.named().command
        };
        assert_eq!(leftover(0, None), "sleep 8");
        assert_eq!(leftover(1, Some("/a.scope")), "sleep 8 (uid 1, in /a.scope)");
        assert_eq!(leftover(0, Some("/a.scope")), "sleep 8 (in /a.scope)");
    }
}
