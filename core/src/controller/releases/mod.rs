//! Releases: decides which ranks and named resources are released and when, which hosts are drained, and which
//! notices report both.

pub(crate) mod fault;
mod forget_releases;
mod notices;
pub(crate) mod release;
