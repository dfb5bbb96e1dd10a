//! The kernel's line about a process, /proc/PID/stat (proc_pid_stat(5)), and its other files there.

use std::fmt::Display;
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
    /// Reads the line of the process `pid`. `None`: there is no such process, /proc does not show it, or the line is
    /// malformed.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&read(pid, "stat")?)
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

/// Reads the file `name` of the directory /proc/PID. `None`: there is no such process, or /proc does not show the file.
/// The kernel cuts a process's name at 15 bytes and shows it as it is: bytes that are no UTF-8 become U+FFFD.
pub fn read(pid: impl Display, name: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).ok()?).into_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

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

    #[test]
    fn a_name_that_is_no_utf_8_hides_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(OsStr::from_bytes(b"a\xffb"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("1000").spawn().unwrap();
        // Until the kernel executes the program, the process has the name of this one.
        let stat = std::iter::repeat_with(|| Stat::of(child.id().try_into().unwrap()).unwrap())
            .find(|stat| stat.parent == std::process::id() as i32 && stat.command.starts_with("a\u{fffd}"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stat.unwrap().command, "a\u{fffd}b");
    }
}
