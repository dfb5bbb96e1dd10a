//! The log of a daemon that a test has started.

use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex};

use crate::bed::LIMIT;

/// The lines that a daemon has written to standard error so far.
#[derive(Clone)]
pub(crate) struct Log(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Log {
    pub(crate) fn of(stderr: impl BufRead + Send + 'static) -> Self {
        let log = Self(Arc::default());
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.0.0.lock().unwrap().push(line);
                lines.0.1.notify_all();
            }
        });
        log
    }

    pub(crate) fn text(&self) -> String {
        self.0.0.lock().unwrap().join("\n")
    }

    /// Returns the number of lines so far that contain this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.0.0.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    /// Waits for the first line that contains this text, and returns the line.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_for_more(text, 0)
    }

    /// Waits until more than `seen` lines contain this text; returns the first line after the first `seen` ones.
    pub(crate) fn wait_for_more(&self, text: &str, seen: usize) -> String {
        let (lines, changed) = &*self.0;
        let find = |lines: &[String]| lines.iter().filter(|line| line.contains(text)).nth(seen).cloned();
        let missing = |lines: &mut Vec<String>| find(lines).is_none();
        let (lines, _) = changed.wait_timeout_while(lines.lock().unwrap(), LIMIT, missing).unwrap();
        find(&lines).unwrap_or_else(|| panic!("no {text:?} in the log:\n{}", lines.join("\n")))
    }
}
