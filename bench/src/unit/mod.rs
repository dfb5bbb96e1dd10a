//! Price of one task on a real node with the real systemd: the same unit, made in four ways that take turns. The way
//! `bare` runs twice in each turn; the difference shows the noise.
//!
//! | | from | to |
//! |---|---|---|
//! | agent | Start leaves this end of the link | Finished came, was acknowledged, and the unit is unloaded |
//! | bare | StartTransientUnit is called | JobRemoved, GetAll, StopUnit are done, and the unit is unloaded |
//! | bare, with the runner | the same with `perilog-runner` and the same no-op script in the unit | the same |
//! | systemd-run --wait | it is started | it has ended |
//!
//! The bare unit has the properties that the agent gives a task (a test compares the list with the agent's own), and
//! executes `/bin/true`. The agent's task runs the runner, which runs a no-op script, a copy of `/bin/true`. So the
//! difference between the first two is all that perilog adds, and the third shows the runner's part. No process
//! subscribes to PID 1's signals: a unit is unloaded when its file disappears from /run/systemd/transient, which costs
//! PID 1 nothing.
//!
//! Everything runs inside the node, in one process ([`node`]); this side boots the node.

mod bare;
mod bed;
pub(crate) mod hook;
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

pub(crate) fn run_hook(options: &Options) -> Result<Value> {
    NodeBed::boot()?.run("node-hook", options)
}
