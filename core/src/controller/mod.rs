//! The controller's machine: everything that is decided about jobs, actions and ranks.

pub mod io;
pub mod view;

pub use io::{Effect, Input, Now, Record, Settings, Snapshot};
