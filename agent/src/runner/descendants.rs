//! Descendants of a process, by the parents that /proc names (proc_pid_stat(5)).
//!
//! The runner is a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): a process that descends from a script becomes
//! the runner's child when its parent ends. So all processes of the scripts are descendants of the runner, also those
//! that a PAM session or systemd moved to another cgroup. A process that another program starts for a script is none: a
//! service of systemd, a job of at(1).

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal};

/// The parts of a line of /proc/PID/stat that the runner needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) command: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
    /// Start time in clock ticks since the kernel's boot.
    pub(crate) start: u64,
}

/// Processes by pid, without those that have ended and wait to be reaped.
pub(crate) type Descendants = BTreeMap<i32, Stat>;

/// Returns the processes that descend from the runner.
pub(crate) fn of_runner() -> Descendants {
    of(i32::try_from(std::process::id()).unwrap_or(0))
}

/// Sends a signal to a process, unless the process has ended.
pub(crate) fn signal(pid: i32, stat: &Stat, signal: Signal) {
    let same = read(pid).is_some_and(|now| now.start == stat.start);
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
    pids.filter_map(|pid: i32| Some((pid, read(pid)?))).collect()
}

fn read(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
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

fn parse(line: &str) -> Option<Stat> {
    // The command is in parentheses, and may itself contain parentheses.
    let (open, close) = (line.find('(')?, line.rfind(')')?);
    let fields: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().take(20).collect();
    Some(Stat {
        command: line.get(open + 1..close)?.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_whatever_the_command_is_called() {
        let stat = |command: &str| Some(Stat { command: command.to_owned(), state: 'D', parent: 7, start: 77 });
        let rest = "9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0";
        for (line, expect) in [
            (format!("12 (mount) D 7 {rest}"), stat("mount")),
            (format!("12 (a) R 1 1 (b) D 7 {rest}"), stat("a) R 1 1 (b")),
            (format!("12 (mount D 7 {rest}"), None),
            (format!("12 ) ( D 7 {rest}"), None),
            ("12 (mount) D 7 9 9 0 -1".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse(&line), expect, "{line}");
        }
    }

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
