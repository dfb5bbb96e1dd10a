//! The unit's status text, which `systemctl status` shows: `prolog f123 rank 3: 2/4 20-lustre, mounting /p/lustre1`.

use perilog_core::task::Start;
use perilog_host::notify;

#[derive(Debug)]
pub(crate) struct Headline {
    task: String,
    of: usize,
    script: String,
}

impl Headline {
    /// `of`: how many scripts there are.
    pub(crate) fn new(start: &Start, of: usize) -> Self {
        Self { task: format!("{} {} rank {}", start.action, start.job, start.task.rank), of, script: String::new() }
    }

    /// The `index`th script begins, counted from 1.
    pub(crate) fn script(&mut self, index: usize, name: &str) {
        self.script = format!("{index}/{} {name}", self.of);
        notify::status(&format!("{}: {}", self.task, self.script));
    }

    /// What the script is at.
    pub(crate) fn detail(&self, text: &str) {
        notify::status(&format!("{}: {}, {text}", self.task, self.script));
    }

    /// All is over.
    pub(crate) fn end(&self, text: &str) {
        notify::status(&format!("{}: {text}", self.task));
    }
}
