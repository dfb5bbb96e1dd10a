//! The store's content: rows and their deltas, bodies of notices, and sources of attempts.

pub(crate) mod body;
pub(crate) mod delta;
pub(crate) mod rows;
mod source;
