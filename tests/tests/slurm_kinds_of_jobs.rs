//! Kinds of jobs and of Slurm's configuration that sites have: job arrays, heterogeneous jobs, srun, nodes without a
//! slurm.conf, `scontrol reboot`. Each script runs once, and orphans are noticed as for a plain batch
//! job.

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated};

/// Lines of slurm.conf for heterogeneous jobs, which only this scheduler begins.
const BACKFILL: &str = "SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=1\n";

/// Returns the id of its own that Slurm gives a task of an array or a component, such as `12_1`.
fn id(slurm: &Slurm<'_>, job: &str) -> Result<String> {
    slurm.job(job, "JobId")?.with_context(|| format!("Slurm knows no job {job}"))
}

#[test]
fn each_script_of_every_kind_of_job_runs_once() -> Result<()> {
    let cluster = gated(2).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}{BACKFILL}"))?;
    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    let one = |rank| [(rank, "prolog", "0", 0), (rank, "epilog", "0", 0)];

    let array = slurm.submit_with(&["--array=0-1", "--nodes=1"], "true")?;
    for task in 0..2 {
        let task = format!("{array}_{task}");
        slurm.wait_job(&task, "COMPLETED")?;
        slurm.ensure_ran(&id(&slurm, &task)?, &one(0))?;
    }

    let het = slurm.submit_with(&["--nodes=1", ":", "--nodes=1"], "true")?;
    for component in 0..2 {
        let component = format!("{het}+{component}");
        slurm.wait_job(&component, "COMPLETED")?;
        slurm.ensure_ran(&id(&slurm, &component)?, &one(0))?;
    }

    let srun = ["runuser", "-u", "alice", "--", "srun", "--nodes=2", "--chdir=/tmp", "printenv", "SLURM_JOB_ID"];
    let output = slurm.ask(&srun)?;
    let job = output.lines().next().with_context(|| format!("srun said {output:?}"))?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    slurm.ensure_ran(job, &[one(0), one(1)].concat())
}

/// The id of one task of an array may be that of the whole array, too. The task begins again, and no other.
#[test]
fn a_task_of_an_array_begins_again_alone() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}"))?;
    slurm.open_all("epilog")?;
    let array = slurm.submit_with(&["--array=0-1", "--nodes=1"], "true")?;
    let [first, second] = [format!("{array}_0"), format!("{array}_1")];
    slurm.wait_job(&first, "RUNNING")?;
    let job = id(&slurm, &first)?;
    cluster.wait_action_begun(&job, "prolog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "prolog")?;
    slurm.start_slurmd(0)?;
    slurm.open(0, "prolog", 0)?;
    slurm.wait("the task is requeued", |slurm| Ok(slurm.job(&first, "Restarts")?.as_deref() == Some("1")))?;
    slurm.wait_unheld(0)?;
    slurm.wait_job(&second, "COMPLETED")?;
    slurm.begin_again(&first)?;
    slurm.wait_job(&first, "COMPLETED")?;
    ensure!(slurm.job(&second, "Restarts")?.as_deref() == Some("0"), "the other task began again, too");
    slurm.wait_node(0, "IDLE")?;
    let of = |attempt| [(0, "prolog", attempt, 0), (0, "epilog", attempt, 0)];
    slurm.ensure_ran(&job, &[of("0"), of("1")].concat())?;
    slurm.ensure_ran(&id(&slurm, &second)?, &of("0"))
}

