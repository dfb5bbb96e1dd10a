//! systemd re-executes or reloads itself, or the bus restarts, in the middle of a script. The script goes on, and its
//! exact status arrives.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

/// Runs the shell command `fault` during a script, whose exact status must arrive. Asserts that the unit `replaces`, if
/// any, has another main process after the fault.
fn during_a_script(fault: &str, replaces: Option<&str>) -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let pid = |unit| cluster.node(0)?.systemctl(&["show", "--property=MainPID", "--value", unit]);
    let (before, replaced) = (pid("perilog-agent")?, replaces.map(pid).transpose()?);
    cluster.node(0)?.sh(fault)?;
    if let Some(unit) = replaces {
        assert_ne!(Some(pid(unit)?), replaced, "{unit} is another one");
    }
    assert!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    assert_eq!(pid("perilog-agent")?, before, "the agent itself lived through it");
    cluster.assert_ran("j", &["prolog"])?;
    // The agent can still start units.
    cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n0"])?;
    cluster.assert_ran("k", &["prolog"])
}

#[test]
fn daemon_reexec() -> Result<()> {
    during_a_script("systemctl daemon-reexec", None)
}

#[test]
fn daemon_reload() -> Result<()> {
    during_a_script("systemctl daemon-reload", None)
}

#[test]
fn restart_of_the_bus() -> Result<()> {
    // systemd would ignore a start until systemd has seen that the process is dead.
    let kill = "\
pid() { systemctl show --property=MainPID --value dbus.service; }
before=$(pid)
systemctl kill --signal=KILL --kill-who=main dbus.service
while [ \"$(pid)\" = \"$before\" ]; do sleep 0.01; done
systemctl start dbus.service";
    during_a_script(kill, Some("dbus.service"))
}

#[test]
fn bus_away_until_the_script_has_ended() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    cluster.node(0)?.sh("systemctl stop dbus.socket dbus.service")?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.node(0)?.sh("systemctl start dbus.socket dbus.service")?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}
