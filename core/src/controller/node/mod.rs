//! Nodes: the session that speaks for a host, and how the tasks in its Hello differ from the store.

pub(in crate::controller) mod configured;
pub(in crate::controller) mod duplicate_session;
mod forget;
mod reconcile;
pub(in crate::controller) mod session;
