//! A seeded world around perilog's two machines, and the truth that checks them.
//!
//! A [`plan::Plan`] (made from a seed, or kept as a file) lists the events in a world of nodes, network, store and
//! people. [`run`] applies the plan to the *same* `perilog_core::agent::Machine` and
//! `perilog_core::controller::Machine` that the daemons run, and checks after every step the promises of
//! ARCHITECTURE.md. The reference is the scripts that really ran (`truth`), never the opinion of a machine. One plan is
//! one history, byte for byte.
//!
//! Not here: D-Bus, TLS, SQLite, processes. The tests on real nodes show that the I/O of the daemons behaves as the
//! world models it.

pub mod campaign;
pub mod history;
pub mod plan;
pub mod report;
pub mod rng;
pub mod shrink;
mod truth;
mod world;

use history::{History, Trace};
use plan::Plan;

/// Runs a plan in a world, and returns the history.
pub fn run(plan: &Plan, trace: Trace) -> History {
    let mut world = world::World::new(plan.clone(), trace);
    world.run();
    History {
        violation: world.violation,
        injected: world.injected,
        scripts: world.truth.scripts,
        outcomes: world.truth.outcomes,
        hits: world.traps.hits,
        memory: world.memory,
        trace: world.trace,
    }
}
