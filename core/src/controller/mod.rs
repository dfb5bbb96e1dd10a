//! The controller's machine: everything that is decided about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds it from what the store holds; [`Machine::handle`] takes a batch of inputs and gives what must be committed
//! and, once that is done, what may leave. The rooms: `session` and `rivals` (who speaks for a host), `settle` (what a node holds against what we
//! think), `rebuild` (a lost store), `progress` (what nodes tell), `run` and `requests` (what people ask), `limits` (what time does), `events` (what is told), `views` (what is shown); `action` and
//! `layout` are the values that they share.

mod action;
mod events;
pub mod io;
mod layout;
mod limits;
mod machine;
mod progress;
mod rebuild;
mod requests;
mod rivals;
mod run;
mod session;
mod settle;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod view;
mod views;

pub use io::{Effect, Input, Now, Output, Record, Settings, Snapshot};
pub use layout::Layout;
pub use machine::Machine;
