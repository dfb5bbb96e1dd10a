//! A simulated world around perilog's two machines (agent and controller), and the checks of what they do.
//!
//! A [`plan::Plan`] (made from a seed, or kept as a file) lists the events in a world of nodes, network, store and
//! people. [`run`] applies the plan to the *same* `perilog_core::agent::Machine` and
//! `perilog_core::controller::Machine` that the daemons run. After every step it checks the promises of ARCHITECTURE.md
//! against the scripts that really ran (`truth`), never against the opinion of a machine. The same plan always gives
//! the same history, byte for byte.
//!
//! The world has no D-Bus, TLS, SQLite or processes. The tests on real nodes show that the I/O of the daemons behaves
//! as the world models it.

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

/// Runs a plan in a simulated world, and returns the history.
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
