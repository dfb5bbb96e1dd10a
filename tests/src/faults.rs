//! Faults of a cluster, and waits of the fault tests. Scripts wait at a gate that the test opens. A fault therefore
//! always comes in the middle of a script, however fast the machine is.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::command::{Running, signal};
use crate::ledger::{self, Run};
use crate::node::Node;

/// Script body: waits until the test opens the gate (`/run/gate`), then exits at random with 0, 3 or 37.
pub const AT_GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done\nexit $(draw 0 0 3 37)";
/// Time limit of a script that is to begin and then pass the limit. The limit counts from the launch: on a loaded
/// machine the start of the unit and of its runner takes a part of it, some seconds at most.
pub const LIMIT: &str = "10s";
/// Time limit for the conditions that tests await, on a loaded machine; they take some tens of milliseconds.
const SOON: Duration = Duration::from_secs(90);

/// Mounts a FUSE file system on its argument, and never reads a request.
const DEAD_FS: &str = r#"import ctypes, os, signal, sys
fd = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
signal.pause()
"#;

pub(crate) const AGENT: &str = "perilog-agent.service";
pub(crate) const CONTROLLER: &str = "perilog-controller.service";

impl Cluster {
    /// Keeps systemd from restarting killed daemons: they stay down until the test starts them. Call this before the
    /// nodes boot.
    pub fn stay_down(&self) -> Result<()> {
        for (node, unit) in self.nodes().iter().map(|node| (node, AGENT)).chain([(self.controller()?, CONTROLLER)]) {
            node.write_file(&format!("/etc/systemd/system/{unit}.d/bed.conf"), "[Service]\nRestart=no\n")?;
        }
        Ok(())
    }

    /// Boots every node that is off, and waits until the controller shows the nodes as online.
    pub fn boot(&self) -> Result<()> {
        self.bed().boot()?;
        self.wait_online()
    }

    /// Kills a node's agent with kill -9; returns when the process has ended.
    pub fn kill_agent(&self, rank: usize) -> Result<()> {
        self.kill(self.node(rank)?, AGENT)
    }

    pub fn start_agent(&self, rank: usize) -> Result<()> {
        self.node(rank)?.systemctl(&["start", AGENT]).map(drop)
    }

    /// Kills a node's agent with kill -9; returns when systemd has started another agent.
    pub fn renew_agent(&self, rank: usize) -> Result<()> {
        let node = self.node(rank)?;
        let pid = || node.systemctl(&["show", "--property=MainPID", "--value", AGENT]);
        let before = pid()?;
        Self::kill_unit(node, AGENT)?;
        self.bed().wait_until(&format!("another agent on {}", node.name()), SOON, || {
            let now = pid()?;
            Ok(now != "0" && now != before)
        })
    }

    /// Kills the controller with kill -9; returns when the process has ended.
    pub fn kill_controller(&self) -> Result<()> {
        // Without the stop, the socket unit would start the controller again at the first redial.
        self.controller()?.systemctl(&["stop", "perilog-controller.socket"])?;
        self.kill(self.controller()?, CONTROLLER)
    }

    pub fn start_controller(&self) -> Result<()> {
        self.controller()?.systemctl(&["start", "perilog-controller.socket", CONTROLLER]).map(drop)
    }

    fn kill(&self, node: &Node, unit: &str) -> Result<()> {
        Self::kill_unit(node, unit)?;
        self.bed().wait_until(&format!("{unit} of {} is gone", node.name()), SOON, || {
            let state = node.systemctl(&["show", "--property=ActiveState", "--value", unit])?;
            Ok(state == "failed" || state == "inactive")
        })
    }

    /// Stops PID 1 of a node (SIGSTOP) from outside of the node: it answers nothing and starts nothing. All other
    /// processes go on.
    pub fn stop_systemd(&self, rank: usize) -> Result<()> {
        signal(self.node(rank)?.leader()?, Signal::STOP);
        Ok(())
    }

    /// Lets a stopped PID 1 go on.
    pub fn continue_systemd(&self, rank: usize) -> Result<()> {
        signal(self.node(rank)?.leader()?, Signal::CONT);
        Ok(())
    }

