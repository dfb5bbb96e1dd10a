//! Leftovers: what the runner does with the processes that outlive its scripts, in its unit or elsewhere. The plan
//! decides ([`perilog_core::task::Plan::treatment`]).
//!
//! ```text
//!   the last script has ended --no child--> result
//!     |-- keep --> named, result
//!     |-- hold --> (TERM, once) named, waited for --KILL by an operator, or after a limit's grace--> kill
//!     `-- kill --> KILL, named, waited for
//! ```
//!
//! The runner waits for the ends of its children and looks at no interval: a process whose parent ends becomes the
//! runner's child ([`crate::descendants`]). It writes the result last, so that a runner that is killed while it waits
//! makes no `ok`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use perilog_core::task::{Leftover, StepRecord, Treatment};
use perilog_host::clock;
use rustix::process::Signal;

use crate::descendants::{self, Descendants};
use crate::forensics;
use crate::output::Level;
use crate::sequence::Sequence;
use crate::watchdog::KILL_GRACE_MS;

/// Time in milliseconds before the runner looks at processes that are new to it. A process that ends sooner is not
/// named; a process that has just been forked still has the name of its parent.
const SETTLE_MS: u64 = 250;
/// Maximum number of `Left` records that a runner writes to steps.jsonl: one each time the lingering processes are
/// others than before.
const MAX_RECORDS: u32 = 32;
/// Maximum number of processes in a record.
const MAX_NAMED: usize = 32;
/// Maximum number of looks in a row for processes to kill: processes that fork meanwhile are found by the next look.
const KILL_ROUNDS: usize = 16;

/// The wait for lingering processes.
#[derive(Debug)]
pub(crate) struct Leftovers {
    treatment: Treatment,
    /// Whether the processes are still to get TERM.
    term: bool,
    /// CLOCK_MONOTONIC (ms) at which the runner sends KILL. `None`: it sends none, or has sent it.
    kill_at: Option<u64>,
    /// CLOCK_MONOTONIC (ms) at which the runner looks at the processes next. `None`: once a process has ended.
    check_at: Option<u64>,
    /// The processes that got KILL, by pid and start time.
    killed: BTreeSet<(i32, u64)>,
    noted: Vec<Leftover>,
    records: u32,
}

impl Leftovers {
    fn new(treatment: Treatment, now: u64) -> Self {
        let (term, kill) = match treatment {
            Treatment::Hold { term, kill } => (term, kill),
            Treatment::Keep | Treatment::Kill => (false, false),
        };
        let at_once = term || treatment == Treatment::Kill;
        Self {
            treatment,
            term,
            kill_at: kill.then(|| now.saturating_add(KILL_GRACE_MS)),
            check_at: Some(if at_once { now } else { now.saturating_add(SETTLE_MS) }),
            killed: BTreeSet::new(),
            noted: Vec::new(),
            records: 0,
        }
    }

    /// Plans TERM for the processes, at once.
    pub(crate) fn term(&mut self) {
        (self.term, self.check_at) = (true, Some(0));
    }

    /// Plans KILL for the processes, at once.
    pub(crate) fn kill(&mut self) {
        (self.treatment, self.kill_at, self.check_at) = (Treatment::Kill, None, Some(0));
    }

    /// Plans a look, because a process has ended: its children are the runner's now.
    fn one_ended(&mut self, now: u64) {
        let at = if self.treatment == Treatment::Kill { now } else { now.saturating_add(SETTLE_MS) };
        self.check_at = self.check_at.into_iter().chain([at]).min();
    }

    fn next(&self) -> Option<u64> {
        self.check_at.into_iter().chain(self.kill_at).min()
    }

    /// Sends the processes the signals that are due. Returns the processes, described before they get KILL; under
    /// `Kill`, those that got it now.
    fn signal(&mut self, mut found: Descendants) -> Vec<Leftover> {
        if std::mem::take(&mut self.term) {
            found.iter().for_each(|(pid, stat)| descendants::signal(*pid, stat, Signal::TERM));
        }
        if self.treatment != Treatment::Kill {
            return described(&found);
        }
        let mut killed = Vec::new();
        for _ in 0..KILL_ROUNDS {
            found.retain(|pid, stat| !self.killed.contains(&(*pid, stat.start)));
            if found.is_empty() {
                break;
            }
            killed.extend(described(&found));
            found.iter().for_each(|(pid, stat)| descendants::signal(*pid, stat, Signal::KILL));
            self.killed.extend(found.iter().map(|(pid, stat)| (*pid, stat.start)));
            found = descendants::of_runner();
        }
        killed.truncate(MAX_NAMED);
        killed
    }
}

