//! Trace of a controller: all that its writer hands to the machine, and what comes back. A replay builds the machine
//! from the first line and feeds it the inputs; the outputs must be those of the trace, because equal calls give equal
//! outputs.
//!
//! | line | is |
//! |---|---|
//! | `begin` | the settings, the content of the store, the time: the machine is built from them |
//! | `fetched` | rows of ended jobs that the next batch needs |
//! | `batch` | the time of a batch; its inputs follow |
//! | `input` | an input of the batch |
//! | `record`, `effect` | an output of the batch, or of `begin` |
//! | `failed` | the commit failed; the next line is a `begin` |
//!
//! A trace that was switched on in a running controller has no `begin` before its next start: no replay is possible.

mod replay;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::controller::interface::io::{Fetched, Input, Now, Settings, Snapshot};

pub use replay::{Replayed, replay};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A line of a trace, without its number ([`crate::trace::Line`]).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry<'a> {
    Begin(Begin<'a>),
    Fetched {
        now: Now,
        rows: Cow<'a, Fetched>,
    },
    Batch(Now),
    Input(Cow<'a, Input>),
    /// A record as JSON. A replay compares JSON.
    Record(Value),
    /// An effect as JSON.
    Effect(Value),
    Failed {},
}

/// The version of the program, and the arguments of [`Machine::load`](crate::controller::Machine::load).
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin<'a> {
    pub version: Cow<'a, str>,
    pub now: Now,
    pub nonce: u64,
    pub settings: Cow<'a, Settings>,
    pub stored: Cow<'a, Snapshot>,
}

impl<'a> Begin<'a> {
    pub fn new(stored: &'a Snapshot, settings: &'a Settings, nonce: u64, now: Now) -> Self {
        let (settings, stored) = (Cow::Borrowed(settings), Cow::Borrowed(stored));
        Self { version: VERSION.into(), now, nonce, settings, stored }
    }
}
