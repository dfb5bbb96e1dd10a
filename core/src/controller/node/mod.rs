//! Nodes: which session speaks for a host, and the tasks that its Hello reports against the tasks in the store.

pub(in crate::controller) mod configured;
pub(in crate::controller) mod duplicate_session;
mod forget;
mod reconcile;
pub(in crate::controller) mod session;
