//! The price of one task on a real node with the real systemd: the same unit, made in four ways that take turns.
//!
//! | | from | to |
//! |---|---|---|
//! | agent | Start leaves this end of the link | Finished came, was acknowledged, and the unit is unloaded |
//! | bare | StartTransientUnit is called | JobRemoved came, GetAll was read, StopUnit was called, and the unit is unloaded |
//! | bare, with the runner | the same with `perilog-runner` and the same no-op script in the unit | the same |
//! | systemd-run --wait | it is started | it has ended |
//!
//! The bare unit has the properties that the agent gives a task (a test holds the list against the agent's own), and executes `/bin/true`;
//! the agent's task runs the runner, and that a no-op script, which is a copy of `/bin/true`. So the difference between the first two is all
//! that perilog adds, and the third says what part of it is the runner's. Nobody subscribes to PID 1's signals: that an unit is unloaded is
//! seen by its file going from /run/systemd/transient, which costs PID 1 nothing.
//!
//! All of it runs inside of the node, in one process ([`node`]); this side boots the node.

mod bare;
mod bed;
mod link;
pub(crate) mod node;
mod recipe;
mod wait;

use anyhow::Result;
use serde_json::Value;

use perilog_bench::options::Options;

pub(crate) use bed::NodeBed;

pub(crate) fn run(options: &Options) -> Result<Value> {
    NodeBed::boot()?.run("node-unit", options)
}
