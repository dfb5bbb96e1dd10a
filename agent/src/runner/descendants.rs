//! Descendants of a process, by the parents that /proc names (proc_pid_stat(5)).
//!
//! The runner is a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): a process that descends from a script becomes
//! the runner's child when its parent ends. So all processes of the scripts are descendants of the runner, also those
//! that a PAM session or systemd moved to another cgroup. A process that another program starts for a script is none: a
//! service of systemd, a job of at(1).

use std::collections::BTreeMap;
use std::fs;

use perilog_host::process_stat::Stat;
use rustix::process::{Pid, Signal};

/// Processes by pid, without those that have ended and wait to be reaped.
pub(crate) type Descendants = BTreeMap<i32, Stat>;

/// Returns the processes that descend from the runner.
pub(crate) fn of_runner() -> Descendants {
    of(i32::try_from(std::process::id()).unwrap_or(0))
}

/// Sends a signal to a process, unless the process has ended.
pub(crate) fn signal(pid: i32, stat: &Stat, signal: Signal) {
    let same = Stat::of(pid).is_some_and(|now| now.start == stat.start);
    if let Some(pid) = Pid::from_raw(pid).filter(|_| same) {
        // Fails only if the process has ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Returns the processes that descend from `root`. A process whose parent ends during the call may be missing.
pub(crate) fn of(root: i32) -> Descendants {
    among(root, all())
}

fn all() -> BTreeMap<i32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, Stat::of(pid)?))).collect()
}

fn among(root: i32, mut all: BTreeMap<i32, Stat>) -> Descendants {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, stat) in &all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut found = BTreeMap::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Each list is taken once: parents that seem to be each other's, because a pid was used again, end the walk.
        for pid in children.remove(&parent).unwrap_or_default() {
            parents.push(pid);
            found.extend(all.remove(&pid).filter(|stat| !matches!(stat.state, 'Z' | 'X')).map(|stat| (pid, stat)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_below_zombies_and_in_no_circle() {
        let stat = |(pid, parent, state)| (pid, Stat { command: String::new(), state, parent, start: 1 });
        let all = [
            (1, 0, 'S'),
            (5, 1, 'S'),
            (7, 5, 'Z'),
            (9, 7, 'S'),
            (11, 9, 'D'),
            (20, 21, 'S'),
            (21, 20, 'S'),
            (30, 1, 'S'),
        ];
        let found = |root| among(root, all.map(stat).into()).into_keys().collect::<Vec<_>>();
        assert_eq!((found(5), found(20), found(11)), (vec![9, 11], vec![20, 21], vec![]));
    }
}
