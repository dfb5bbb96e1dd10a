//! The faults of a soak.

use std::time::Duration;

use anyhow::Result;

use crate::clock::pause;
use crate::cluster::Cluster;
use crate::draws::Draws;
use crate::faults::{AGENT, CONTROLLER};
use crate::node::Node;

/// A kind of fault.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// `true`: it kills processes with SIGKILL.
    pub(super) kills: bool,
}

const fn kill(name: &'static str) -> Fault {
    Fault { name, kills: true }
}

const fn other(name: &'static str) -> Fault {
    Fault { name, kills: false }
}

/// Faults that a soak draws from.
pub(super) const FAULTS: [Fault; 20] = [
    kill(KILL_CONTROLLER),
    kill(KILL_CONTROLLER),
    kill(KILL_AGENT),
    kill(KILL_AGENT),
    kill(KILL_ALL),
    kill(KILL_RUNNER),
    kill(KILL_RUNNER),
    kill(KILL_BUS),
    kill(POWER_NODE),
    kill(POWER_CONTROLLER),
    other(REBOOT),
    other(CUT),
    other(CUT),
    other(STOP_AGENT),
    other(STOP_CONTROLLER),
    other(RESTART),
    other(REEXEC),
    other(CLOCK),
    other(CANCEL),
    other(DRAIN),
];

const KILL_CONTROLLER: &str = "kill the controller";
const KILL_AGENT: &str = "kill an agent";
const KILL_ALL: &str = "kill the controller and every agent";
const KILL_RUNNER: &str = "kill a runner";
const KILL_BUS: &str = "kill a node's bus";
const POWER_NODE: &str = "cut a node's power";
const POWER_CONTROLLER: &str = "cut the power of the controller's host";
const REBOOT: &str = "reboot a node";
const CUT: &str = "cut a node's network for seconds";
const STOP_AGENT: &str = "stop an agent for seconds";
const STOP_CONTROLLER: &str = "stop the controller for seconds";
const RESTART: &str = "restart a daemon";
const REEXEC: &str = "re-execute a node's systemd";
const CLOCK: &str = "set a clock";
const CANCEL: &str = "cancel a job's scripts";
const DRAIN: &str = "drain a node, and undrain all";

/// Kills the runner of a task, if one runs.
const RUNNER: &str = "unit=$(systemctl list-units --plain --no-legend 'perilog-task-*.service' | sort -R | head -n 1)
[ -z \"$unit\" ] || systemctl kill --kill-who=main --signal=KILL \"${unit%% *}\" || true";
/// Kills the bus and starts another. systemd would ignore a start until it has seen that the process is dead.
const BUS: &str = "pid() { systemctl show --property=MainPID --value dbus.service; }
before=$(pid)
systemctl kill --signal=KILL --kill-who=main dbus.service
while [ \"$(pid)\" = \"$before\" ]; do sleep 0.01; done
systemctl start dbus.service";

/// Strikes with the fault of this name; returns when the struck part may work again.
pub(super) fn strike(cluster: &Cluster, name: &str, draws: &mut Draws) -> Result<()> {
    let (node, controller) = (draws.one_of(cluster.nodes()), cluster.controller()?);
    let seconds = Duration::from_millis(500 + draws.below(7_500));
    match name {
        KILL_CONTROLLER => Cluster::kill_unit(controller, CONTROLLER),
        KILL_AGENT => Cluster::kill_unit(node, AGENT),
        KILL_ALL => {
            cluster.nodes().iter().try_for_each(|node| Cluster::kill_unit(node, AGENT))?;
            Cluster::kill_unit(controller, CONTROLLER)
        }
        KILL_RUNNER => node.sh(RUNNER).map(drop),
        KILL_BUS => node.sh(BUS).map(drop),
        POWER_NODE => power(node),
        POWER_CONTROLLER => power(controller),
        REBOOT => node.reboot(),
        CUT => {
            node.cut()?;
            pause(seconds);
            node.heal()
        }
        STOP_AGENT => stop(node, AGENT, seconds),
        STOP_CONTROLLER => stop(controller, CONTROLLER, seconds),
        RESTART if draws.below(2) == 0 => controller.systemctl(&["restart", CONTROLLER]).map(drop),
        RESTART => node.systemctl(&["restart", AGENT]).map(drop),
        REEXEC => node.systemctl(&["daemon-reexec"]).map(drop),
        CLOCK => {
            let host = if draws.below(2) == 0 { controller } else { node };
            let hours = i64::try_from(draws.below(3))? - 1;
            host.write_file("/run/perilog-fault/clock", (hours * 3600).to_string())
        }
        CANCEL => cancel(cluster, draws),
        _ => {
            // The controller may not answer yet.
            cluster.perilog(&["drain", node.name(), "looked at"])?;
            cluster.perilog(&["undrain", "n[0-3]"]).map(drop)
        }
    }
}

fn power(node: &Node) -> Result<()> {
    node.power_fail()?;
    node.boot()
}

fn stop(node: &Node, unit: &str, length: Duration) -> Result<()> {
    let signal = |signal: &str| node.systemctl(&["kill", "--kill-who=main", signal, unit]);
    signal("--signal=STOP")?;
    pause(length);
    // The watchdog may have ended it meanwhile, and another runs.
    signal("--signal=CONT").map(drop)
}

/// Cancels what runs for one of the open jobs, as an operator does.
fn cancel(cluster: &Cluster, draws: &mut Draws) -> Result<()> {
    let jobs = cluster.perilog(&["--quiet", "ps"])?.stdout;
    let jobs: Vec<&str> = jobs.split_whitespace().collect();
    if !jobs.is_empty() {
        // It may have ended by now.
        cluster.perilog(&["cancel", draws.one_of::<&str>(&jobs)])?;
    }
    Ok(())
}
