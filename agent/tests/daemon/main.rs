//! The agent as a process, between a controller and a systemd that the test plays.

// In tests a panic is a verdict; the lint recognises test functions, but not their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attacker;
#[path = "../../../controller/tests/daemon/authority.rs"]
#[allow(dead_code, reason = "the controller's tests need more of it")]
mod authority;
mod bed;
mod enroll;
#[path = "../../../controller/tests/daemon/log.rs"]
#[allow(dead_code, reason = "the controller's tests need more of it")]
mod log;
mod neighbours;
mod peer;
mod removed;
mod systemd;
mod trace;
