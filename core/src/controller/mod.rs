//! The controller's machine: everything that is decided about jobs, actions and ranks.
//!
//! [`Machine::load`] rebuilds it from what the store holds; [`Machine::handle`] takes a batch of inputs and gives what must be committed
//! and, once that is done, what may leave. The rooms: `session` (who speaks for a host), `settle` (what a node holds against what we
//! think), `requests` (what people ask), `limits` (what time does), `events` (what is told), `views` (what is shown); `action` and
//! `layout` are the values that they share.

mod action;
mod events;
pub mod io;
mod layout;
mod limits;
mod machine;
mod requests;
mod session;
mod settle;
pub mod view;
mod views;

pub use io::{Effect, Input, Now, Output, Record, Settings, Snapshot};
pub use layout::Layout;
pub use machine::Machine;
