//! An operator restores the store on two hosts, as the page about two hosts has it, while a script runs: Pacemaker lets
//! the controller alone meanwhile, and afterwards moves it as before. Where the operator forgets that, a controller
//! that Pacemaker starts in the middle reads nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster, Node};

const CONTROLLER: &str = "perilog-controller";
const SOCKET: &str = "perilog-controller.socket";
const STORE: &str = "/var/lib/perilog/controller.db";
/// A copy, on the disk that moves.
const COPY: &str = "/var/lib/perilog/copy.db";

/// What the page has an operator type before and after a restore.
const BEFORE: &str =
    "crm_resource --resource perilog-controller --set-parameter is-managed --meta --parameter-value false";
const AFTER: &str = "crm_resource --cleanup --resource perilog-controller &&
    crm_resource --resource perilog-controller --delete-parameter is-managed --meta";

/// A program in place of the controller's that makes no copy until the test lets it: a large store on a slow disk.
const SLOW: &str = "#!/bin/sh
case \"$*\" in *--copy-to*) touch /run/slow/there; cat /run/slow/go >/dev/null ;; esac
exec /usr/sbin/perilog-controller \"$@\"
";
const LIMIT: Duration = Duration::from_secs(150);

/// Restores a copy on the host with the disk, as the page has it.
fn restore(host: &Node, copy: &str) -> Result<String> {
    host.sh(BEFORE)?;
    let printed = host.run(&["perilog", "controller", "restore", copy])?.ok()?;
    host.sh(AFTER)?;
    Ok(printed)
}

/// Asserts that the socket unit is off: it would start the controller again on a host from which it has moved away.
fn socket_is_off(host: &Node) -> Result<()> {
    let state = host.run(&["systemctl", "is-active", SOCKET])?.stdout;
    ensure!(state.trim() == "inactive", "{SOCKET} on {} is {state}", host.name());
    Ok(())
}

#[test]
fn a_store_is_replaced_where_its_disk_is_and_nowhere_else() -> Result<()> {
    let failover = Failover::boot(Cluster::builder(2).script("epilog", "10-gate", AT_GATE))?;
    let cluster = failover.cluster();
    let (first, second) = (failover.active()?, failover.other(failover.active()?)?);
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.perilog(&["controller", "backup", COPY])?.ok()?;

    // The passive host has no store to replace.
    let refused = second.run(&["perilog", "controller", "restore", COPY])?;
    ensure!(
        !refused.success() && refused.stderr.contains("no file system is mounted on /var/lib/perilog"),
        "{refused}"
    );
    ensure!(second.sh("ls -A /var/lib/perilog")?.is_empty(), "the passive host has a store");

    restore(first, COPY)?;
    failover.wait_settled()?;
    ensure!(failover.active()?.name() == first.name(), "the restore moved the controller");
    socket_is_off(first)?;
    failover.wait("the waiting caller has asked again", || Ok(cluster.perilog(&["ps"])?.stdout.contains(" j ")))?;

    // The controller moves as before: an active socket would have started it again on the first host.
    failover.move_away(first)?;
    failover.wait_answers(second)?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    failover.clear()?;
    failover.wait_settled()?;
    socket_is_off(first)?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());
    // The first host's controller is gone, and the caller there waits.
    run.kill()?;
    cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_verdicts("j")?;
    cluster.assert_ran("j", &["epilog"])?;

    pacemaker_starts_it_in_the_middle(&failover, second)?;
    failover.wait_settled()?;
    Ok(())
}

/// The operator marks the store itself as restored, and does not say so to Pacemaker, which starts the controller again
/// while the store is copied.
fn pacemaker_starts_it_in_the_middle(failover: &Failover, host: &Node) -> Result<()> {
    let cluster = failover.cluster();
    // Its epilogs end as the scripts draw it.
    cluster.perilog(&["run", "epilog", "--job", "k", "--nodes", "n[0-1]"])?;
    host.write_script("/opt/slow/perilog-controller", SLOW)?;
    host.sh("mkdir -m 777 /run/slow && mkfifo /run/slow/go && chmod 666 /run/slow/go && chmod 755 /opt/slow")?;
    let mut restore =
        host.spawn(&["sh", "-c", &format!("PATH=/opt/slow:$PATH exec perilog controller restore {STORE}")])?;
    failover.wait("the store is being copied", || Ok(host.try_read_file("/run/slow/there")?.is_some()))?;
    let words = ["another controller is using this store, or a restore is replacing it"];
    cluster.wait_logged(host, CONTROLLER, &words)?;
    host.sh("echo >/run/slow/go")?;
    let restored = restore.wait(LIMIT)?;
    ensure!(restored.success(), "{restored}");
    failover.wait_answers(host)?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());
    ensure!(cluster.known_job("k")?.is_some(), "what was committed before the restore is lost");
    failover.clear()
}
