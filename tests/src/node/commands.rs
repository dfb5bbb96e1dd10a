//! Commands that run inside of a node, always under a time limit or under the caller's control.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{COMMAND, Node, enter};
use crate::command::{self, Output, Running};

/// Time between a command's TERM and KILL, once the limit has passed.
const GRACE: Duration = Duration::from_secs(2);
/// Number of journal lines per node in a diagnosis.
const JOURNAL_LINES: &str = "60";

impl Node {
    /// Runs a command to the end, at most for a minute; the caller judges the status.
    pub fn run(&self, command: &[&str]) -> Result<Output> {
        self.run_within(COMMAND, command)
    }

    /// Runs a command as [`run`](Self::run) does, with another limit. Past the limit the command gets TERM, then KILL,
    /// and the status is 124 or 137.
    pub fn run_within(&self, limit: Duration, command: &[&str]) -> Result<Output> {
        let mut entered = self.enter()?;
        entered.args(["timeout", "-k"]).arg(GRACE.as_secs().to_string()).arg(limit.as_secs_f64().to_string());
        entered.args(command);
        command::run(self.describe(command), &mut entered, limit + GRACE + COMMAND)
    }

    /// Runs a bash script that must succeed; returns standard output without the last newline.
    pub fn sh(&self, script: &str) -> Result<String> {
        self.run(&["bash", "-euo", "pipefail", "-c", script])?.ok()
    }

    /// Starts a command and leaves the command running.
    pub fn spawn(&self, command: &[&str]) -> Result<Running> {
        let mut entered = self.enter()?;
        entered.args(command);
        Running::start(self.describe(command), &mut entered)
    }

    /// Runs systemctl(1), which must succeed; returns the output.
    pub fn systemctl(&self, arguments: &[&str]) -> Result<String> {
        let command: Vec<&str> = ["systemctl", "--no-pager"].iter().chain(arguments).copied().collect();
        self.run(&command)?.ok()
    }

    fn describe(&self, command: &[&str]) -> String {
        format!("{}: {}", self.name, command.join(" "))
    }

    fn enter(&self) -> Result<Command> {
        Ok(enter(self.leader()?, &["-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]))
    }

    /// Returns a text for error messages: failed units, perilog's units, the output of perilog, and the end of the
    /// journal. For a node that is not booted, the text has only the console and the journal. Never fails.
    pub fn diagnosis(&self) -> String {
        let journal = ["journalctl", "--no-pager", "--quiet", "-o", "short-precise", "-n", JOURNAL_LINES];
        let show = |output: Result<Output>| match output {
            Ok(output) => format!("{}{}", output.stdout, output.stderr),
            Err(error) => format!("{error:#}\n"),
        };
        let (state, answers) = if self.power().as_ref().is_some_and(|power| power.booted) {
            let units = ["systemctl", "--no-pager", "--all", "--plain", "--no-legend", "list-units", "perilog*"];
            let failed = ["systemctl", "--no-pager", "--plain", "--no-legend", "--failed"];
            let views = "for verb in status ps 'controller recover'; do echo \"-- perilog $verb\"; perilog $verb; done";
            let views = ["sh", "-c", views];
            ("on", [self.run(&failed), self.run(&units), self.run(&views), self.run(&journal)].map(show).concat())
        } else {
            // The node's files are visible to the bed, and hidden from the host.
            let mut command = enter(self.hub, &["-m"]);
            command.args(journal).arg("-D").arg(self.bed.join("nodes").join(&self.name).join("upper/var/log/journal"));
            let console = self.lock().as_mut().map(|power| show(power.supervisor.output()));
            let kept = show(command::run(format!("{}: journalctl", self.name), &mut command, COMMAND));
            ("off, or not yet booted", console.unwrap_or_default() + &kept)
        };
        format!("=== {} ({state})\n{answers}", self.name)
    }
}
