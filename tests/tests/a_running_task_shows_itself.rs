//! An administrator sees a running script, and later the finished job, with systemd's own tools.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, Running};

const SOON: Duration = Duration::from_secs(90);
const AT_GATE: &str = "echo said first\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit 0";
/// Lines of controller.toml: a release hook that prints two lines and fails.
const HOOK: &str =
    "[release]\ncommand = [\"/bin/sh\", \"-c\", \"echo it was asked >&2; echo and is busy >&2; exit 7\"]\n";

#[test]
fn in_systemctl_and_in_the_journal() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).controller(HOOK).build()?;
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
    // The agent logs only unusual events: here, the intent of a running task disappears, and the agent restarts.
    node.sh(
        "systemctl stop perilog-agent; rm /run/perilog/tasks/perilog-task-prolog-j-*/intent.json; systemctl start \
         perilog-agent",
    )?;
    cluster.open_gates()?;
    ensure!(cluster.wait_end(&mut run)? == 0);
    let of = |more: &str| format!("journalctl --sync; journalctl --no-pager -o cat PERILOG_JOB=j {more}");
    let script = node.sh(&of("PERILOG_RANK=0"))?;
    ensure!(script.contains("said first"), "{script}");
    let agent = node.sh(&of("SYSLOG_IDENTIFIER=perilog-agent PERILOG_RANK=0"))?;
    ensure!(agent.contains("is missing; the agent rebuilds it from the unit"), "{agent}");
    let of_controller = of("SYSLOG_IDENTIFIER=perilog-controller");
    let daemon = cluster.controller()?.sh(&of_controller)?;
    ensure!(daemon.contains("prolog of j: ok"), "{daemon}");
    // The hook fails, and the journal has the hook's whole output.
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    let mut hook = String::new();
    let logged = cluster.bed().wait_until("the hook is in the journal of the job", SOON, || {
        hook = cluster.controller()?.sh(&of_controller)?;
        Ok(["the hook failed for the release of job j", "exit status: 7: and is busy", "\nit was asked\n"]
            .iter()
            .all(|part| hook.contains(part)))
    });
    ensure!(logged.is_ok(), "{hook}");
    Ok(())
}

/// Regression test: on a busy machine, journald read a script's lines only after the unit's end, and stored them
/// without the unit's slice. `perilog logs` must show such lines, too.
#[test]
fn logs_of_a_script_that_ended_before_journald_read() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-print", "echo not shown yet").boot()?;
    let node = cluster.node(0)?;
    node.sh("systemctl kill --signal=STOP systemd-journald")?;
    let ran = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    node.sh("systemctl kill --signal=CONT systemd-journald")?;
    ran.ok()?;
    let logs = cluster.perilog(&["logs", "j"])?.ok()?;
    ensure!(logs.contains("not shown yet"), "{logs}");
    Ok(())
}

/// Regression test: the second answer of the node had more lines than the first. `perilog logs --follow` found no
/// common part, and printed every line again.
#[test]
fn logs_follow_prints_each_line_once() -> Result<()> {
    let lines = "seq -f 'line %g' 150\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nseq -f 'line %g' 151 160";
    let cluster = Cluster::builder(1).script("prolog", "10-print", lines).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    cluster.bed().wait_until("the first lines are in the journal", SOON, || {
        Ok(cluster.perilog(&["logs", "j", "-n", "1"])?.stdout.contains(": line 150"))
    })?;
    let wait_printed = |follower: &mut Running, last: &str| {
        cluster.bed().wait_until(&format!("{last} is printed"), SOON, || Ok(follower.output()?.stdout.contains(last)))
    };
    let mut followers = Vec::new();
    for arguments in [&["--quiet", "logs", "j", "-f"][..], &["--quiet", "logs", "j", "-f", "-n", "3"]] {
        let mut follower = cluster.start_perilog(arguments)?;
        wait_printed(&mut follower, "line 150\n")?;
        followers.push(follower);
    }
    cluster.open_gates()?;
    ensure!(cluster.wait_end(&mut run)? == 0);
    for (mut follower, first) in followers.into_iter().zip([51, 148]) {
        wait_printed(&mut follower, "line 160\n")?;
        let printed = follower.kill()?.stdout;
        let number = |line: &str| line.rsplit_once(": line ")?.1.parse::<u32>().ok();
        let read: Vec<u32> = printed.lines().filter_map(number).collect();
        ensure!(read.iter().copied().eq(first..=160), "{printed}");
    }
    Ok(())
}
