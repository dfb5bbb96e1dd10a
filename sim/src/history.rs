//! What is kept of a history: its lines, where somebody reads them; what was violated; how much happened.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

/// The lines of a history.
#[derive(Debug, Default)]
pub struct Trace {
    text: Option<String>,
    /// Events so far.
    pub steps: u64,
}

impl Trace {
    pub fn read() -> Self {
        Self { text: Some(String::new()), steps: 0 }
    }

    /// Only counted: writing lines that nobody reads takes nine tenths of the time.
    pub fn unread() -> Self {
        Self::default()
    }

    pub(crate) const fn is_read(&self) -> bool {
        self.text.is_some()
    }

    pub(crate) fn say(&mut self, t: u64, line: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            // A String never fails to be written to.
            let _ = writeln!(text, "{:>6}.{:03}  {}", t / 1000, t % 1000, line());
        }
    }

    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

/// What must never be, and was.
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

/// A history that is over.
#[derive(Debug)]
pub struct History {
    pub trace: Trace,
    pub violation: Option<Violation>,
    /// Faults that were done.
    pub injected: u64,
    /// Scripts that ran, and tasks whose outcome was committed.
    pub scripts: u64,
    pub outcomes: u64,
    /// How often each trap was sprung.
    pub hits: BTreeMap<(String, &'static str), u64>,
}