    /// Mounts a file system that never answers (FUSE, whose server reads no request) on this directory of a node, and
    /// waits until it is there.
    pub fn mount_dead(&self, rank: usize, directory: &str) -> Result<()> {
        let node = self.node(rank)?;
        node.write_file("/root/dead-fs.py", DEAD_FS)?;
        node.sh(&format!(
            "mkdir -p {directory} && systemd-run --quiet --unit=dead-fs python3 /root/dead-fs.py {directory}"
        ))?;
        self.bed().wait_until("the dead file system is mounted", SOON, || {
            Ok(node.sh("cat /proc/self/mounts")?.contains(&format!(" {directory} fuse ")))
        })
    }

    /// Ends the server of the dead file system: whatever waits for it gets an error. Then unmounts the file system.
    pub fn end_dead(&self, rank: usize, directory: &str) -> Result<()> {
        let node = self.node(rank)?;
        node.sh(&format!("systemctl kill --signal=KILL dead-fs.service; umount -l {directory}")).map(drop)
    }

    /// Waits until `perilog ps` shows a row with all of these texts.
    pub fn wait_ps(&self, texts: &[&str]) -> Result<()> {
        self.bed().wait_until(&format!("ps says {texts:?}"), SOON, || {
            let rows = self.perilog(&["ps"])?.ok()?;
            Ok(rows.lines().any(|row| texts.iter().all(|text| row.contains(text))))
        })
    }

    /// Waits until a node is drained for a reason with this text.
    pub fn wait_drained(&self, text: &str) -> Result<()> {
        let drained = || Ok(self.perilog(&["drain"])?.ok()?.contains(text));
        self.bed().wait_until(&format!("a node is drained: {text}"), SOON, drained)
    }

    /// Opens a node's gate, the file /run/gate: the scripts that wait for it continue to their end.
    pub fn open_gate(&self, rank: usize) -> Result<()> {
        self.node(rank)?.sh("touch /run/gate").map(drop)
    }

    /// Closes the gate of every node: removes the file /run/gate, for which the next scripts then wait.
    pub fn close_gates(&self) -> Result<()> {
        self.nodes().iter().try_for_each(|node| node.sh("rm -f /run/gate").map(drop))
    }

    pub fn open_gates(&self) -> Result<()> {
        (0..self.nodes().len()).try_for_each(|rank| self.open_gate(rank))
    }

    /// Returns each run of a job's scripts with the run's rank, read from the nodes' ledgers, in the order of their
    /// begin.
    pub fn runs(&self, job: &str) -> Result<Vec<(u32, Run)>> {
        let ledger = self.ledger()?;
        Ok(ledger.of_job(job).into_iter().map(|(key, run)| (key.rank, run.clone())).collect())
    }

    /// Waits until a script of the job has begun on each of these ranks.
    pub fn wait_begun(&self, job: &str, ranks: &[u32]) -> Result<()> {
        self.bed().wait_until(&format!("scripts of {job} have begun on {ranks:?}"), SOON, || {
            let runs = self.runs(job)?;
            Ok(ranks.iter().all(|rank| runs.iter().any(|(of, _)| of == rank)))
        })
    }

    /// Waits until a script of this action of the job has begun on each of these ranks.
    pub fn wait_action_begun(&self, job: &str, action: &str, ranks: &[u32]) -> Result<()> {
        self.bed().wait_until(&format!("scripts of {action} of {job} have begun on {ranks:?}"), SOON, || {
            let ledger = self.ledger()?;
            let begun: Vec<u32> =
                ledger.of_job(job).iter().filter(|(key, _)| key.action == action).map(|(key, _)| key.rank).collect();
            Ok(ranks.iter().all(|rank| begun.contains(rank)))
        })
    }

    /// Waits until every script of the job that began on these ranks has ended, by the ledger.
    pub fn wait_scripts_ended(&self, job: &str, ranks: &[u32]) -> Result<()> {
        self.bed().wait_until(&format!("scripts of {job} have ended on {ranks:?}"), SOON, || {
            let runs = self.runs(job)?;
            let ended = |rank| runs.iter().filter(|(of, _)| of == rank).all(|(_, run)| run.ended.is_some());
            Ok(ranks.iter().all(|rank| runs.iter().any(|(of, _)| of == rank) && ended(rank)))
        })
    }