impl Sequence<'_> {
    /// Treats the processes that outlive the scripts as the plan says, and returns when none is left; under `keep`, at
    /// once. `failed`: the runner's exit status is not 0. `timed_out`: a script or the task ran past its limit.
    pub(crate) fn see_off(&mut self, failed: bool, timed_out: bool) {
        if !self.reap(None).are_left {
            return;
        }
        let treatment = self.intent.plan.treatment(failed, timed_out);
        let now = clock::mono_ms();
        self.leftovers = Some(Leftovers::new(treatment, now));
        if treatment == Treatment::Keep {
            return self.inspect_leftovers();
        }
        loop {
            let reaped = self.reap(None);
            if !reaped.are_left {
                break;
            }
            let now = clock::mono_ms();
            let Some(left) = &mut self.leftovers else { break };
            if reaped.any {
                left.one_ended(now);
            }
            if left.kill_at.is_some_and(|at| at <= now) {
                left.kill();
            }
            if left.check_at.take_if(|at| *at <= now).is_some() {
                self.inspect_leftovers();
            }
            let next = self.leftovers.as_ref().and_then(Leftovers::next);
            self.turn(None, next);
        }
        self.leftovers = None;
    }

    /// Looks at the processes, sends them what is due, and names them if they are others than before.
    fn inspect_leftovers(&mut self) {
        let Some(left) = &mut self.leftovers else { return };
        let processes = left.signal(descendants::of_runner());
        // Killed processes get a record of their own, although the record before names them, too.
        let known = left.treatment != Treatment::Kill && processes == left.noted;
        if processes.is_empty() || known || left.records >= MAX_RECORDS {
            return;
        }
        left.noted.clone_from(&processes);
        left.records += 1;
        if left.records == 1 {
            left.check_at = Some(clock::mono_ms().saturating_add(SETTLE_MS));
        }
        let (treatment, first) = (left.treatment, left.records == 1);
        let all: Vec<String> = processes.iter().map(|one| format!("{} {}", one.pid, one.named().command)).collect();
        let what = match treatment {
            Treatment::Keep => "the task keeps processes that its scripts left behind (lingering = \"keep\")",
            Treatment::Hold { .. } => "the task waits for processes that its scripts left behind",
            Treatment::Kill => "the runner killed processes that its scripts left behind",
        };
        let text = format!("{what}: {}", all.join(", "));
        if first || treatment == Treatment::Kill {
            self.sinks.write_line(Level::Warning, &text);
        }
        if treatment != Treatment::Keep {
            self.headline.waits(&text);
        }
        self.note(&StepRecord::Left { at_ms: clock::wall_ms(), treatment, processes });
    }
}

/// Returns the processes as the runner records them.
fn described(found: &Descendants) -> Vec<Leftover> {
    let own = cgroup("self").unwrap_or_default();
    let is_inside =
        |cgroup: &String| cgroup.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let shown: Vec<i32> = found.keys().copied().take(MAX_NAMED).collect();
    let mut commands = forensics::command_lines(&shown);
    let named = found.iter().take(MAX_NAMED).map(|(pid, stat)| Leftover {
        pid: pid.unsigned_abs(),
        start: stat.start,
        // Without a command line, as of a process in the kernel, the kernel's name has to do.
        command: commands.remove(pid).unwrap_or_else(|| crate::output::one_line(&stat.command)),
        uid: fs::metadata(format!("/proc/{pid}")).map_or(0, |process| process.uid()),
        cgroup: cgroup(&pid.to_string()).filter(|cgroup| !is_inside(cgroup)),
    });
    named.collect()
}

/// Returns the cgroup of a process (cgroups(7)), in systemd's hierarchy: that of cgroup v2, or systemd's own on v1.
/// `pid`: a number, or `self`. `None`: the process is gone, or is in no such hierarchy.
fn cgroup(pid: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let of =
        |hierarchy: &str| text.lines().find_map(|line| line.split_once(hierarchy).map(|(_, path)| path.to_owned()));
    of("0::").or_else(|| of(":name=systemd:"))
}
