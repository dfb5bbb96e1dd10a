//! The controller's machine: all decisions about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds the machine from the store. [`Machine::handle`] takes a batch of inputs; it returns the
//! records to commit, and the effects that may leave after the commit. [`Writer`] is the step that commits them.
//!
//! | folder | decides |
//! |---|---|
//! | `interface` | nothing: inputs, effects, requests, replies and views as values |
//! | `stored` | nothing: rows, and the snapshot that a start loads |
//! | `job` | attempts: which ranks a job holds, how it hands them over, what another attempt supersedes, what it tolerates, when it is forgotten |
//! | `action` | actions: where each rank is, in which order ranks begin, when limits end, what the ends add up to; services outside |
//! | `node` | nodes: which session speaks for a host, and how its tasks differ from the store's |
//! | `giveback` | which ranks are released, which hosts are drained, what is told to the resource manager |
//! | `recovery` | what a store that may be behind may do |
//! | `operator` | resolutions, and the quiesced state |
//! | `show` | nothing: what operators see |
//!
//! `machine` is the state and a batch's way through it, `requests` the door for clients, `events` the event log.

mod action;
mod events;
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
