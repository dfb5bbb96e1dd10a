//! The record of a history, which is one run of a simulated world: its lines if a reader asked for them, the violated
//! invariant if there is one, and counts of events.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

/// The text of a history, with a line for each thing that happened, kept only if it will be read. Also the number of
/// its events.
#[derive(Debug, Default)]
pub struct Trace {
    text: Option<String>,
    /// Number of events that the world has handled.
    pub steps: u64,
}

impl Trace {
    pub fn read() -> Self {
        Self { text: Some(String::new()), steps: 0 }
    }

    /// Creates a trace that counts events and keeps no lines. Writing lines takes nine tenths of the time.
    pub fn unread() -> Self {
        Self::default()
    }

    pub(crate) const fn is_read(&self) -> bool {
        self.text.is_some()
    }

    pub(crate) fn log_line(&mut self, t: u64, line: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            // A write to a String never fails.
            let _ = writeln!(text, "{:>6}.{:03}  {}", t / 1000, t % 1000, brief(&line()));
        }
    }

    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

/// A violated invariant: its name, what contradicts it, and the world time in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: String,
    pub text: String,
    pub at_ms: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (at {}.{:03} s)", self.invariant, self.text, self.at_ms / 1000, self.at_ms % 1000)
    }
}

/// The record of one finished run of a simulated world: its text, the violated invariant if there is one, and counts.
#[derive(Debug)]
pub struct History {
    pub trace: Trace,
    pub violation: Option<Violation>,
    /// Number of faults that struck in the world.
    pub injected: u64,
    /// Number of times that a script began.
    pub scripts: u64,
    /// Number of outcomes that controllers committed.
    pub outcomes: u64,
    /// Number of times that each fault struck at each effect, by the names of effect and fault.
    pub hits: BTreeMap<(String, &'static str), u64>,
    /// Number of times that each fault of memory struck, by its name, such as `store lost`: a fault of memory gives a
    /// side another memory than the other side expects ([`crate::plan::Fault::of_memory`]). Also the number of
    /// recoveries that controllers entered and left ([`crate::plan::RECOVERIES`]).
    pub memory: BTreeMap<&'static str, u64>,
}

/// Shortens each task id in a line to the last six digits of the action's id and the rank, for example `6aff6c/3`. The
/// name of the task's unit ends with the same digits.
fn brief(line: &str) -> String {
    const BEFORE: &str = "TaskId { action: ";
    const UUID: usize = 36;
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(BEFORE) {
        text.push_str(&rest[..at]);
        rest = &rest[at + BEFORE.len()..];
        let id = rest.get(UUID - 6..UUID);
        let after = rest.get(UUID..).and_then(|after| after.strip_prefix(", rank: Rank("));
        let (Some(id), Some((rank, after))) = (id, after.and_then(|after| after.split_once(") }"))) else { continue };
        let _ = write!(text, "{id}/{rank}");
        rest = after;
    }
    text.push_str(rest);
    text
}
