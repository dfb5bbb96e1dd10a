//! A seeded world around perilog's two machines, and the truth that they are held against.
//!
//! A [`plan::Plan`] (made from a seed, or kept as a file) says what is done to a world of nodes, network, store and
//! people; [`run`] lets it happen to the *same* `perilog_core::agent::Machine` and `perilog_core::controller::Machine`
//! that the daemons run, and checks after every step what ARCHITECTURE.md promises: against the scripts that really ran
//! (`truth`), never against what a machine believes. One plan is one history, byte for byte.
//!
//! Not here: D-Bus, TLS, SQLite, processes. That the daemons' edges are as the world models them is for the tests on
//! real nodes to show.

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

/// Lets a plan happen.
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
