//! A site has drop-ins for all services. The unit of a task stays what it must be; where a file overrides the
//! package's, nothing runs, and the outcome names the file. A site's own drop-in for tasks is in force.

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Node};

/// Mounts a file system; the host sees the mount, and the task may gain privileges.
const MOUNTS: &str = "[ $PERILOG_JOB != bad ] || exit 6
mkdir -p /run/scratch && mount -t tmpfs scratch /run/scratch && touch /usr/local/written
grep -q 'NoNewPrivs:.0' /proc/self/status";
const FOR_ALL: &str = "/etc/systemd/system/service.d/50-site.conf";
const LATE: &str = "/etc/systemd/system/service.d/zzz-site.conf";
const FOR_TASKS: &str = "/etc/systemd/system/perilog-task-.service.d/zzz-site.conf";

fn cluster() -> Result<Cluster> {
    Cluster::builder(1).script("prolog", "10-gate", MOUNTS).boot()
}

/// Puts a drop-in in place between two tasks.
fn put(node: &Node, path: &str, line: &str) -> Result<()> {
    let section = if line.starts_with("StopWhen") { "Unit" } else { "Service" };
    node.write_file(path, format!("[{section}]\n{line}\n"))?;
    node.systemctl(&["daemon-reload"]).map(drop)
}

/// Runs a prolog of the job; returns its outcome's text and what `perilog run` printed.
fn run(cluster: &Cluster, job: &str) -> Result<(String, String)> {
    let ran = cluster.perilog(&["run", "prolog", "--job", job, "--nodes", "n0", "--force"])?;
    Ok((cluster.outcome(job, "prolog", 0)?.1, ran.to_string()))
}

#[test]
fn a_task_is_what_it_must_be_whatever_all_services_are() -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node(0)?;
    for (number, line) in [
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "Restart=on-failure",
        "Restart=always",
        "ExecStartPre=/bin/false",
        "TimeoutStartSec=1ms",
        "StopWhenUnneeded=yes",
        "CapabilityBoundingSet=CAP_CHOWN",
    ]
    .into_iter()
    .enumerate()
    {
        put(node, FOR_ALL, line)?;
        let (outcome, printed) = run(&cluster, &format!("j{number}"))?;
        ensure!(outcome == "ok", "{line}: {outcome}\n{printed}");
        node.sh("umount /run/scratch && rm /usr/local/written").with_context(|| format!("{line}: not on the host"))?;
    }
    put(node, FOR_ALL, "Restart=on-failure\nRestartSec=30")?;
    let (outcome, printed) = run(&cluster, "bad")?;
    ensure!(outcome == "failed (exit 6)", "{outcome}\n{printed}");
    ensure!(node.sh("perilog doctor || true")?.contains("no drop-in overrides the settings of task units"));
    Ok(())
}

#[test]
fn a_drop_in_that_overrides_the_package_is_named_and_nothing_runs() -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node(0)?;
    for (number, (line, what)) in [
        ("PrivateTmp=yes", "a mount namespace of its own"),
        ("ProtectSystem=full", "a mount namespace of its own"),
        ("NoNewPrivileges=yes", "NoNewPrivileges="),
        // Without the empty one, systemd 262 adds to the package's full set.
        ("CapabilityBoundingSet=\nCapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_FOWNER", "CapabilityBoundingSet="),
    ]
    .into_iter()
    .enumerate()
    {
        put(node, LATE, line)?;
        let job = format!("j{number}");
        let (outcome, printed) = run(&cluster, &job)?;
        ensure!(outcome.contains(what) && outcome.contains(LATE), "{line}: {outcome}\n{printed}");
        ensure!(cluster.runs(&job)?.is_empty(), "{line}: a script ran");
        cluster.perilog(&["undrain", "n0"])?;
    }
    // systemd refuses a oneshot with this.
    put(node, LATE, "Restart=always")?;
    let (outcome, printed) = run(&cluster, "refused")?;
    ensure!(outcome.contains("a drop-in gives the task's unit a setting that it cannot have"), "{outcome}\n{printed}");
    let doctor = node.sh("perilog doctor || true")?;
    ensure!(doctor.contains(&format!("{LATE} may change the unit of every task")), "{doctor}");
    Ok(())
}

