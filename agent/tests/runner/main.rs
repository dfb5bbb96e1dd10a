//! Tests of the real perilog-runner and perilog-report on a run directory of their own, without systemd and agent:
//! their behaviour, and the files that they leave. They need root, to become other users and because only root's
//! scripts run, and fail with a message without it.
//!
//! No test sleeps; each waits for a line of output, a file that is a pipe, or an end.

// In tests a panic is a verdict; the lint recognises test functions, but not their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
mod claim;
mod identity;
mod leftovers;
mod limits;
mod order;
mod output;
mod reports;
mod signals;
