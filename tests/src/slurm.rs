//! The real Slurm on a [`Cluster`]: slurmctld on `ctl`, a slurmd on each node, authentication by munge, and perilog's
//! hooks as in docs/slurm.md. The scripts of prolog and epilog wait at a gate of their own on each node, and exit with
//! the status in the gate's file.

mod orphan;
mod state;

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::base::Base;
use crate::cluster::{Cluster, ClusterBuilder};
use crate::command::Output;
use crate::node::Node;

/// Time limit for conditions in Slurm, on a loaded machine. With [`CONFIGURATION`], Slurm's timers take some ten
/// seconds. Slurm's check for jobs that do not complete takes up to a minute more; that time is compiled in.
const SOON: Duration = Duration::from_secs(150);

/// Names and texts of the book's example programs for Slurm.
const EXAMPLES: [(&str, &str); 6] = [
    ("prolog", include_str!("../../docs/examples/slurm/prolog")),
    ("epilog", include_str!("../../docs/examples/slurm/epilog")),
    ("orphaned", include_str!("../../docs/examples/slurm/orphaned")),
    ("slurmctld-prolog", include_str!("../../docs/examples/slurm/slurmctld-prolog")),
    ("slurmctld-epilog", include_str!("../../docs/examples/slurm/slurmctld-epilog")),
    ("drain", include_str!("../../docs/examples/slurm/drain")),
];
/// Drop-in from the book for slurmd.
const SLURMD: &str = include_str!("../../docs/examples/slurm/slurmd-waits.conf");
/// Lines of slurm.conf that make perilog's hooks Slurm's prolog and epilog on each node.
pub const ON_NODES: &str = "Prolog=/usr/libexec/perilog/slurm/prolog\nEpilog=/usr/libexec/perilog/slurm/epilog\n";
/// Line of agent.toml from the packaged `slurm.toml`, for nodes that no two jobs share: a prolog waits for the epilog
/// of the job before. The book uses it with [`EXCLUSIVE`].
pub const SERIALIZED: &str = "serialize = \"host\"\n";
/// Lines of slurm.conf with which Slurm gives a node to the next job only after the epilog.
pub const EXCLUSIVE: &str = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n";
/// Lines of slurm.conf that make perilog's hooks the prolog and epilog of slurmctld.
pub const BESIDE_SLURMCTLD: &str = "PrologSlurmctld=/usr/libexec/perilog/slurm/slurmctld-prolog\n\
                                    EpilogSlurmctld=/usr/libexec/perilog/slurm/slurmctld-epilog\n";

/// Drop-in from the book that runs perilog's controller as SlurmUser.
const AS_SLURM: &str = include_str!("../../docs/examples/slurm/controller-as-slurm.conf");

/// slurm.conf of the tests, with short timers where Slurm's own take minutes. KillWait and MessageTimeout count too:
/// Slurm sends TERMINATE_JOB again only after KillWait and twice MessageTimeout.
const CONFIGURATION: &str = "\
ClusterName=bed
SlurmctldHost=ctl
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/log/slurmd.log
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=1
MessageTimeout=5
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
SlurmctldDebug=verbose
SlurmdDebug=debug
SlurmdParameters=config_overrides
PrologFlags=Alloc
";

/// Returns `true` if the Slurm of the nodes knows a setting, as [`is_known`] says of a root.
pub fn knows(setting: &str) -> bool {
    is_known(Base::common().root(), setting)
}

/// Returns `true` if the Slurm below the root directory of a system has a setting of slurm.conf, or a value of one,
/// that came with a newer release than the oldest that perilog supports.
pub fn is_known(root: &Path, setting: &str) -> bool {
    let found = std::process::Command::new("find")
        .arg(root.join("usr/lib"))
        .args(["-path", "*/slurm*/libslurmfull.so", "-exec", "grep", "-q", setting, "{}", ";", "-print"])
        .output();
    found.is_ok_and(|found| !found.stdout.is_empty())
}

/// Line of slurm.conf for a node that jobs share by CPU, for [`Slurm::start_shared`].
const SHARED: &str = "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n";

/// Script body: waits for the gate of its action, or for its job's own gate, and exits with the status that
/// [`Slurm::open`] or [`Slurm::open_for`] writes there.
pub const BY_GATE: &str = "gate=/run/gate-$PERILOG_ACTION
while :; do
    for open in $gate.$PERILOG_JOB $gate; do
        if [ -e $open ]; then exit $(cat $open); fi
    done
    sleep 0.02
done";

