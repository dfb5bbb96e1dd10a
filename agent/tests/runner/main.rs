//! The real perilog-runner and perilog-report on a run directory of their own, without systemd and without an agent: what they do, and which
//! files they leave. Needs root (to become other users, and because only root's scripts are run), and says so where it is not.
//!
//! Nothing here waits for a while; everything waits for a line of output, a file that is a pipe, or an end.

// In tests a panic is a verdict; the lint knows functions marked as tests only, not what they share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
mod claim;
mod identity;
mod limits;
mod order;
mod output;
mod reports;
mod signals;
