//! A model of the units in a node's PID 1. All are transient oneshots with RemainAfterExit=yes and
//! CollectMode=inactive: an ended unit stays loaded, failed or `active (exited)`, until a call unloads it.

use std::collections::BTreeMap;

use perilog_core::InvocationId;
use perilog_core::agent::io::UnitIds;
use perilog_core::task::{Intent, Process, UnitFacts};

use super::runner::Runner;

/// Result of an inspection of a unit: properties, ids and processes.
pub(crate) type UnitView = (UnitFacts, Option<UnitIds>, Vec<Process>);

const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Systemd {
    pub(crate) units: BTreeMap<String, Unit>,
    made: u64,
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) serial: u64,
    /// Whether another program made this unit, which has a task's name and no ids of a task.
    pub(crate) foreign: bool,
    /// The intent that the agent's call to start the unit carried, in LogExtraFields.
    pub(crate) intent: Box<Intent>,
    pub(crate) invocation: Option<InvocationId>,
    pub(crate) state: UnitState,
    pub(crate) runner: Runner,
    pub(crate) leftovers: Vec<Leftover>,
    /// Whether the kernel killed a process of the unit for its memory.
    pub(crate) oom: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitState {
    /// The unit's start job waits in systemd's queue.
    Queued,
    /// The unit's runner runs.
    Running,
    /// The unit failed, and its lingering processes got TERM: the unit becomes failed when they are gone.
    Stopping(Exit),
    Over(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(u8),
    Signal(u8),
}

/// A process that outlives the scripts of its task, until the world time `until_ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) pid: u32,
    pub(crate) until_ms: u64,
    /// Whether the process has left the cgroup of the unit, as `su` does.
    pub(crate) outside: bool,
}

impl Systemd {
    /// Makes a unit, as StartTransientUnit does, and returns its serial number; `None` if a unit of that name exists,
    /// in whatever state.
    pub(crate) fn start(&mut self, stem: &str, intent: Box<Intent>) -> Option<u64> {
        if self.units.contains_key(stem) {
            return None;
        }
        self.made += 1;
        let unit = Unit {
            serial: self.made,
            foreign: false,
            intent,
            invocation: None,
            state: UnitState::Queued,
            runner: Runner::default(),
            leftovers: Vec::new(),
            oom: false,
        };
        self.units.insert(stem.to_owned(), unit);
        Some(self.made)
    }

    pub(crate) fn unit(&mut self, stem: &str, serial: u64) -> Option<&mut Unit> {
        self.units.get_mut(stem).filter(|unit| unit.serial == serial)
    }

    pub(crate) fn inspect(&self, stem: &str) -> Option<UnitView> {
        self.units.get(stem).map(Unit::inspect)
    }

    pub(crate) fn inspect_all(&self) -> Vec<(String, UnitView)> {
        self.units.iter().map(|(stem, unit)| (stem.clone(), unit.inspect())).collect()
    }
}

impl Unit {
    /// Returns `true` if the unit has failed although no runner claimed its task: PID 1 started the unit after the end
    /// of the task. The agent unloads the unit when it next connects to systemd.
    pub(crate) fn is_leftover_of_a_late_start(&self) -> bool {
        matches!(self.state, UnitState::Over(Exit::Code(_))) && self.runner.run.is_none()
    }

    fn inspect(&self) -> UnitView {
        let start = &self.intent.start;
        let ids =
            UnitIds { task: start.task, job: start.job.clone(), attempt: start.attempt, action: start.action.clone() };
        let mut processes: Vec<Process> = Vec::new();
        // The agent does not ask for other processes while the main process lives.
        if self.state != UnitState::Running {
            let named = |left: &Leftover| Process { pid: left.pid, command: "sleep".to_owned() };
            processes.extend(self.leftovers.iter().filter(|left| !left.outside).map(named));
        }
        (self.facts(), (!self.foreign).then_some(ids), processes)
    }

    fn facts(&self) -> UnitFacts {
        let mut facts = UnitFacts {
            loaded: true,
            active: "inactive".to_owned(),
            sub: "dead".to_owned(),
            result: "success".to_owned(),
            invocation: self.invocation.clone(),
            cgroup: Some("/perilog.slice/task".to_owned()),
            ..UnitFacts::default()
        };
        match self.state {
            UnitState::Queued => facts.job_pending = true,
            UnitState::Running => {
                (facts.job_pending, facts.main_pid) = (true, 100);
                (facts.active, facts.sub) = ("activating".to_owned(), "start".to_owned());
            }
            UnitState::Stopping(exit) => {
                facts.job_pending = true;
                (facts.active, facts.sub) = ("deactivating".to_owned(), "stop-sigterm".to_owned());
                exit.fill(&mut facts);
            }
            UnitState::Over(exit) => {
                let failed = exit != Exit::Code(0);
                let active = if failed { "failed" } else { "active" };
                (facts.active, facts.sub) = (active.to_owned(), "exited".to_owned());
                exit.fill(&mut facts);
            }
        }
        if self.oom && self.state != UnitState::Running {
            facts.result = "oom-kill".to_owned();
            if facts.active == "active" {
                facts.active = "failed".to_owned();
            }
        }
        facts
    }
}

impl Exit {
    fn fill(self, facts: &mut UnitFacts) {
        let (code, status, result) = match self {
            Self::Code(0) => (CLD_EXITED, 0, "success"),
            Self::Code(code) => (CLD_EXITED, i32::from(code), "exit-code"),
            Self::Signal(signal) => (CLD_KILLED, i32::from(signal), "signal"),
        };
        (facts.main_code, facts.main_status, facts.result) = (code, status, result.to_owned());
    }
}
