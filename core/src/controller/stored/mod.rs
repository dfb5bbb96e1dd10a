//! The store's content: rows, bodies of notices, the snapshot that a start loads, and the parts that a batch needs.

pub(crate) mod body;
pub(crate) mod delta;
pub(crate) mod rows;
mod source;
