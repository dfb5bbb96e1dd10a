//! The controller's machine: all decisions about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds the machine from the store. [`Machine::handle`] takes a batch of inputs; it returns the
//! records to commit, and the effects that may leave after the commit. The rooms: `session` and `rivals` (who speaks
//! for a host), `settle` (the tasks that a node holds against the tasks in the store), `recovery` (a store that may be
//! behind), `progress` (what nodes tell), `run` and `requests` (what people ask), `configured` (what nodes say that
//! they run), `resolve`, `forget` and `quiet` (by hand), `finish` (what a job holds, and how the job lets go),
//! `superseded` (by another attempt), `order` (what may begin on a rank), `boot` (a boot that is a task's end), `tally`
//! and `tolerance` (what ends add up to, and what is forgiven), `release` (what goes back), `drain` (who is at fault),
//! `external` and `report` (what a service outside runs, and says), `limits` (what time does), `retention` (what is
//! forgotten), `milestones` (what a job has reached), `events` (what is told), `show` (what is shown). What all of them
//! share: `attempt`, `action` and `layout` as values, `io` and `request` as what goes in and out, `rows` as what the
//! store keeps, `writer` as the step that commits what the machine gave before any of it leaves.

mod action;
mod attempt;
mod body;
mod boot;
mod configured;
mod drain;
mod events;
mod external;
mod finish;
mod forget;
pub mod io;
mod jobs;
mod layout;
mod limits;
mod machine;
mod milestones;
mod order;
mod outbox;
mod progress;
mod quiet;
mod recovery;
mod release;
mod report;
pub mod request;
mod requests;
mod resolve;
mod retention;
mod rivals;
mod rows;
mod run;
mod session;
mod settle;
mod show;
mod snapshot;
mod stands;
mod superseded;
mod tally;
#[cfg(test)]
mod tests;
mod tolerance;
pub mod view;
mod writer;

pub use body::Body;
pub use io::{Effect, Input, Now, Output, Record, Settings, Snapshot};
pub use layout::Layout;
pub use machine::Machine;
pub use stands::{Holds, Stands};
pub use writer::{Batch, FULL_EVERY_MS, Left, Writer};
