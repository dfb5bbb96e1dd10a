//! slurmctld on the same two hosts, with its own takeover: a backup takes over `SlurmctldTimeout` after the primary has
//! answered last. Its state is in a directory that both hosts have mounted, as it would be on NFS; nothing fences its
//! host.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use perilog_tests::Node;
use perilog_tests::failover::Failover;

use super::NODES;

/// The directory of slurmctld's state.
const STATE: &str = "/var/lib/slurm/slurmctld";
/// Values of `SlurmctldTimeout` in seconds; the last one is the default.
pub(super) const TIMEOUTS: [u32; 3] = [10, 30, 120];

/// Time limit for a job after a takeover.
const NEXT_JOB: Duration = Duration::from_secs(900);

/// Returns the hosts of the primary slurmctld and of its backup.
pub(super) fn hosts(failover: &Failover) -> Result<(&Node, &Node)> {
    match failover.cluster().hosts() {
        [primary, backup] => Ok((primary, backup)),
        hosts => bail!("{} hosts", hosts.len()),
    }
}

pub(super) struct Slurm<'a> {
    failover: &'a Failover,
    primary: &'a Node,
    backup: &'a Node,
}

impl<'a> Slurm<'a> {
    pub(super) fn new(failover: &'a Failover) -> Result<Self> {
        let (primary, backup) = hosts(failover)?;
        failover.share_directory(STATE)?;
        primary.sh(&format!("chown slurm: {STATE}"))?;
        Ok(Self { failover, primary, backup })
    }

    /// Starts Slurm anew with this timeout, waits until the primary and its backup run, and runs a job.
    pub(super) fn start(&self, timeout: u32) -> Result<()> {
        for node in self.failover.cluster().bed().nodes() {
            node.write_file("/etc/slurm/slurm.conf", configuration(timeout))?;
            node.write_file("/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")?;
            node.systemctl(&["start", "munge"])?;
        }
        // The backup is in control since the last cut.
        self.backup.systemctl(&["stop", "slurmctld"])?;
        for host in [self.primary, self.backup] {
            host.systemctl(&["restart", "slurmctld"])?;
        }
        for node in self.failover.cluster().nodes() {
            node.systemctl(&["restart", "slurmd"])?;
        }
        self.failover.wait("slurmctld is up on both hosts", || {
            let ping = self.primary.run(&["scontrol", "ping"])?.stdout;
            Ok(ping.contains("(primary) at ctl0 is UP") && ping.contains("(backup) at ctl1 is UP"))
        })?;
        self.job(&format!("before-{timeout}")).map(drop)
    }

    /// Submits a job from the backup's host until slurmctld accepts it; returns the time at which it began on a node,
    /// by the clock of [`now`](perilog_tests::failover::now).
    pub(super) fn job(&self, name: &str) -> Result<f64> {
        let path = format!("/tmp/{name}");
        let wrap = format!("--wrap=cat /proc/uptime >{path}");
        let sbatch = ["timeout", "20", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", &wrap];
        let nodes = self.failover.cluster().nodes();
        nodes.iter().try_for_each(|node| node.sh(&format!("rm -f {path}")).map(drop))?;
        let (mut is_submitted, mut begun) = (false, None);
        self.failover.cluster().bed().wait_until(&format!("{name} begins"), NEXT_JOB, || {
            is_submitted = is_submitted || self.backup.run(&sbatch)?.success();
            let files = nodes.iter().filter_map(|node| node.try_read_file(&path).ok().flatten());
            begun = files.filter_map(|text| text.split(' ').next()?.parse().ok()).next();
            Ok(begun.is_some())
        })?;
        begun.context("a time")
    }

    /// Mounts the shared directory on the host that was switched on again.
    pub(super) fn heal(&self) -> Result<()> {
        self.failover.mount_directory(self.primary, STATE)
    }
}

fn configuration(timeout: u32) -> String {
    format!(
        "ClusterName=bed
SlurmctldHost=ctl0
SlurmctldHost=ctl1
SlurmctldTimeout={timeout}
SlurmUser=slurm
StateSaveLocation={STATE}
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/log/slurmd.log
SlurmctldLogFile=/var/log/slurmctld.log
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
MessageTimeout=5
SlurmdParameters=config_overrides
NodeName=n[0-{last}] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
",
        last = NODES - 1
    )
}
