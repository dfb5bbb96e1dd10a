//! The store's content: rows, bodies of notices, the snapshot that a start loads, and the parts that a batch needs.

pub(crate) mod body;
mod part;
pub(crate) mod rows;
pub(crate) mod snapshot;
mod source;
