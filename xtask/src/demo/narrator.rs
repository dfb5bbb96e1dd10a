//! How the demo talks: what is done, the command as an operator would type it, and what that said, as it says it.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{Cluster, Node, Running};

use crate::stages::say;

/// For a loaded machine; each wait of the demo takes well under a second.
const SOON: Duration = Duration::from_secs(90);

pub(super) struct Narrator<'a> {
    pub(super) cluster: &'a Cluster,
}

impl Narrator<'_> {
    /// What happens next, in a sentence.
    pub(super) fn tell(&self, sentence: &str) -> Result<()> {
        say(&format!("\n>> {sentence}"))
    }

    /// A command that ends by itself, shown with all it says.
    pub(super) fn show(&self, node: &Node, command: &[&str]) -> Result<()> {
        say(&format!("   [{}]# {}", node.name(), command.join(" ")))?;
        let output = node.run(command)?;
        for line in output.stdout.lines().chain(output.stderr.lines()) {
            say(&format!("   {line}"))?;
        }
        Ok(())
    }

    /// `perilog` on the controller's node, left running.
    pub(super) fn start(&self, words: &[&str]) -> Result<Watched> {
        say(&format!("   [ctl]# perilog {}", words.join(" ")))?;
        Ok(Watched { running: self.cluster.start_perilog(words)?, shown: (0, 0) })
    }

    /// Waits for a condition, showing what `watched` says meanwhile.
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

    /// Waits until a command has ended, showing the rest of what it says.
    pub(super) fn finish(&self, watched: &mut Watched) -> Result<()> {
        self.wait("perilog has ended", watched, |watched| watched.running.has_ended())?;
        watched.catch_up()?;
        if let Some(code) = watched.running.output()?.code() {
            say(&format!("   (exit status {code})"))?;
        }
        Ok(())
    }
}

/// A command whose lines are shown as they come.
pub(super) struct Watched {
    running: Running,
    /// Bytes of its errors and of its output that were shown.
    shown: (usize, usize),
}

impl Watched {
    fn catch_up(&mut self) -> Result<()> {
        let output = self.running.output()?;
        for (text, shown) in [(&output.stderr, &mut self.shown.0), (&output.stdout, &mut self.shown.1)] {
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            for line in text.get(*shown..whole).unwrap_or_default().lines() {
                say(&format!("   {line}"))?;
            }
            *shown = whole.max(*shown);
        }
        Ok(())
    }

    /// Has it said this?
    pub(super) fn said(&mut self, text: &str) -> Result<bool> {
        Ok(self.running.output()?.stdout.contains(text))
    }
}
