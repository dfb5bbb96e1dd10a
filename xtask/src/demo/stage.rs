//! What the demos about verdicts begin with: four nodes, a controller whose hooks are a stand-in for the resource manager, and an R.

use anyhow::Result;
use perilog_core::ResourceSet;
use perilog_tests::{Cluster, ClusterBuilder, Stopwatch, manager};

use crate::stages::say;

/// Where the resource set of the jobs is on the controller's node.
pub(super) const R_FILE: &str = "/root/R.json";
/// Ranks are not counted from 0, as in a job that has a part of a larger machine.
const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"4-7","children":{"core":"0-47","gpu":"0-3"}}],"starttime":0.0,"expiration":0.0,"nodelist":["n[0-3]"]}}"#;

/// Boots the cluster, with daemons that stay down when they are killed.
pub(super) fn set(builder: ClusterBuilder, hook: &str) -> Result<Cluster> {
    let watch = Stopwatch::start();
    let cluster = builder.controller(manager::CONFIGURATION).build()?;
    cluster.stay_down()?;
    cluster.manage(hook)?;
    cluster.controller()?.write_file(R_FILE, R)?;
    cluster.boot()?;
    say(&format!(
        ">> a controller and four nodes, each with its own systemd, booted in {:.1} s; the resource manager is a script that\n   \
         writes down what it is told ([release] and [drain] of controller.toml)",
        watch.elapsed().as_secs_f64()
    ))?;
    Ok(cluster)
}

pub(super) fn r() -> Result<ResourceSet> {
    Ok(ResourceSet::from_json(R)?)
}
