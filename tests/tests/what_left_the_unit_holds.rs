//! A script's process leaves the cgroup of the task's unit, by a PAM session or a scope, and outlives the script: it
//! holds the task, is named, and is reached by every policy and by a kill, as a process in the unit.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, ClusterBuilder, LIMIT, Node};

const SOON: Duration = Duration::from_secs(90);

/// Waits until the process that the script started in the background has become `sleep`, and prints its cgroup.
const MOVED: &str = "until pid=$(pgrep -xf 'sleep 987654'); do sleep 0.05; done\ncat /proc/$pid/cgroup";

/// Returns a script that starts `sleep 987654` by `how`, in the background, and ends with 0. In `how`, `SH` stands for
/// a shell command that ignores TERM.
fn leaves(how: &str) -> String {
    let command = r#"'trap "" TERM; exec setsid sleep 987654'"#;
    format!("{} </dev/null >/dev/null 2>&1 &\n{MOVED}\nexit 0", how.replace("SH", command))
}

const BY_SU: &str = "su alice -c SH";

fn is_alive(node: &Node) -> Result<bool> {
    Ok(node.run(&["pgrep", "-xf", "sleep 987654"])?.success())
}

/// Waits until `perilog ps` names the process with a cgroup that has the word `place`.
fn wait_named(cluster: &Cluster, place: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("ps names what is in {place}"), SOON, || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("lingering") && ps.contains("sleep 987654") && ps.contains(place))
    })
}

fn with_epilog(how: &str) -> ClusterBuilder {
    Cluster::builder(1).script("epilog", "10-gate", &leaves(how))
}

/// Boots a cluster whose node has these lines for the epilog.
fn boot(builder: ClusterBuilder, lines: &str) -> Result<Cluster> {
    let cluster = builder.build()?;
    cluster.node(0)?.write_file("/etc/perilog/agent.d/epilog.toml", format!("[action.epilog]\n{lines}\n"))?;
    cluster.boot()?;
    Ok(cluster)
}

