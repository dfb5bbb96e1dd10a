//! The faults of a soak.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::clock::pause;
use crate::cluster::Cluster;
use crate::draws::Draws;
use crate::faults::{AGENT, CONTROLLER};
use crate::node::Node;

/// What a strike did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    /// It killed processes with SIGKILL.
    Killed,
    /// It struck in another way.
    Struck,
    /// It found nothing to strike, such as a runner where no task runs.
    Nothing,
}

/// Faults that a soak draws from.
pub(super) const FAULTS: [&str; 20] = [
    KILL_CONTROLLER,
    KILL_CONTROLLER,
    KILL_AGENT,
    KILL_AGENT,
    KILL_ALL,
    KILL_RUNNER,
    KILL_RUNNER,
    KILL_BUS,
    POWER_NODE,
    POWER_CONTROLLER,
    REBOOT,
    CUT,
    CUT,
    STOP_AGENT,
    STOP_CONTROLLER,
    RESTART,
    REEXEC,
    CLOCK,
    CANCEL,
    DRAIN,
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

/// Text that a script below prints when it has sent a signal to a process.
const SENT: &str = "sent";
/// Kills the runner of a task, if one runs.
const RUNNER: &str = "unit=$(systemctl list-units --plain --no-legend 'perilog-task-*.service' | sort -R | head -n 1)
[ -z \"$unit\" ] || ! systemctl kill --kill-who=main --signal=KILL \"${unit%% *}\" || echo sent";
/// Kills the bus and starts another. systemd would ignore a start until it has seen that the process is dead.
const BUS: &str = "pid() { systemctl show --property=MainPID --value dbus.service; }
before=$(pid)
if [ \"$before\" != 0 ] && systemctl kill --signal=KILL --kill-who=main dbus.service; then
    while [ \"$(pid)\" = \"$before\" ]; do sleep 0.01; done
    echo sent
fi
systemctl start dbus.service";

/// Strikes with the fault of this name; returns what it did, when the struck part may work again.
pub(super) fn strike(cluster: &Cluster, name: &str, draws: &mut Draws) -> Result<Did> {
    let (node, controller) = (draws.one_of(cluster.nodes()), cluster.controller()?);
    let seconds = Duration::from_millis(500 + draws.below(7_500));
    match name {
        KILL_CONTROLLER => kill(controller, CONTROLLER),
        KILL_AGENT => kill(node, AGENT),
        KILL_ALL => {
            let mut all = vec![kill(controller, CONTROLLER)?];
            for node in cluster.nodes() {
                all.push(kill(node, AGENT)?);
            }
            Ok(if all.contains(&Did::Killed) { Did::Killed } else { Did::Nothing })
        }
        KILL_RUNNER => node.sh(RUNNER).map(|printed| of_kill(&printed)),
        KILL_BUS => node.sh(BUS).map(|printed| of_kill(&printed)),
        POWER_NODE => power(node).map(|()| Did::Killed),
        POWER_CONTROLLER => power(controller).map(|()| Did::Killed),
        STOP_AGENT => stop(node, AGENT, seconds),
        STOP_CONTROLLER => stop(controller, CONTROLLER, seconds),
        CANCEL => cancel(cluster, draws),
        DRAIN => {
            // The controller may not answer yet.
            let drained = cluster.perilog(&["drain", node.name(), "looked at"])?.success();
            cluster.perilog(&["undrain", "n[0-3]"])?;
            Ok(if drained { Did::Struck } else { Did::Nothing })
        }
        _ => disturb(node, controller, name, seconds, draws).map(|()| Did::Struck),
    }
}

/// Strikes with a fault that kills nothing and always finds what it strikes.
fn disturb(node: &Node, controller: &Node, name: &str, seconds: Duration, draws: &mut Draws) -> Result<()> {
    match name {
        REBOOT => node.reboot(),
        CUT => {
            node.cut()?;
            pause(seconds);
            node.heal()
        }
        RESTART if draws.below(2) == 0 => controller.systemctl(&["restart", CONTROLLER]).map(drop),
        RESTART => node.systemctl(&["restart", AGENT]).map(drop),
        REEXEC => node.systemctl(&["daemon-reexec"]).map(drop),
        CLOCK => {
            let host = if draws.below(2) == 0 { controller } else { node };
            let hours = i64::try_from(draws.below(3))? - 1;
            host.write_file("/run/perilog-fault/clock", (hours * 3600).to_string())
        }
        other => bail!("no fault is called {other:?}"),
    }
}

/// Returns what a script did, by its output.
fn of_kill(printed: &str) -> Did {
    if printed.lines().any(|line| line == SENT) { Did::Killed } else { Did::Nothing }
}

/// Returns a script that sends a signal to the main process of a unit, and prints [`SENT`] if the unit has one. A
/// daemon that was killed a moment ago has none until systemd starts it again.
fn to_main(unit: &str, signal: &str) -> String {
    format!("! systemctl kill --kill-who=main --signal={signal} {unit} || echo {SENT}")
}

/// Kills the main process of a unit with SIGKILL.
fn kill(node: &Node, unit: &str) -> Result<Did> {
    node.sh(&to_main(unit, "KILL")).map(|printed| of_kill(&printed))
}

fn power(node: &Node) -> Result<()> {
    node.power_fail()?;
    node.boot()
}

fn stop(node: &Node, unit: &str, length: Duration) -> Result<Did> {
    if of_kill(&node.sh(&to_main(unit, "STOP"))?) == Did::Nothing {
        return Ok(Did::Nothing);
    }
    pause(length);
    // The watchdog may have ended it meanwhile, and another runs, or none yet.
    node.sh(&to_main(unit, "CONT"))?;
    Ok(Did::Struck)
}

/// Cancels what runs for one of the open jobs, as an operator does.
fn cancel(cluster: &Cluster, draws: &mut Draws) -> Result<Did> {
    let jobs = cluster.perilog(&["--quiet", "ps"])?.stdout;
    let jobs: Vec<&str> = jobs.split_whitespace().collect();
    // The job may have ended by now, and the controller may not answer.
    let cancelled = !jobs.is_empty() && cluster.perilog(&["cancel", draws.one_of::<&str>(&jobs)])?.success();
    Ok(if cancelled { Did::Struck } else { Did::Nothing })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a script of a fault with a stand-in for systemctl(1): `units` are those that it lists, `pid` is the main
    /// process of the bus, and `kill` is the status with which it sends signals.
    fn printed(script: &str, units: &str, pid: &str, kill: &str) -> String {
        let stand_in = "systemctl() {
            case $1 in
                list-units) printf '%s' \"$UNITS\" ;;
                show) if [ -e \"$STRUCK\" ]; then echo 77; else echo \"$PID\"; fi ;;
                kill) : >\"$STRUCK\"; return \"$STATUS\" ;;
            esac
        }";
        let directory = tempfile::tempdir().unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c"]).arg(format!("{stand_in}\n{script}"));
        shell.env("STRUCK", directory.path().join("struck"));
        let output = shell.env("UNITS", units).env("PID", pid).env("STATUS", kill).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_kill_counts_where_a_process_was_killed() {
        let task = "perilog-task-prolog-j1-0.service loaded activating start\n";
        let agent = to_main(AGENT, "KILL");
        for (script, units, pid, kill, expect) in [
            (RUNNER, task, "0", "0", Did::Killed),
            // No task runs on the node.
            (RUNNER, "", "0", "0", Did::Nothing),
            // The runner has ended meanwhile: systemctl says "No main process to kill".
            (RUNNER, task, "0", "1", Did::Nothing),
            (BUS, "", "12", "0", Did::Killed),
            (BUS, "", "0", "0", Did::Nothing),
            (BUS, "", "12", "1", Did::Nothing),
            (agent.as_str(), "", "0", "0", Did::Killed),
            (agent.as_str(), "", "0", "1", Did::Nothing),
        ] {
            let printed = printed(script, units, pid, kill);
            assert_eq!(of_kill(&printed), expect, "{script} {units:?} {pid} {kill}: {printed:?}");
        }
    }
}