/// Returns the builder of a cluster for [`Slurm::start`]. The scripts of its prolog and its epilog wait for
/// [`Slurm::open`].
pub fn gated(nodes: usize) -> ClusterBuilder {
    let agent =
        "env-allow = [\"SLURM_JOB_ID\", \"SLURM_JOB_USER\", \"SLURM_JOB_RESTART_COUNT\", \"SLURMD_NODENAME\"]\n";
    let builder = Cluster::builder(nodes).agent(agent);
    builder.script("prolog", "10-gate", BY_GATE).script("epilog", "10-gate", BY_GATE)
}

/// State of a node in Slurm, with the reason that Slurm shows for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// State of the node as Slurm writes it: `IDLE`, `IDLE+DRAIN`, `COMPLETING` and so on.
    pub state: String,
    pub reason: String,
}

/// A real Slurm on a test cluster, used through its commands.
#[derive(Debug)]
pub struct Slurm<'a> {
    cluster: &'a Cluster,
}

impl<'a> Slurm<'a> {
    /// Starts Slurm on every node of the cluster. `more` is further lines of slurm.conf, such as [`ON_NODES`].
    pub fn start(cluster: &'a Cluster, more: &str) -> Result<Self> {
        Self::start_with(cluster, 1, more)
    }

    /// Starts Slurm with perilog's hooks on every node of the cluster; two jobs may share a node.
    pub fn start_shared(cluster: &'a Cluster) -> Result<Self> {
        Self::start_with(cluster, 2, &format!("{ON_NODES}{SHARED}"))
    }

    fn start_with(cluster: &'a Cluster, cpus: usize, more: &str) -> Result<Self> {
        let count = cluster.nodes().len();
        let nodes = format!(
            "NodeName=n[0-{}] CPUs={cpus} State=UNKNOWN\nPartitionName=all Nodes=ALL Default=YES State=UP\n",
            count - 1
        );
        let slurm = Self { cluster };
        for node in cluster.bed().nodes() {
            node.write_file("/etc/slurm/slurm.conf", format!("{CONFIGURATION}{more}{nodes}"))?;
            // The tests use no cgroups. On a machine with both hierarchies, slurmd would choose a plugin and then
            // refuse that plugin. Slurm 20.11 knows one hierarchy, and not the setting.
            if is_known(node.base().root(), "CgroupPlugin") {
                node.write_file("/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")?;
            }
            for (name, text) in EXAMPLES {
                node.write_script(&format!("/usr/libexec/perilog/slurm/{name}"), text)?;
            }
            node.write_file("/etc/systemd/system/slurmd.service.d/perilog.conf", SLURMD)?;
            node.systemctl(&["daemon-reload"])?;
            node.systemctl(&["start", "munge"])?;
        }
        slurm.control()?.systemctl(&["start", "slurmctld"])?;
        (0..count).try_for_each(|rank| slurm.start_slurmd(rank))?;
        slurm.wait("every node is idle", |slurm| {
            (0..count).try_fold(true, |all, rank| Ok(all && slurm.seen(rank)?.state == "IDLE"))
        })?;
        Ok(slurm)
    }

    /// Returns the node that runs slurmctld, which is also the controller's node.
    pub fn control(&self) -> Result<&Node> {
        self.cluster.controller()
    }

    /// Makes perilog's controller run as SlurmUser from now on: in a Slurm without accounting, only SlurmUser and root
    /// may drain nodes.
    pub fn controller_as_slurm(&self) -> Result<()> {
        let node = self.control()?;
        node.write_file("/etc/systemd/system/perilog-controller.service.d/slurm.conf", AS_SLURM)?;
        node.systemctl(&["daemon-reload"])?;
        node.systemctl(&["restart", "perilog-controller"])?;
        self.cluster.wait_online()
    }

    /// Runs a command of Slurm, such as `scontrol`, on slurmctld's node; fails if the command fails. Returns its
    /// output.
    pub fn ask(&self, command: &[&str]) -> Result<String> {
        self.control()?.run(command)?.ok()
    }

    /// Submits a batch job of the user alice, with the shell command `body`, on that many nodes; returns the job's id.
    pub fn submit(&self, nodes: usize, body: &str) -> Result<String> {
        self.submit_with(&[&format!("--nodes={nodes}")], body)
    }

