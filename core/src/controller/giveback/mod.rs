//! Giving back: which ranks and resources go back to the resource manager and when, which hosts are drained, and which
//! notices tell of both.

pub(crate) mod drain;
pub(crate) mod fault;
mod notices;
pub(crate) mod outbox;
pub(crate) mod release;
