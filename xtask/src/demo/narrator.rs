//! Narrator of a demo: each step, the command as an operator would type it, the output line by line, and the checks.
//!
//! ```text
//! >> a sentence
//!    [ctl]# a command
//!    its output
//!    = a check that holds                  ! a check that fails, and the difference
//! ```

use std::cell::Cell;
use std::fmt::Display;
use std::time::Duration;

use anyhow::Result;
use perilog_tests::{Cluster, Node, Output, Running, ledger};

use crate::stages::print_line;

/// Time limit for each wait of the demo, on a loaded machine; most waits take well under a second.
pub(super) const SOON: Duration = Duration::from_secs(90);

pub(super) struct Narrator<'a> {
    pub(super) cluster: &'a Cluster,
    /// Numbers of checks that held and of checks that failed.
    checks: Cell<(u32, u32)>,
}

impl<'a> Narrator<'a> {
    pub(super) const fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, checks: Cell::new((0, 0)) }
    }
}

impl Narrator<'_> {
    /// Prints a sentence that announces the next step.
    pub(super) fn announce(&self, sentence: &str) -> Result<()> {
        print_line(&format!("\n>> {sentence}"))
    }

    /// Runs a command on a node to its end; shows command and output.
    pub(super) fn show(&self, node: &Node, command: &[&str]) -> Result<Output> {
        print_line(&format!("   [{}]# {}", node.name(), typed(command)))?;
        let output = node.run(command)?;
        for line in output.stdout.lines().chain(output.stderr.lines()) {
            print_line(&format!("   {line}"))?;
        }
        Ok(output)
    }

    /// Runs `perilog` on the controller's node; shows command, output and exit status.
    pub(super) fn perilog(&self, words: &[&str]) -> Result<Output> {
        let output = self.show(self.cluster.controller()?, &[&["perilog"], words].concat())?;
        if let Some(code @ 1..) = output.code() {
            print_line(&format!("   (exit status {code})"))?;
        }
        Ok(output)
    }

    /// Shows a check and counts it as held or failed, by `is_so`. `what` is the sentence that should hold; a failed
    /// check also shows `found`. After a failed check the demo goes on, but fails at its end.
    pub(super) fn check(&self, is_so: bool, what: &str, found: impl Display) -> Result<()> {
        let (held, failed) = self.checks.get();
        self.checks.set(if is_so { (held + 1, failed) } else { (held, failed + 1) });
        if is_so {
            print_line(&format!("   = {what}"))
        } else {
            print_line(&format!("   ! not so: {what}; but: {found}"))
        }
    }

    /// Compares the ledgers (files on the nodes, in which each script notes its begin and its end) with what the
    /// controller says about the job's tasks. Shows the comparison, and counts as a check whether both agree on exactly
    /// `tasks` tasks. `scripts`: each action of the job, with the names of its scripts.
    pub(super) fn compare(&self, job: &str, scripts: &[(&str, &[&str])], tasks: usize) -> Result<()> {
        let comparison = self.cluster.compare(job, scripts)?;
        for line in comparison.to_string().lines() {
            print_line(&format!("   {line}"))?;
        }
        let what = format!("what the {tasks} tasks of {job} wrote into {} is what the controller tells", ledger::PATH);
        let found = format!("{} tasks: {}", comparison.len(), comparison.faults().join("; "));
        self.check(comparison.holds() && comparison.len() == tasks, &what, found)
    }

    /// Prints the last line of the demo, with the number of checks. Returns `true` if all checks held.
    pub(super) fn end(&self, sentence: &str) -> Result<bool> {
        let (held, failed) = self.checks.get();
        match (held, failed) {
            (1.., 0) => print_line(&format!("\n>> {sentence} ({held} checks)"))?,
            _ => print_line(&format!(
                "\n>> NOT AS EXPECTED:  {failed} of {} checks do not hold, see the lines with !",
                held + failed
            ))?,
        }
        Ok(held > 0 && failed == 0)
    }

    /// Starts `perilog` on the controller's node, and leaves it running.
    pub(super) fn start(&self, words: &[&str]) -> Result<Watched> {
        print_line(&format!("   [ctl]# perilog {}", typed(words)))?;
        Ok(Watched { running: self.cluster.start_perilog(words)?, shown: (0, 0) })
    }

    /// Waits until `is_so` returns `true`, and meanwhile shows new output of the command `watched`. After [`SOON`],
    /// returns an error that names `what`, the awaited condition.
    pub(super) fn wait(
        &self,
        what: &str,
        watched: &mut Watched,
        mut is_so: impl FnMut(&mut Watched) -> Result<bool>,
    ) -> Result<()> {
        self.cluster.bed().wait_until(what, SOON, || {
            watched.catch_up()?;
            is_so(watched)
        })
    }

    /// Waits until a command has ended; shows the rest of its output.
    pub(super) fn finish(&self, watched: &mut Watched) -> Result<()> {
        self.wait("perilog has ended", watched, |watched| watched.running.has_ended())?;
        watched.catch_up()?;
        if let Some(code) = watched.running.output()?.code() {
            print_line(&format!("   (exit status {code})"))?;
        }
        Ok(())
    }
}

/// Formats a command as an operator would type it into a shell.
fn typed(command: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%@+[]*".contains(c);
    let word = |word: &&str| {
        if !word.is_empty() && word.chars().all(plain) { (*word).to_owned() } else { format!("'{word}'") }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A running command, whose output the demo shows line by line.
pub(super) struct Watched {
    running: Running,
    /// Number of bytes of stderr and of stdout that the demo has shown.
    shown: (usize, usize),
}

impl Watched {
    fn catch_up(&mut self) -> Result<()> {
        let output = self.running.output()?;
        for (text, shown) in [(&output.stderr, &mut self.shown.0), (&output.stdout, &mut self.shown.1)] {
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            for line in text.get(*shown..whole).unwrap_or_default().lines() {
                print_line(&format!("   {line}"))?;
            }
            *shown = whole.max(*shown);
        }
        Ok(())
    }

    /// Returns `true` if the command has printed this text.
    pub(super) fn has_printed(&mut self, text: &str) -> Result<bool> {
        Ok(self.running.output()?.stdout.contains(text))
    }
}
