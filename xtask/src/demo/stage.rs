//! Cluster of the demos `tolerance` and `release`: four nodes, a controller whose hooks write to a stand-in for the
//! resource manager, and the R of their jobs.

use anyhow::Result;
use perilog_tests::{Cluster, ClusterBuilder, Stopwatch, manager};

use crate::stages::print_line;

/// Resources of the demo's jobs: R of all four nodes.
pub(super) const HANDED: manager::Handed = manager::FOUR;

/// Path on the controller's node of the resource set (R) of all jobs.
pub(super) const R_FILE: &str = "/root/R.json";
/// Boots the cluster. Its daemons stay down when killed, until the demo starts them again. `hook` is sh(1) code that
/// each call of a hook runs first.
pub(super) fn set(builder: ClusterBuilder, hook: &str) -> Result<Cluster> {
    let watch = Stopwatch::start();
    let cluster = builder.controller(manager::CONFIGURATION).build()?;
    cluster.stay_down()?;
    cluster.manage(hook)?;
    cluster.controller()?.write_file(R_FILE, HANDED.r)?;
    cluster.boot()?;
    print_line(&format!(
        ">> a controller and four nodes, each with its own systemd, booted in {:.1} s; the resource manager is a \
         script that\n   writes down what it gets ([release] and [drain] of controller.toml)",
        watch.elapsed().as_secs_f64()
    ))?;
    Ok(cluster)
}