/// Without the package's drop-in, a unit that systemd restarts ends with its runner, with the runner's status.
#[test]
fn a_unit_that_systemd_restarts_ends_with_its_runner() -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node(0)?;
    for (number, seconds) in ["RestartSec=0", "RestartSec=1h"].into_iter().enumerate() {
        put(node, LATE, &format!("Restart=on-failure\n{seconds}"))?;
        // Both attempts are of the job `bad`, whose script fails.
        let attempt = number.to_string();
        let ran =
            cluster.perilog(&["run", "prolog", "--job", "bad", "--nodes", "n0", "--force", "--attempt", &attempt])?;
        let outcome = cluster.outcome("bad", "prolog", 0)?.1;
        ensure!(outcome == "failed (exit 6)", "{seconds}: {outcome}\n{ran}");
        ensure!(cluster.runs("bad")?.len() == number + 1, "the script began once in each attempt");
        cluster.perilog(&["undrain", "n0"])?;
    }
    Ok(())
}

#[test]
fn a_sites_own_drop_in_for_tasks_is_applied_and_shown() -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node(0)?;
    put(node, FOR_TASKS, "PrivateTmp=yes")?;
    let (outcome, printed) = run(&cluster, "j")?;
    ensure!(outcome == "ok", "{outcome}\n{printed}");
    ensure!(!node.run(&["mountpoint", "-q", "/run/scratch"])?.success(), "the site wished a namespace");
    let doctor = node.sh("perilog doctor || true")?;
    ensure!(doctor.contains(&format!("the site's own drop-ins for task units are in effect: {FOR_TASKS}")), "{doctor}");
    let tried = node.sh("perilog try /etc/perilog/prolog.d 2>&1 || true")?;
    ensure!(tried.contains(&format!("the site's drop-in {FOR_TASKS} for tasks is in effect")), "{tried}");
    Ok(())
}

/// Where systemd ends a unit before its runner can look, the outcome says where the drop-in is named.
#[test]
fn a_unit_that_a_drop_in_ends_is_no_success_and_says_who_knows() -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node(0)?;
    let doctor = "on that node, `perilog doctor` names the drop-ins that change the unit";
    for (number, (line, what)) in [
        ("ExecStartPre=/bin/false", doctor),
        ("RootDirectory=/nowhere", doctor),
        ("StandardInput=file:/nowhere", doctor),
        ("ExecCondition=/bin/false", "lost"),
        ("ProtectSystem=strict", "could not write to /run/perilog"),
        ("User=nobody", "before it ran any script"),
        ("ExecStart=\nExecStart=/bin/true", "no result"),
    ]
    .into_iter()
    .enumerate()
    {
        put(node, LATE, line)?;
        let job = format!("j{number}");
        let (outcome, printed) = run(&cluster, &job)?;
        ensure!(outcome.contains(what), "{line}: {outcome}\n{printed}");
        ensure!(cluster.runs(&job)?.is_empty(), "{line}: a script ran");
        cluster.perilog(&["undrain", "n0"])?;
    }
    Ok(())
}

/// A drop-in that would end a script early, or make its status untrue, changes nothing about a task.
#[test]
fn a_drop_in_over_the_packages_cannot_shorten_or_bend_a_task() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-slow", "sleep 2; exit 6").boot()?;
    let node = cluster.node(0)?;
    for (number, line) in
        ["RuntimeMaxSec=1", "RemainAfterExit=no", "Type=simple", "SuccessExitStatus=6", "ExecStopPost=/bin/false"]
            .into_iter()
            .enumerate()
    {
        put(node, LATE, line)?;
        let attempt = number.to_string();
        let ran =
            cluster.perilog(&["run", "prolog", "--job", "bad", "--nodes", "n0", "--force", "--attempt", &attempt])?;
        let outcome = cluster.outcome("bad", "prolog", 0)?.1;
        ensure!(outcome == "failed (exit 6)", "{line}: {outcome}\n{ran}");
        cluster.perilog(&["undrain", "n0"])?;
    }
    Ok(())
}
