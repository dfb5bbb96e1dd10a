//! The store's content: rows, bodies of notices, and the snapshot that a start loads.

pub(crate) mod body;
pub(crate) mod rows;
pub(crate) mod snapshot;
