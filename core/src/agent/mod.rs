//! The agent's machine: everything a node decides about its tasks.

pub mod io;

pub use io::{Effect, Input, Node, Now, Policy};