/// Regression test: the second component of a heterogeneous job is no batch job to Slurm, so perilog cancelled it when
/// slurmd died in its prolog. The job begins again as a whole.
#[test]
fn a_heterogeneous_job_begins_again_as_a_whole() -> Result<()> {
    let cluster = gated(2).agent(SERIALIZED).boot()?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}{BACKFILL}"))?;
    slurm.open_all("epilog")?;
    slurm.open(0, "prolog", 0)?;
    let body = "while [ ! -e /run/go ]; do sleep 0.05; done";
    let leader = slurm.submit_with(&["--nodes=1", "--nodelist=n0", ":", "--nodes=1", "--nodelist=n1"], body)?;
    slurm.wait_job(&format!("{leader}+1"), "RUNNING")?;
    let component = id(&slurm, &format!("{leader}+1"))?;
    cluster.wait_action_begun(&component, "prolog", &[0])?;
    slurm.kill_slurmd(1)?;
    slurm.wait_held(1, &component, "prolog")?;
    slurm.start_slurmd(1)?;
    slurm.open(1, "prolog", 0)?;
    slurm.wait_unheld(1)?;
    let jobs = [leader.as_str(), &component];
    for job in jobs {
        slurm.wait_requeued(job)?;
    }
    slurm.begin_again(&leader)?;
    cluster.node(0)?.write_file("/run/go", "")?;
    jobs.iter().try_for_each(|job| slurm.wait_job(job, "COMPLETED"))?;
    (0..2).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    let of = |attempt| [(0, "prolog", attempt, 0), (0, "epilog", attempt, 0)];
    jobs.iter().try_for_each(|job| slurm.ensure_ran(job, &[of("0"), of("1")].concat()))
}

/// A node without a slurm.conf gets it from slurmctld. The hook tells the program for orphans where it is.
#[test]
fn an_orphan_on_a_node_without_slurm_conf_holds_it() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let more = format!("{ON_NODES}{EXCLUSIVE}SlurmctldParameters=enable_configless\n");
    let slurm = Slurm::start(&cluster, &more)?;
    let node = cluster.node(0)?;
    node.systemctl(&["stop", "slurmd"])?;
    node.sh("rm /etc/slurm/slurm.conf /etc/slurm/cgroup.conf")?;
    let drop_in = "[Unit]\nConditionPathExists=\n[Service]\nEnvironment=SLURMD_OPTIONS=--conf-server=ctl\n";
    node.write_file("/etc/systemd/system/slurmd.service.d/configless.conf", drop_in)?;
    node.systemctl(&["daemon-reload"])?;
    slurm.start_slurmd(0)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.open(0, "epilog", 9)?;
    slurm.wait_unheld(0)?;
    let seen = slurm.seen(0)?;
    ensure!(seen.state.contains("DRAIN") && seen.reason.contains("failed (exit 9)"), "{seen:?}");
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

#[test]
fn a_reboot_asap_waits_for_the_epilog() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let more = format!("{ON_NODES}{EXCLUSIVE}RebootProgram=/usr/local/sbin/stand-in-reboot\n");
    let slurm = Slurm::start(&cluster, &more)?;
    let node = cluster.node(0)?;
    node.write_script("/usr/local/sbin/stand-in-reboot", "#!/bin/sh\ncut -d ' ' -f 1 /proc/uptime > /run/rebooted\n")?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.ask(&["scontrol", "reboot", "ASAP", "n0"])?;
    slurm.wait("the reboot is requested", |slurm| Ok(slurm.seen(0)?.state.contains("REBOOT")))?;
    slurm.open(0, "epilog", 0)?;
    slurm.wait("n0 reboots", |_| Ok(node.run(&["test", "-s", "/run/rebooted"])?.code() == Some(0)))?;
    let rebooted: f64 = node.read_file("/run/rebooted")?.trim().parse()?;
    let ended = cluster.ledger()?.of_job(&job).last().and_then(|(_, run)| run.ended);
    ensure!(ended.is_some_and(|(at, _)| at <= rebooted), "rebooted at {rebooted}, the epilog ended at {ended:?}");
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}

