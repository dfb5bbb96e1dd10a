//! kill -9 of slurmd in a prolog, for which Slurm would wait for ever. The hook outlives slurmd. The prolog
//! holds the node while it lives, and has Slurm begin the job again when it has ended. A second call of the
//! hook attaches, and exits with the same status.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{ON_NODES, Slurm, gated};

#[test]
fn the_prolog_ends_once_and_the_job_begins_again() -> Result<()> {
    let cluster = gated(2).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    slurm.open(1, "prolog", 0)?;
    let job = slurm.submit(2, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.start_slurmd(0)?;
    // A slurmd that had forgotten the prolog would call the hook so.
    let environment =
        [&format!("SLURM_JOB_ID={job}"), "SLURMD_NODENAME=n0", "SLURM_NODELIST=n[0-1]", "SLURM_JOB_UID=64001"];
    let again = cluster.node(0)?.spawn(&[&["env"], &environment[..], &["perilog", "hook", "slurm-prolog"]].concat())?;
    let mut again = again;
    cluster.bed().wait_until("it is attached", std::time::Duration::from_secs(60), || {
        Ok(again.output()?.stderr.contains("exists already; this hook attached to"))
    })?;
    slurm.open(0, "prolog", 0)?;
    ensure!(cluster.wait_end(&mut again)? == 0, "{}", again.output()?);
    slurm.wait_requeued(&job)?;
    slurm.wait_unheld(0)?;
    slurm.begin_again(&job)?;
    slurm.wait_job(&job, "COMPLETED")?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    let all = |attempt| {
        [(0, "prolog", attempt, 0), (1, "prolog", attempt, 0), (0, "epilog", attempt, 0), (1, "epilog", attempt, 0)]
    };
    slurm.ensure_ran(&job, &[all("0"), all("1")].concat())
}

/// slurmd is down for longer than BatchStartTimeout, and slurmctld itself requeues the job. When the first attempt's
/// prolog ends, perilog does not have the job requeued a second time.
#[test]
fn a_job_that_slurm_has_requeued_is_left_alone() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    let seconds = || -> Result<u64> { Ok(slurm.ask(&["date", "+%s"])?.parse()?) };
    let killed = seconds()?;
    slurm.wait("slurmd has been away for 30 s", |_| Ok(seconds()? >= killed + 30))?;
    slurm.start_slurmd(0)?;
    slurm.wait("slurmctld requeues the job", |slurm| Ok(slurm.job(&job, "Restarts")?.as_deref() == Some("1")))?;
    slurm.open(0, "prolog", 0)?;
    slurm.wait_unheld(0)?;
    slurm.ensure_completes_again(&job, &["0", "1"])?;
    ensure!(slurm.job(&job, "Restarts")?.as_deref() == Some("1"), "the job was requeued a second time");
    Ok(())
}

/// Slurm cannot begin a job again that was submitted with `--no-requeue`. It is cancelled, and says why, behind what
/// the site had written there. It is cancelled, too, where Slurm does not let perilog write that.
#[test]
fn a_job_that_cannot_begin_again_says_why_it_was_cancelled() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    slurm.before_scontrol(0, "*admincomment=*", "[ ! -e /run/refuses ] || exit 1")?;
    let why = "cancelled by perilog: slurmd of n0 died in the prolog, and the job cannot be requeued";
    for (refuses, comment) in [(false, format!("the site's own; {why}")), (true, "the site's own".to_owned())] {
        slurm.close(0, "prolog")?;
        let job = slurm.submit_with(&["--no-requeue"], "true")?;
        cluster.wait_action_begun(&job, "prolog", &[0])?;
        slurm.ask(&["scontrol", "update", &format!("jobid={job}"), "admincomment=the site's own"])?;
        if refuses {
            cluster.node(0)?.write_file("/run/refuses", "")?;
        }
        slurm.kill_slurmd(0)?;
        slurm.wait_held(0, &job, "prolog")?;
        slurm.start_slurmd(0)?;
        slurm.open(0, "prolog", 0)?;
        slurm.wait_job(&job, "CANCELLED")?;
        let shown = slurm.ask(&["scontrol", "show", "job", &job])?;
        let shown = shown.lines().find_map(|line| line.trim().strip_prefix("AdminComment="));
        ensure!(shown == Some(&comment), "{shown:?}");
        slurm.wait_unheld(0)?;
        slurm.wait_node(0, "IDLE")?;
        slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    }
    Ok(())
}

/// No batch script of salloc could begin again, so its allocation is revoked.
#[test]
fn an_allocation_of_salloc_is_revoked() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let salloc = ["runuser", "-u", "alice", "--", "salloc", "--nodes=1", "--chdir=/tmp", "touch", "/tmp/body"];
    let mut salloc = slurm.control()?.spawn(&salloc)?;
    let mut job = String::new();
    slurm.wait("salloc has a node", |slurm| {
        job = slurm.ask(&["squeue", "--noheader", "--states=RUNNING", "--format=%A"])?;
        Ok(!job.is_empty())
    })?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.start_slurmd(0)?;
    slurm.open(0, "prolog", 0)?;
    slurm.wait_job(&job, "CANCELLED")?;
    ensure!(cluster.wait_end(&mut salloc)? != 0, "salloc ran its command: {}", salloc.output()?);
    ensure!(slurm.control()?.run(&["test", "-e", "/tmp/body"])?.code() == Some(1), "salloc ran its command");
    let shown = slurm.ask(&["scontrol", "show", "job", &job])?;
    ensure!(shown.contains("AdminComment=cancelled by perilog: slurmd of n0 died in the prolog"), "{shown}");
    slurm.wait_unheld(0)?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}