    /// Submits a batch job of the user alice with these options of sbatch; returns the job's id.
    pub fn submit_with(&self, options: &[&str], body: &str) -> Result<String> {
        let wrap = format!("--wrap={body}");
        let sbatch = ["runuser", "-u", "alice", "--", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null"];
        self.ask(&[&sbatch, options, &[&wrap]].concat())
    }

    /// Returns a field of `scontrol show job`; `None` once Slurm has forgotten the job.
    pub fn job(&self, job: &str, field: &str) -> Result<Option<String>> {
        let shown: Output = self.control()?.run(&["scontrol", "--oneliner", "show", "job", job])?;
        Ok(value(&shown.stdout, field))
    }

    /// Returns the state and the reason that Slurm shows for node `n{rank}`.
    pub fn seen(&self, rank: usize) -> Result<Seen> {
        let name = self.cluster.node(rank)?.name();
        let shown = self.control()?.run(&["scontrol", "--oneliner", "show", "node", name])?;
        // slurmctld may not answer yet.
        let state = value(&shown.stdout, "State").unwrap_or_else(|| "?".to_owned());
        let reason = shown.stdout.split_once(" Reason=").map(|(_, reason)| reason.trim().to_owned());
        Ok(Seen { state, reason: reason.unwrap_or_default() })
    }

    /// Waits until a condition holds. The error names the condition (`what`), and shows Slurm's queue and nodes.
    pub fn wait(&self, what: &str, mut condition: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let waited = self.cluster.bed().wait_until(what, SOON, || condition(self));
        waited.with_context(|| {
            let shown = ["squeue --all", "sinfo --Node --long", "sinfo --list-reasons", "scontrol --oneliner show job"];
            let shown = shown.map(|command| self.control().and_then(|node| node.sh(command)).unwrap_or_default());
            format!("Slurm: {}", shown.join("\n"))
        })
    }

    /// Waits until Slurm shows this state for the job, such as `COMPLETED`.
    pub fn wait_job(&self, job: &str, state: &str) -> Result<()> {
        self.wait(&format!("job {job} is {state}"), |slurm| Ok(slurm.job(job, "JobState")?.as_deref() == Some(state)))
    }

    /// Waits until Slurm has tried to schedule the job and has found no node. Fails if the job gets a node.
    pub fn wait_kept_waiting(&self, job: &str) -> Result<()> {
        self.wait(&format!("Slurm finds no node for job {job}"), |slurm| {
            let state = slurm.job(job, "JobState")?;
            ensure!(state.as_deref() == Some("PENDING"), "job {job} has a node: {state:?}");
            Ok(!matches!(slurm.job(job, "Reason")?.as_deref(), None | Some("None" | "Priority")))
        })
    }

    /// Lets a requeued job begin now, instead of after Slurm's two minutes. First waits about three seconds: nodes
    /// remember the second of the requeue and reject a credential made within it, so the prolog would not run.
    pub fn begin_again(&self, job: &str) -> Result<()> {
        self.wait_job(job, "PENDING")?;
        let seconds = || -> Result<u64> { Ok(self.ask(&["date", "+%s"])?.parse()?) };
        let requeued = seconds()?;
        self.wait("the second of the requeue is over", |_| Ok(seconds()? > requeued + 2))?;
        self.ask(&["scontrol", "update", &format!("jobid={job}"), "starttime=now"]).map(drop)
    }

    pub fn wait_requeued(&self, job: &str) -> Result<()> {
        self.wait("the job is requeued", |slurm| Ok(slurm.job(job, "Restarts")?.as_deref() == Some("1")))
    }

    /// Lets a requeued job of n0 begin again, and waits for its end. Checks that each of these attempts of the job had
    /// one prolog and one epilog, and that all ended with 0.
    pub fn ensure_completes_again(&self, job: &str, attempts: &[&'static str]) -> Result<()> {
        self.begin_again(job)?;
        self.wait_job(job, "COMPLETED")?;
        self.wait_node(0, "IDLE")?;
        let all = |attempt: &&'static str| [(0, "prolog", *attempt, 0), (0, "epilog", *attempt, 0)];
        self.ensure_ran(job, &attempts.iter().flat_map(all).collect::<Vec<_>>())
    }

    /// Waits until Slurm shows exactly this state for node `n{rank}`, such as `IDLE`.
    pub fn wait_node(&self, rank: usize, state: &str) -> Result<()> {
        self.wait(&format!("n{rank} is {state}"), |slurm| Ok(slurm.seen(rank)?.state == state))
    }

    /// Lets the script of an action on node `n{rank}` exit with this status. The script waits for the file to which
    /// this writes the status: the action's gate on the node.
    pub fn open(&self, rank: usize, action: &str, status: u8) -> Result<()> {
        // In one step, because the script polls the file.
        self.cluster.node(rank)?.write_file(&format!("/run/gate-{action}"), status.to_string())
    }

    /// Lets the script of an action of one job exit with this status, as [`open`](Self::open) does for all jobs.
    pub fn open_for(&self, job: &str, action: &str, status: u8) -> Result<()> {
        let write = |node: &Node| node.write_file(&format!("/run/gate-{action}.{job}"), status.to_string());
        self.cluster.nodes().iter().try_for_each(write)
    }

    pub fn close(&self, rank: usize, action: &str) -> Result<()> {
        self.cluster.node(rank)?.sh(&format!("rm -f /run/gate-{action}")).map(drop)
    }

    pub fn open_all(&self, action: &str) -> Result<()> {
        (0..self.cluster.nodes().len()).try_for_each(|rank| self.open(rank, action, 0))
    }

    /// Kills the slurmd of node `n{rank}` with kill -9; its child processes continue. Returns when slurmd has ended.
    pub fn kill_slurmd(&self, rank: usize) -> Result<()> {
        let node = self.cluster.node(rank)?;
        Cluster::kill_unit(node, "slurmd.service")?;
        self.wait("slurmd is gone", |_| {
            let state = node.run(&["systemctl", "is-active", "slurmd.service"])?.stdout;
            Ok(matches!(state.trim(), "failed" | "inactive"))
        })
    }

    /// Starts slurmd on node `n{rank}`. The error shows the journal and the log of slurmd.
    pub fn start_slurmd(&self, rank: usize) -> Result<()> {
        let node = self.cluster.node(rank)?;
        node.systemctl(&["start", "slurmd"]).map(drop).with_context(|| {
            let output = "journalctl --no-pager --lines=30 --output=short-precise --unit=slurmd";
            node.sh(&format!("{output}; tail -n 30 /var/log/slurmd.log || true")).unwrap_or_default()
        })
    }

    /// Returns slurmd's log on a node.
    pub fn log(&self, rank: usize) -> Result<String> {
        self.cluster.node(rank)?.read_file("/var/log/slurmd.log")
    }

    /// Returns (rank, action, attempt, exit status) of each run of the job's scripts, in the order of their begin. The
    /// status of a running or killed script is `None`.
    pub fn ends(&self, job: &str) -> Result<Vec<(u32, String, String, Option<i32>)>> {
        let ledger = self.cluster.ledger()?;
        let end = |(key, run): (&crate::ledger::Key, &crate::ledger::Run)| {
            (key.rank, key.action.clone(), key.attempt.clone(), run.ended.map(|(_, status)| status))
        };
        Ok(ledger.of_job(job).into_iter().map(end).collect())
    }

    /// Checks that no two scripts of any job ran at the same time in the same boot of a node.
    pub fn ensure_apart(&self) -> Result<()> {
        let ledger = self.cluster.ledger()?;
        let mut runs: Vec<_> =
            ledger.runs.iter().flat_map(|(key, runs)| runs.iter().map(move |run| (key, run))).collect();
        runs.sort_by(|(_, a), (_, b)| {
            (&a.boot, a.started).partial_cmp(&(&b.boot, b.started)).unwrap_or(Ordering::Equal)
        });
        for pair in runs.windows(2) {
            let ((before, first), (after, second)) = (pair[0], pair[1]);
            let is_over = first.ended.is_some_and(|(at, _)| at <= second.started);
            ensure!(first.boot != second.boot || is_over, "{before}: {first:?}\nran beside {after}: {second:?}");
        }
        Ok(())
    }

    /// Checks that these scripts of the job ran once each, and no others: (rank, action, attempt, exit status).
    pub fn ensure_ran(&self, job: &str, expected: &[(u32, &str, &str, i32)]) -> Result<()> {
        let mut ends = self.ends(job)?;
        ends.sort();
        let own = |(rank, action, attempt, status): &(u32, &str, &str, i32)| {
            (*rank, (*action).to_owned(), (*attempt).to_owned(), Some(*status))
        };
        let mut expected: Vec<_> = expected.iter().map(own).collect();
        expected.sort();
        let logs = || {
            (0..self.cluster.nodes().len()).filter_map(|rank| self.log(rank).ok()).collect::<Vec<_>>().join("\n--\n")
        };
        ensure!(ends == expected, "scripts of job {job}: {ends:?}\nexpected: {expected:?}\n{}", logs());
        Ok(())
    }
}

/// Returns the value of `FIELD=value` in a line that scontrol prints; `None` if the line has no such field.
fn value(line: &str, field: &str) -> Option<String> {
    line.split_whitespace().find_map(|word| word.strip_prefix(field)?.strip_prefix('=')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_line() {
        let line = "JobId=5 JobName=wrap JobState=RUNNING Reason=Prolog Dependency=(null) Restarts=1";
        assert_eq!(value(line, "JobState").as_deref(), Some("RUNNING"));
        assert_eq!((value(line, "State"), value(line, "Restarts").as_deref()), (None, Some("1")));
    }
}
