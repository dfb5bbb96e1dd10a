//! The kernel's line about a process: /proc/PID/stat (proc_pid_stat(5)).

use std::fs;

/// The parts of the line that programs of a node need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub command: String,
    pub state: char,
    pub parent: i32,
    /// Start time in clock ticks since the kernel's boot.
    pub start: u64,
}

impl Stat {
    /// Reads the line of the process `pid`. `None`: there is no such process, or /proc does not show it.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The command is in parentheses, and may itself contain parentheses.
        let (open, close) = (line.find('(')?, line.rfind(')')?);
        let fields: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().take(20).collect();
        Some(Self {
            command: line.get(open + 1..close)?.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
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
            assert_eq!(Stat::parse(&line), expect, "{line}");
        }
        assert!(Stat::of(1).is_some());
    }
}