#[test]
fn a_process_of_su_holds_the_release_over_a_kill_of_the_agent() -> Result<()> {
    let cluster = with_epilog(BY_SU).controller("after = [\"epilog\"]\n").boot()?;
    let node = cluster.node(0)?;
    cluster.perilog(&["job", "add", "j", "--nodes", "n0"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    wait_named(&cluster, "session-c1.scope")?;
    let status = node.run(&["systemctl", "status", "perilog-task-epilog-j-*.service"])?;
    ensure!(status.stdout.contains("waits for processes that its scripts left behind"), "{status}");
    cluster.renew_agent(0)?;
    cluster.wait_online()?;
    wait_named(&cluster, "session-c1.scope")?;
    ensure!(cluster.job("j")?.attempts[0].released.is_empty(), "released under a live process");
    let why = cluster.perilog(&["why", "n0"])?.ok()?;
    ensure!(why.contains("sleep 987654") && why.contains("perilog kill"), "{why}");
    node.sh("pkill -KILL -xf 'sleep 987654'")?;
    ensure!(cluster.perilog(&["wait", "j", "--for", "clean"])?.success());
    cluster.assert_ran("j", &["epilog"])
}

#[test]
fn each_way_out_of_the_unit_is_named_and_killed() -> Result<()> {
    let ways = [
        ("su", BY_SU, "session-c"),
        ("login", "su - alice -c SH", "session-c"),
        ("runuser", "runuser -l alice -c SH", "session-c"),
        ("user", "runuser -u alice -- sh -c SH", "uid 64001)"),
        ("setpriv", "setpriv --reuid alice --clear-groups sh -c SH", "uid 64001)"),
        ("scope", "systemd-run --quiet --scope --unit=mine sh -c SH", "mine.scope"),
    ];
    let arms: String = ways.iter().map(|(job, how, _)| format!("{job}) {} ;;\n", leaves(how))).collect();
    let cluster =
        Cluster::builder(1).script("epilog", "10-gate", &format!("case $PERILOG_JOB in\n{arms}\nesac")).boot()?;
    for (job, _, place) in ways {
        let mut run = cluster.start_perilog(&["run", "epilog", "--job", job, "--nodes", "n0"])?;
        wait_named(&cluster, place)?;
        ensure!(!run.has_ended()?, "{job}: it ended with a live process");
        cluster.perilog(&["kill", job, "--signal", "KILL"])?.ok()?;
        ensure!(cluster.wait_end(&mut run)? == 0, "{job}: {}", run.output()?);
        ensure!(!is_alive(cluster.node(0)?)?, "{job}: it lives");
        let lingering = &cluster.job(job)?.attempts[0].actions[0].ended[0].ended.lingering;
        ensure!(lingering.iter().any(|process| process.command.contains("sleep 987654")), "{job}: {lingering:?}");
    }
    Ok(())
}

#[test]
fn the_policy_kill_reaches_a_process_of_su() -> Result<()> {
    let cluster = boot(with_epilog(BY_SU), "lingering = \"kill\"")?;
    let run = cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    ensure!(run.success() && !is_alive(cluster.node(0)?)?, "{run}");
    let lingering = &cluster.job("j")?.attempts[0].actions[0].ended[0].ended.lingering;
    ensure!(lingering.iter().any(|process| process.command.contains("session-c")), "{lingering:?}");
    Ok(())
}

#[test]
fn a_limit_that_kills_reaches_a_process_of_su() -> Result<()> {
    let hangs = leaves(BY_SU).replace("exit 0", "sleep 1000");
    let builder = Cluster::builder(1).script("epilog", "10-hangs", &hangs);
    let cluster = boot(builder, &format!("timeout = \"{LIMIT}\"\non-timeout = \"kill\""))?;
    let run = cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    ensure!(run.stdout.contains("timeout") && !is_alive(cluster.node(0)?)?, "{run}");
    ensure!(cluster.outcome("j", "epilog", 0)?.0 == "timeout");
    Ok(())
}

/// A killed runner makes a failure, so its node is drained, whatever lives there.
#[test]
fn a_runner_that_is_killed_while_it_waits_makes_a_failure() -> Result<()> {
    let cluster = with_epilog(BY_SU).boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    wait_named(&cluster, "session-c1.scope")?;
    cluster.node(0)?.sh("systemctl kill --kill-who=main --signal=KILL 'perilog-task-epilog-j-0-*.service'")?;
    ensure!(cluster.wait_end(&mut run)? == 1);
    ensure!(cluster.outcome("j", "epilog", 0)?.1 == "failed (its runner was killed: signal KILL)");
    let drained = cluster.perilog(&["drain"])?.ok()?;
    ensure!(drained.contains("n0"), "{drained}");
    Ok(())
}

/// A prolog mounts a file system of FUSE, whose daemon is to stay; the epilog unmounts it.
#[test]
fn a_mount_daemon_that_is_meant_to_stay_outlives_its_task() -> Result<()> {
    let cluster = Cluster::builder(1)
        .script("prolog", "10-mount", "mkdir -p /srv/data /mnt/data && bindfs --no-allow-other /srv/data /mnt/data")
        .script("epilog", "10-unmount", "umount /mnt/data")
        .build()?;
    let node = cluster.node(0)?;
    node.write_file("/etc/perilog/agent.d/prolog.toml", "[action.prolog]\nlingering = \"keep\"\n")?;
    node.write_file("/srv/data/file", "here\n")?;
    cluster.boot()?;
    cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?.ok()?;
    let lingering = &cluster.job("j")?.attempts[0].actions[0].ended[0].ended.lingering;
    ensure!(lingering.iter().any(|process| process.command.contains("bindfs")), "{lingering:?}");
    // The unit of the task has been stopped, and the mount works.
    cluster.bed().wait_until("the prolog's unit is stopped", SOON, || {
        Ok(node
            .systemctl(&["list-units", "--state=active", "--plain", "--no-legend", "perilog-task-prolog-*"])?
            .is_empty())
    })?;
    ensure!(node.sh("cat /mnt/data/file")? == "here");
    cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?.ok()?;
    ensure!(!node.run(&["mountpoint", "-q", "/mnt/data"])?.success());
    Ok(())
}
