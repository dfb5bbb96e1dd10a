//! The real controller over loopback, with real TLS: scripted agents that speak the wire, and clients in plain Python
//! without a library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod agent;
mod api;
mod attacker;
#[allow(dead_code, reason = "the agent's tests need more of it")]
mod authority;
mod bed;
mod crowds;
mod dismantled;
mod edges;
mod full_disk;
#[allow(dead_code, reason = "the agent's tests need more of it")]
mod log;
mod many;
mod metrics;
mod page;
mod python;
mod recovery;
mod refusals;
mod sessions;
mod signals;
mod trace;

/// Returns the path of the controller that the tests start.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_perilog-controller")
}
