//! The store's content: rows, the changes of a commit, and the snapshot that a start loads.

pub(crate) mod body;
pub(crate) mod rows;
pub(crate) mod snapshot;