/// `systemctl kill -s KILL slurmd` kills every process of the unit by default, also perilog's hook. The agent notices
/// that no hook waits for the prolog. Slurm begins the job again when the prolog has ended.
#[test]
fn a_job_begins_again_though_its_hook_was_killed_with_slurmd() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    cluster.node(0)?.systemctl(&["kill", "--kill-who=all", "--signal=KILL", "slurmd.service"])?;
    slurm.start_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.open(0, "prolog", 0)?;
    slurm.wait_requeued(&job)?;
    slurm.wait_unheld(0)?;
    slurm.ensure_completes_again(&job, &["0", "1"])
}

/// slurmd and the agent are killed, but not the hook: the restarted agent learns from the hook that slurmd is dead.
#[test]
fn a_job_begins_again_though_its_agent_was_killed_with_slurmd() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    cluster.node(0)?.systemctl(&[
        "kill",
        "--kill-who=main",
        "--signal=KILL",
        "slurmd.service",
        "perilog-agent.service",
    ])?;
    slurm.requeued_after_a_death(&job)?;
    slurm.ensure_completes_again(&job, &["0", "1"])
}

/// Regression test: no agent ran when the prolog ended, so the hook got the status from the restarted agent. That agent
/// did not know yet that slurmd was dead, and Slurm did not begin the job again.
#[test]
fn a_job_begins_again_though_no_agent_saw_the_prologs_end() -> Result<()> {
    let cluster = gated(1).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("epilog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    cluster.kill_agent(0)?;
    slurm.kill_slurmd(0)?;
    slurm.open(0, "prolog", 0)?;
    cluster.wait_scripts_ended(&job, &[0])?;
    slurm.start_slurmd(0)?;
    cluster.start_agent(0)?;
    slurm.wait_requeued(&job)?;
    slurm.ensure_completes_again(&job, &["0", "1"])
}

/// Under `PrologFlags=RunInJob`, the parent of Slurm's prolog is a slurmstepd. The hook notices the death of slurmd
/// although its parent lives on. An older Slurm lacks this flag, so programs of the test stand for slurmd and
/// slurmstepd.
#[test]
fn a_hook_of_a_slurmstepd_watches_slurmd() -> Result<()> {
    let cluster = gated(1).boot()?;
    let node = cluster.node(0)?;
    for name in ["slurmd", "slurmstepd"] {
        node.sh(&format!("cp /bin/sh /root/{name}"))?;
    }
    node.write_script("/root/orphaned", "printf '%s %s\\n' \"$1\" \"$PERILOG_STATUS\" >> /root/notified")?;
    let unit = |name: &str, command: &str| -> Result<()> {
        node.run(&["systemd-run", &format!("--unit=stand-in-{name}"), &format!("/root/{name}"), "-c", command])?
            .ok()
            .map(drop)
    };
    unit("slurmd", "while :; do sleep 1; done")?;
    let hook =
        "SLURM_JOB_ID=5 SLURMD_NODENAME=n0 perilog hook slurm-prolog --orphaned /root/orphaned; echo $? > /root/status";
    unit("slurmstepd", hook)?;
    cluster.wait_action_begun("5", "prolog", &[0])?;
    let reported = |what: &str| {
        cluster.bed().wait_until(what, std::time::Duration::from_secs(60), || {
            Ok(node.sh("cat /root/notified 2>/dev/null || true")?.trim() == what)
        })
    };
    Cluster::kill_unit(node, "stand-in-slurmd.service")?;
    reported("begun")?;
    node.write_file("/run/gate-prolog", "9")?;
    reported("begun \nended 9")?;
    ensure!(node.sh("cat /root/status")?.trim() == "9", "slurmstepd gets the status all the same");
    Ok(())
}

/// Slurm has lost its state, and counts job ids from the start again. The hook refuses a new job with the id of an
/// older job, because the older job's prolog does not count for the new job.
#[test]
fn another_job_of_a_number_that_was_seen_fails() -> Result<()> {
    let cluster = gated(1).boot()?;
    let node = cluster.node(0)?;
    node.write_file("/run/gate-prolog", "0")?;
    let hook = |began: &str| -> Result<perilog_tests::Output> {
        let began = format!("SLURM_JOB_START_TIME={began}");
        node.run(&["env", "SLURM_JOB_ID=5", "SLURMD_NODENAME=n0", &began, "perilog", "hook", "slurm-prolog"])
    };
    hook("1700000000")?.ok()?;
    let again = hook("1700000000")?;
    ensure!(again.code() == Some(0) && again.stderr.contains("ended before: ok"), "{again:?}");
    let other = hook("1800000000")?;
    ensure!(
        other.code() == Some(5) && other.stderr.contains("another job with the number 5, which began at 1700000000"),
        "{other:?}"
    );
    Ok(())
}
