//! The controller's machine: all decisions about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds the machine from the store. [`Machine::handle`] takes a batch of inputs; it returns the
//! records to commit, and the effects that may leave after the commit. [`Writer`] is the step that commits them.
//!
//! | folder | decides |
//! |---|---|
//! | `interface` | nothing: inputs, effects, requests, replies and views as values |
//! | `stored` | nothing: rows, and the snapshot that a start loads |
//! | `job` | attempts: the ranks that a job holds, hand-overs, superseding, tolerance, retention |
//! | `action` | actions: rank states, the order of ranks, limits, verdicts; external actions |
//! | `node` | nodes: the session that speaks for a host; differences between its tasks and the store |
//! | `giveback` | released ranks, drained hosts, notices to the resource manager |
//! | `recovery` | the acts that are allowed to a store that may be behind |
//! | `operator` | resolutions, and the quiesced state |
//! | `show` | nothing: the views for operators |
//!
//! `machine` is the state and a batch's way through it, `context` the batch's time, settings and output, `requests` the
//! door for clients, `events` the event log.

mod action;
mod context;
mod events;
mod facts;
mod giveback;
mod interface;
mod job;
mod machine;
mod node;
mod operator;
mod recovery;
mod requests;
mod show;
mod stored;
#[cfg(test)]
mod tests;
mod writer;

pub use action::stands::{Holds, Stands};
pub use interface::{io, overview, request, view};
pub use io::{Effect, Input, Now, Output, Record, Settings, Snapshot};
pub use job::layout::Layout;
pub use machine::Machine;
pub use stored::body::Body;
pub use writer::{Batch, FULL_EVERY_MS, Left, Writer};
