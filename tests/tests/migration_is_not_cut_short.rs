//! A new release migrates the store of an older one while a task runs. However long that takes, the watchdog does not
//! count it: the controller is not ready yet. Nor does the unit's limit of a start end it. Killed within it, the
//! controller migrates again, and nothing is lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Node};

const CONTROLLER: &str = "perilog-controller.service";
/// Much less than the packaged unit's.
const WATCHDOG: &str = "[Service]\nWatchdogSec=2s\n";
/// A service that is ready and then stands still, with the same watchdog.
const STILL: [&str; 10] = [
    "systemd-run",
    "--quiet",
    "--unit=still",
    "--service-type=notify",
    "--property=NotifyAccess=all",
    "--property=WatchdogSec=2s",
    "--property=WatchdogSignal=SIGKILL",
    "sh",
    "-c",
    "systemd-notify --ready; exec sleep infinity",
];
/// Much less than the packaged unit's, and enough for a start on a loaded machine.
const START: &str = "[Service]\nTimeoutStartSec=10s\n";
/// Makes the store one of an earlier version, which has the same tables.
const EARLIER: &str = "import sqlite3
db = sqlite3.connect('/var/lib/perilog/controller.db')
[version] = db.execute('PRAGMA user_version').fetchone()
db.execute(f'PRAGMA user_version = {version - 1}')
print(version - 1)";

const LIMIT: Duration = Duration::from_secs(90);

/// Starts the controller on the store of an earlier release, so that it stops, waits or dies (`order`) within the
/// migration. Returns the version of the store.
fn start_into_migration(cluster: &Cluster, order: &str) -> Result<String> {
    let host = cluster.controller()?;
    cluster.stop_controller()?;
    let version = host.run(&["python3", "-c", EARLIER])?.ok()?;
    host.sh(&format!("mkdir -p /run/perilog-fault && echo {order} >/run/perilog-fault/mid-migration"))?;
    host.sh("chmod 777 /run/perilog-fault /run/perilog-fault/mid-migration")?;
    host.systemctl(&["--no-block", "start", CONTROLLER])?;
    cluster.bed().wait_until(&format!("{order} within the migration"), LIMIT, || {
        Ok(host.try_read_file("/run/perilog-fault/mid-migration")?.is_none())
    })?;
    Ok(version)
}

fn show(host: &Node, property: &str) -> Result<String> {
    host.systemctl(&["show", &format!("--property={property}"), "--value", CONTROLLER])
}

#[test]
fn neither_by_the_watchdog_nor_by_a_kill() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", AT_GATE).build()?;
    let host = cluster.controller()?;
    host.write_file(&format!("/etc/systemd/system/{CONTROLLER}.d/watchdog.conf"), WATCHDOG)?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;

    let version = start_into_migration(&cluster, "stop")?;
    let pid = show(host, "MainPID")?;
    cluster.bed().wait_until("the controller stands still", LIMIT, || {
        Ok(host.sh(&format!("ps -o state= -p {pid}"))?.trim() == "T")
    })?;
    // A service that is ready is ended by the same watchdog, twice over.
    for _ in 0..2 {
        host.run(&STILL)?.ok()?;
        cluster.bed().wait_until("the watchdog ends a service that stands still", LIMIT, || {
            Ok(host.run(&["systemctl", "show", "--property=Result", "--value", "still"])?.stdout.trim() == "watchdog")
        })?;
        host.sh("systemctl reset-failed still")?;
    }
    ensure!(show(host, "ActiveState")? == "activating", "{}", host.diagnosis());
    ensure!(show(host, "MainPID")? == pid, "{}", host.diagnosis());
    host.sh(&format!("kill -CONT {pid}"))?;
    cluster.wait_online()?;
    ensure!(show(host, "MainPID")? == pid, "{}", host.diagnosis());
    host.sh(&format!("test -s /var/lib/perilog/controller.db-version-{version}"))?;

    start_into_migration(&cluster, "kill")?;
    cluster.wait_online()?;
    ensure!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}

#[test]
fn nor_by_the_limit_of_a_start() -> Result<()> {
    let cluster = Cluster::builder(1).build()?;
    let host = cluster.controller()?;
    host.write_file(&format!("/etc/systemd/system/{CONTROLLER}.d/start.conf"), START)?;
    cluster.boot()?;
    host.sh("mkdir -p -m 777 /run/perilog-fault && mkfifo /run/perilog-fault/go && chmod 666 /run/perilog-fault/go")?;
    start_into_migration(&cluster, "wait")?;
    let pid = show(host, "MainPID")?;
    // systemd ends a service that never becomes ready, and asks for no more time, by the same limit, twice over.
    for unit in ["--unit=never-ready", "--unit=nor-this"] {
        let limit = "--property=TimeoutStartSec=10s";
        let ended = host.run(&["systemd-run", unit, "--service-type=notify", limit, "sleep", "infinity"])?;
        ensure!(!ended.success() && ended.stderr.contains("timeout"), "{ended}");
    }
    ensure!(show(host, "ActiveState")? == "activating", "{}", host.diagnosis());
    ensure!(show(host, "MainPID")? == pid, "{}", host.diagnosis());
    host.sh("echo >/run/perilog-fault/go")?;
    cluster.wait_online()?;
    ensure!(show(host, "MainPID")? == pid, "{}", host.diagnosis());
    Ok(())
}
