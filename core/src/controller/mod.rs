//! The controller's machine: all decisions about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds the machine from the store. [`Machine::handle`] takes a batch of inputs, and returns the
//! records to commit and the effects that may leave after the commit. [`Writer`] drives both.
//!
//! | folder | decides |
//! |---|---|
//! | `interface` | nothing: inputs, effects, requests, replies and views as values |
//! | `stored` | nothing: rows of the store, and their deltas |
//! | `state` | nothing that concerns several parts: the machine's parts, each with its look-ups and own acts |
//! | `job` | attempts: the ranks that a job holds, hand-overs, superseding, tolerance, retention |
//! | `action` | actions: rank states, the order of ranks, limits, verdicts; external actions |
//! | `memory` | which jobs that have ended the machine holds, and which are in the store alone |
//! | `node` | nodes: the session that speaks for a host; differences between a node's tasks and the store |
//! | `releases` | released ranks, drained hosts, notices to the resource manager |
//! | `edge` | which attempts an edge's list adds, takes up or ends; which requests an edge may make |
//! | `recovery` | what the controller may do while its store may be behind |
//! | `operator` | resolutions, cancels, manual drains |
//! | `show` | nothing: the views for operators |
//! | `snapshot` | nothing: a snapshot as a store, for the simulator and the tests |
//!
//! Files: `machine` is the state, its contract and the way of a batch through it; `load` rebuilds it from the store;
//! `facts` answers questions that need several parts; `requests` passes each client's request to the part that decides;
//! `events` writes ends and drains to the event logs; `parameters` reads the API's forms of values; `settings` applies
//! new settings; `writer` commits batches; `trace` writes what the machine gets and makes of it, and plays it again.
//!
//! All times and spans are milliseconds. Limits, probes and graces count on the monotonic clock (`mono_ms`), which ends
//! with this controller. What the store keeps and people read is wall clock time (`wall_ms`), since 1970.
//!
//! Imports have one direction: `stored`, `interface`, `state`, `machine`, `facts`, then the folders that decide, then
//! `show`. A folder that decides adds acts to `Machine` and to the types in `state`.

mod action;
mod edge;
mod events;
mod facts;
mod interface;
mod job;
mod load;
mod machine;
mod memory;
mod node;
mod operator;
mod parameters;
mod recovery;
mod releases;
mod requests;
mod settings;
mod show;
mod snapshot;
mod state;
mod stored;
#[cfg(test)]
mod tests;
pub mod trace;
mod writer;

pub use action::verdict::{blamed, last_line};
pub use interface::{io, overview, request, view};
pub use io::{Effect, Elsewhere, Input, Now, Output, Record, Settings, Snapshot};
pub use machine::Machine;
pub use memory::Needs;
pub use state::away::{Holding, Oldest};
pub use state::layout::Layout;
pub use state::nodes::FAILED_KEPT;
pub use stored::body::Body;
pub use stored::delta::{ActionDelta, AttemptDelta};
pub use writer::{Batch, FULL_EVERY_MS, Left, Writer};
