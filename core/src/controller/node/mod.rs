//! Nodes: decides which session speaks for a host, and how the tasks in a node's Hello differ from the store.

pub(crate) mod configured;
pub(crate) mod duplicate_session;
mod forget;
mod hello;
mod known;
mod leave;
mod reconcile;
pub(crate) mod session;
