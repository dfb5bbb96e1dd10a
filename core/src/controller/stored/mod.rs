//! The store's content: rows, the changes of a commit, and the snapshot that a start loads.

pub(in crate::controller) mod body;
pub(in crate::controller) mod rows;
pub(in crate::controller) mod snapshot;