/// Slurm does not wait for an orphan before it reboots the node; the node does. The epilog ends before the node goes
/// down, and its failure drains the node.
#[test]
fn a_reboot_of_a_held_node_waits_for_the_orphan() -> Result<()> {
    let cluster = gated(1).agent(SERIALIZED).boot()?;
    let more = format!("{ON_NODES}{EXCLUSIVE}RebootProgram=/usr/local/sbin/reboots\n");
    let slurm = Slurm::start(&cluster, &more)?;
    let node = cluster.node(0)?;
    node.write_script("/usr/local/sbin/reboots", "#!/bin/sh\nexec systemctl --no-block reboot\n")?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.ask(&["scontrol", "reboot", "ASAP", "nextstate=resume", "n0"])?;
    slurm.wait("n0 goes down", |_| Ok(node.run(&["systemctl", "is-system-running"])?.stdout.trim() == "stopping"))?;
    let epilog = |ended: bool| -> Result<bool> {
        Ok(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3.is_some() == ended))
    };
    ensure!(node.is_up() && epilog(false)?, "{:?}", slurm.ends(&job)?);
    slurm.open(0, "epilog", 9)?;
    slurm.wait("n0 is off", |_| Ok(!node.is_up()))?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])?;
    node.boot()?;
    node.systemctl(&["start", "munge", "perilog-agent"])?;
    slurm.start_slurmd(0)?;
    slurm.wait_unheld(0)?;
    slurm.wait("the reason says how it ended", |slurm| Ok(slurm.seen(0)?.reason.contains("failed (exit 9)")))?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_kept_waiting(&next)
}

/// Two slurmds of one host share its agent. Each of them is held and drained for its own orphans alone.
#[test]
fn slurmds_of_one_host_are_held_apart() -> Result<()> {
    let cluster = gated(1).boot()?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/slurmd.service.d/pid.conf", "[Service]\nPIDFile=\n")?;
    node.sh("mkdir -p /var/lib/slurm/n0 /var/lib/slurm/twin")?;
    let files = "SlurmdSpoolDir=/var/lib/slurm/%n\nSlurmdPidFile=/run/%n.pid\n";
    let twin = "NodeName=twin NodeAddr=n0 Port=17002 CPUs=1 State=UNKNOWN\n";
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}{files}{twin}"))?;
    let slurmd = ["systemd-run", "--unit=slurmd-twin", "--property=KillMode=process", "slurmd", "-D", "-N", "twin"];
    node.run(&slurmd)?.ok()?;
    let state = || -> Result<String> { slurm.ask(&["sinfo", "--noheader", "--nodes=twin", "--format=%T %E"]) };
    slurm.wait("the twin is idle", |_| Ok(state()?.starts_with("idle ")))?;

    slurm.open_all("prolog")?;
    slurm.open_all("epilog")?;
    let both = slurm.submit(2, "true")?;
    slurm.wait_job(&both, "COMPLETED")?;
    let all = [(0, "prolog", "0", 0), (1, "prolog", "0", 0), (0, "epilog", "0", 0), (1, "epilog", "0", 0)];
    slurm.ensure_ran(&both, &all)?;

    slurm.close(0, "epilog")?;
    let job = slurm.submit_with(&["--nodelist=twin"], "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    Cluster::kill_unit(node, "slurmd-twin.service")?;
    let held = || slurm.ask(&["scontrol", "--oneliner", "show", "reservation"]);
    slurm.wait("the epilog holds the twin", |_| Ok(held()?.contains(" Nodes=twin ")))?;
    ensure!(slurm.holds(0)?.is_empty(), "{}", held()?);
    let beside = slurm.submit_with(&["--nodelist=n0"], "true")?;
    slurm.open_for(&beside, "epilog", 0)?;
    slurm.wait_job(&beside, "COMPLETED")?;
    slurm.open_for(&job, "epilog", 9)?;
    slurm.wait("the twin is drained", |_| Ok(state()?.contains("failed (exit 9)")))?;
    slurm.wait("nothing holds the twin", |_| Ok(!held()?.contains(" Nodes=twin ")))?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&beside, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}
