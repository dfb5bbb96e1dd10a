//! What an administrator sees with systemd's own tools while a script runs, and of a job that is over.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::Cluster;

const SOON: Duration = Duration::from_secs(90);
const AT_GATE: &str = "echo said first\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit 0";

#[test]
fn in_systemctl_and_in_the_journal() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.node(0)?.write_file("/etc/perilog/agent.d/zz.toml", "[action.prolog]\nscript-timeout = \"5m\"\n")?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let node = cluster.node(0)?;
    let mut shown = String::new();
    let seen = cluster.bed().wait_until("systemctl status tells of the task", SOON, || {
        shown = node.sh("systemctl status --no-pager 'perilog-task-*' || true")?;
        Ok(["prolog of job j, rank 0 (attempt ", "prolog j rank 0: 1/1 10-gate (since ", "Z, limit 5m)", "said first"]
            .iter()
            .all(|part| shown.contains(part)))
    });
    ensure!(seen.is_ok(), "{shown}");
    cluster.open_gates()?;
    ensure!(cluster.wait_end(&mut run)? == 0);
    let script = node.sh("journalctl --sync; journalctl --no-pager -o cat PERILOG_JOB=j PERILOG_RANK=0")?;
    ensure!(script.contains("said first"), "{script}");
    let daemon = "journalctl --sync; journalctl --no-pager -o cat PERILOG_JOB=j SYSLOG_IDENTIFIER=perilog-controller";
    let daemon = cluster.controller()?.sh(daemon)?;
    ensure!(daemon.contains("prolog of j: ok"), "{daemon}");
    Ok(())
}
