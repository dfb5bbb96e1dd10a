//! Output of a unit, read from this host's journal: every line once, in order, by the journal's own cursor.

use std::process::{Command, Stdio};

/// Reads the output of a unit from the journal. Each read continues after the last line of the read before.
pub(super) struct Journal {
    unit: String,
    cursor: Option<String>,
}

const CURSOR: &str = "-- cursor: ";

impl Journal {
    pub(super) const fn new(unit: String) -> Self {
        Self { unit, cursor: None }
    }

    /// Returns the lines that the unit's processes have written since the last call; the first call returns all lines
    /// of this boot. Empty if journalctl(1) cannot run.
    pub(super) fn news(&mut self) -> Vec<String> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--boot", "--output=cat", "--show-cursor"]);
        command.arg(match &self.cursor {
            Some(cursor) => format!("--after-cursor={cursor}"),
            None => "--lines=all".to_owned(),
        });
        // Only output of the unit's processes, without systemd's messages about the unit.
        command.arg(format!("_SYSTEMD_UNIT={}", self.unit)).stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(output) = command.output() else { return Vec::new() };
        self.take(&String::from_utf8_lossy(&output.stdout))
    }

    fn take(&mut self, text: &str) -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if let Some(cursor) = lines.last().and_then(|line| line.strip_prefix(CURSOR)).map(str::to_owned) {
            self.cursor = Some(cursor);
            lines.pop();
        }
        lines
    }

    /// Waits until the journal contains all output that the task has written so far.
    pub(super) fn settle() {
        // Fails harmlessly without a journal.
        let _ = Command::new("journalctl")
            .arg("--sync")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_remembered_and_not_shown() {
        let mut journal = Journal::new("u.service".to_owned());
        assert_eq!(journal.take("one\ntwo\n-- cursor: s=1;i=2\n"), ["one", "two"]);
        assert_eq!(journal.cursor.as_deref(), Some("s=1;i=2"));
        // Without new lines, journalctl prints no cursor, and the old cursor stays.
        assert!(journal.take("").is_empty());
        assert_eq!(journal.cursor.as_deref(), Some("s=1;i=2"));
    }
}