    /// Waits until the controller shows a verdict for every action of the job's newest attempt.
    pub fn wait_verdicts(&self, job: &str) -> Result<()> {
        self.bed().wait_until(&format!("verdicts of {job}"), SOON, || {
            let Some(job) = self.known_job(job)? else { return Ok(false) };
            let last = job.attempts.last().context("an attempt")?;
            Ok(!last.actions.is_empty() && last.actions.iter().all(|action| action.verdict.is_some()))
        })
    }

    /// Waits until the controller shows that this action of the job has ended on this rank.
    pub fn wait_shown_ended(&self, job: &str, action: &str, rank: u32) -> Result<()> {
        self.bed().wait_until(&format!("the end of {action} of {job} on rank {rank}"), SOON, || {
            let Some(job) = self.known_job(job)? else { return Ok(false) };
            let mut actions = job.attempts.iter().flat_map(|attempt| &attempt.actions);
            Ok(actions.any(|of| of.name.as_str() == action && !of.open.iter().any(|row| row.ranks.contains(rank))))
        })
    }

    /// Waits for the end of a `perilog` command; returns its exit code.
    pub fn wait_end(&self, running: &mut Running) -> Result<i32> {
        self.bed().wait_until("perilog has ended", SOON, || running.has_ended())?;
        running.output()?.code().context("an exit code")
    }

    /// Asserts that the controller's view of this job agrees with the ledgers. Each action has the one script
    /// `10-gate`.
    pub fn assert_true(&self, job: &str, actions: &[&str]) -> Result<()> {
        let scripts: Vec<(&str, &[&str])> = actions.iter().map(|action| (*action, &["10-gate"][..])).collect();
        let comparison = self.compare(job, &scripts)?;
        ensure!(comparison.holds(), "the controller and the ledgers differ:\n{comparison}\n{}", self.bed().diagnosis());
        Ok(())
    }

    /// Asserts what [`assert_true`](Self::assert_true) does, and that each task is `ok`, or has an exit code and lists
    /// the ends of its scripts. The death of a daemon must lead neither to `lost` nor to an outcome without these
    /// details.
    pub fn assert_ran(&self, job: &str, actions: &[&str]) -> Result<()> {
        self.assert_true(job, actions)?;
        for known in ledger::known(&self.job(job)?) {
            let exact = known.outcome == "ok" || known.code.is_some() && !known.scripts.is_empty();
            ensure!(exact, "{} of rank {}: {}\n{}", known.action, known.rank, known.outcome, self.bed().diagnosis());
        }
        Ok(())
    }

    /// Asserts what [`assert_ran`](Self::assert_ran) does, and waits until no node keeps the directory of any task.
    pub fn assert_exact(&self, job: &str, actions: &[&str]) -> Result<()> {
        self.assert_ran(job, actions)?;
        self.bed().wait_until(&format!("the tasks of {job} have their tombstones"), SOON, || {
            let tasks = |node: &Node| node.sh("ls /run/perilog/tasks");
            Ok(self.nodes().iter().map(tasks).collect::<Result<String>>()?.is_empty())
        })
    }

    /// Returns the outcome of a rank's task in the job's newest attempt, as word and text: (`failed`, `failed (exit
    /// 3)`). For a task that has not ended, returns its state and the reason.
    pub fn outcome(&self, job: &str, action: &str, rank: u32) -> Result<(String, String)> {
        let view = self.job(job)?;
        let attempt = view.attempts.last().context("an attempt")?;
        let action = attempt.actions.iter().find(|a| a.name.as_str() == action).context("the action")?;
        if let Some(ended) = action.ended.iter().find(|row| row.ranks.contains(rank)) {
            return Ok((ended.ended.outcome.as_str().to_owned(), ended.ended.outcome.to_string()));
        }
        if action.ok.contains(rank) {
            return Ok(("ok".to_owned(), "ok".to_owned()));
        }
        match action.open.iter().find(|row| row.ranks.contains(rank)) {
            Some(row) => Ok((row.state.clone(), row.why.clone())),
            None => bail!("rank {rank} is in no state: {action:?}"),
        }
    }
}
