//! The daemon that waits for this hook's status. If the daemon dies (kill -9 of slurmd, of a broker), the hook goes on,
//! and no daemon gets the hook's status. The hook reports that to the agent, which runs the site's program
//! (`--orphaned`).
//!
//! The daemon is the hook's parent, with one exception. Under Slurm's `PrologFlags=RunInJob` the parent is a
//! slurmstepd, which outlives its slurmd, and no later slurmd reads the result. In that case the hook watches slurmd.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use perilog_host::process_stat;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

/// Pause between two checks whether the daemon lives, where the kernel cannot report the end of another process (Linux
/// older than 5.3).
const POLL: Duration = Duration::from_secs(1);

pub(super) struct Starter {
    pid: Pid,
    /// Name of the daemon's process in /proc when the hook found it; `None`: not readable. If the pid has another name
    /// later, it belongs to another process, and the daemon is dead.
    name: Option<String>,
    is_parent: bool,
    alive: Option<OwnedFd>,
}

impl Starter {
    /// Finds the daemon that runs this hook. `node`: the node name of the slurmd, which tells several slurmds of a host
    /// apart. `None`: the parent is outside of this PID namespace, or the hook's slurmstepd has no slurmd on this host.
    pub(super) fn of_this_process(node: Option<&str>) -> Option<Self> {
        let parent = getppid()?;
        let is_step = Process::of(parent).is_some_and(|process| process.name == "slurmstepd");
        let pid = if is_step { slurmd(&processes(), node)? } else { parent };
        let alive = pidfd_open(pid, PidfdFlags::empty()).ok();
        Some(Self { pid, name: name_of(pid), is_parent: !is_step, alive })
    }

    /// Returns the process of the daemon as `PID:TICKS`, with the time when it began (`starttime` in proc(5)): no later
    /// process has both. `None`: /proc cannot be read, or the daemon is dead.
    pub(super) fn process(&self) -> Option<String> {
        let stat = process_stat::read(self.pid.as_raw_nonzero(), "stat")?;
        // The process's name stands in parentheses, may contain spaces, and is the second of the fields.
        let ticks = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
        self.is_alive().then(|| format!("{}:{ticks}", self.pid.as_raw_nonzero()))
    }

    /// Blocks until the daemon that runs this hook is dead.
    pub(super) fn wait(&self) {
        // Before the pidfd was opened, the process may have died, and another process may have got its pid.
        while self.is_alive() {
            match &self.alive {
                None => thread::park_timeout(POLL),
                // poll(2) returns no error but EINTR; a further check does no harm.
                Some(alive) => {
                    if poll(&mut [PollFd::new(alive, PollFlags::IN)], None).is_ok() {
                        return;
                    }
                }
            }
        }
    }

    fn is_alive(&self) -> bool {
        match self.is_parent {
            true => getppid() == Some(self.pid),
            false => self.name.is_some() && name_of(self.pid) == self.name,
        }
    }
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    name: String,
    arguments: Vec<String>,
}

impl Process {
    fn of(pid: Pid) -> Option<Self> {
        let read = |file: &str| process_stat::read(pid.as_raw_nonzero(), file);
        let status = read("status")?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        let arguments = read("cmdline")?.split('\0').map(str::to_owned).collect();
        Some(Self { pid, parent: Pid::from_raw(parent), name: name_of(pid)?, arguments })
    }
}

/// Returns the name of a process, at most its first 15 bytes (`comm` in proc(5)); `None`: it cannot be read.
fn name_of(pid: Pid) -> Option<String> {
    let name = process_stat::read(pid.as_raw_nonzero(), "comm")?;
    Some(name.trim_end().to_owned())
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(Process::of).collect()
}

/// Returns the process of this host's slurmd; if the host runs several, of the one with `-N` and the node name `node`.
/// `None`: there is no such slurmd. Skips children of a slurmd, which have the name slurmd until they exec.
fn slurmd(processes: &[Process], node: Option<&str>) -> Option<Pid> {
    let all = || processes.iter().filter(|process| process.name == "slurmd");
    let is_child = |process: &&Process| all().any(|other| Some(other.pid) == process.parent);
    let daemons: Vec<&Process> = all().filter(|process| !is_child(process)).collect();
    let is_named = |process: &&&Process| {
        let words = process.arguments.windows(2);
        let apart = words.into_iter().any(|pair| pair[0] == "-N" && Some(pair[1].as_str()) == node);
        apart || node.is_some_and(|node| process.arguments.iter().any(|word| *word == format!("-N{node}")))
    };
    match daemons.as_slice() {
        [one] => Some(one.pid),
        several => several.iter().find(is_named).map(|process| process.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slurmd_of_a_node_is_found_among_others() {
        let process = |pid: i32, parent: i32, name: &str, arguments: &str| Process {
            pid: Pid::from_raw(pid).unwrap(),
            parent: Pid::from_raw(parent),
            name: name.to_owned(),
            arguments: arguments.split(' ').map(str::to_owned).collect(),
        };
        let found = |of: &[Process], node| slurmd(of, node).map(|pid| pid.as_raw_nonzero().get());
        let (first, child) = (process(10, 1, "slurmd", "slurmd -D"), process(11, 10, "slurmd", "slurmd -D"));
        let step = process(12, 1, "slurmstepd", "slurmstepd: [5.extern]");
        assert_eq!(found(&[step, first, child], None), Some(10));
        let two = [process(10, 1, "slurmd", "slurmd -N n0"), process(20, 1, "slurmd", "slurmd -Nn1 -D")];
        assert_eq!((found(&two, Some("n0")), found(&two, Some("n1"))), (Some(10), Some(20)));
        assert_eq!((found(&two, None), found(&[], Some("n0"))), (None, None));
    }

    #[test]
    fn the_parent_of_this_process_is_alive() {
        assert!(Starter::of_this_process(None).is_none_or(|starter| starter.is_alive()));
    }
}
