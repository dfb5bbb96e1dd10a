//! Checks that a run with a committed cancel gets TERM, and that no runner claims a task after its agent has read the
//! Cancel.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::{Attempt, JobId, TaskId};

use super::Truth;

/// Longest time (ms) from a committed cancel to the TERM on an undisturbed node: messages and wake-ups take seconds at
/// most.
const DEAF_MS: u64 = 8_000;
/// Longest time (ms) from the send of a message to its arrival in an open session, behind all earlier messages.
const FRAME_MS: u64 = 3_100;
/// Time (ms) after a failed effect by which the agent has tried the effect again.
const HURT_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub(super) struct Stops {
    /// Runs, by index, that have a committed cancel and no TERM yet, each with the world time (ms) since when.
    deaf: BTreeMap<usize, u64>,
    /// By task: the agent (node, number of its process) that last read a Cancel of the task and could carry it out.
    cancels: BTreeMap<TaskId, (usize, u64)>,
    /// Tasks that an agent was ever asked to stop.
    to_stop: BTreeSet<TaskId>,
    /// Jobs whose waiting tasks a controller may withdraw after a request, such as a cancel, a finish or a requeue.
    to_end: BTreeSet<JobId>,
    /// The attempts of each job that requests have named.
    attempts: BTreeMap<JobId, BTreeSet<Attempt>>,
    /// By task: the agent (node, number of its process) that last read a Forget of the task.
    pub(super) forgets: BTreeMap<TaskId, (usize, u64)>,
    /// By task: the node that last read a Start of the task, and the world time (ms) of that.
    starts: BTreeMap<TaskId, (usize, u64)>,
    /// By node: the world time (ms) of the last disturbance, such as a failed effect that the agent tries again later.
    hurt: BTreeMap<usize, u64>,
    /// World time (ms) at which an agent failed to take a claim, by task and node.
    not_taken: BTreeMap<(TaskId, usize), u64>,
    /// Tasks that the first controller recorded as `lost (offline)` while their node had a session. By task: the number
    /// of that session, in which the controller sends a Cancel of the task, and the world time (ms) of the loss.
    fenced: BTreeMap<TaskId, (u64, u64)>,
    /// Tasks that an operator resolved before their begin, while their node had a session. By task: the number of that
    /// session, in which the controller sends a Cancel of the task, and the world time (ms) of the resolution.
    resolved: BTreeMap<TaskId, (u64, u64)>,
}

impl Stops {
    fn is_to_try_again(&self, at: usize, task: TaskId, t: u64) -> bool {
        self.not_taken.get(&(task, at)).is_some_and(|when| t < when + HURT_MS)
    }

    /// Forgets the Cancel and the Forget that an agent read for this task, because a new intent of the task begins
    /// another run.
    pub(super) fn written(&mut self, task: TaskId) {
        self.cancels.remove(&task);
        self.forgets.remove(&task);
    }
}

impl Stops {
    /// Returns `true` if an agent has read a Start of the task.
    pub(super) fn has_read_start(&self, task: TaskId) -> bool {
        self.starts.contains_key(&task)
    }
}

impl Truth {
    /// Returns the runs that have not ended and whose runner has got no TERM. Each is (index of the run, index of the
    /// node, task). Leaves out runs about which the checks cannot be sure.
    pub(crate) fn untouched(&self) -> Vec<(usize, usize, TaskId)> {
        let all = self.runs.iter().enumerate();
        let on = all.filter(|(_, run)| run.result.is_none() && !run.killed && !run.down && !run.cancelled);
        let sure = on.filter(|(_, run)| !run.meddled && !run.local && !self.is_cleared(run.task));
        sure.filter(|(_, run)| !self.is_doubtful(run.task, Some(run.node)))
            .map(|(index, run)| (index, run.node, run.task))
            .collect()
    }

    /// Checks that each run gets its TERM within [`DEAF_MS`] from the commit of its cancel, or from the last
    /// disturbance of its node if that is later. `to_stop`: the runs, by index, with a committed cancel and no TERM
    /// yet, each with the world time (ms) since when its node is undisturbed.
    pub(crate) fn must_stop(&mut self, to_stop: &BTreeMap<usize, u64>, t: u64) {
        self.stops.deaf.retain(|run, _| to_stop.contains_key(run));
        for (run, calm_since) in to_stop {
            let since = *self.stops.deaf.entry(*run).or_insert(t);
            if t.saturating_sub(since.max(*calm_since)) > DEAF_MS {
                let stem = self.runs.get(*run).map(|run| run.stem.clone()).unwrap_or_default();
                self.broken(|| {
                    format!("cancel: that of {stem} was committed by {since}, and at {t} it has had no TERM")
                });
            }
        }
    }

    /// Records a request after which a controller may withdraw waiting tasks of the job.
    pub(crate) fn asked_to_end(&mut self, job: JobId) {
        self.stops.to_end.insert(job);
    }

    /// Returns `true` if the task may end as cancelled before it begins. An agent was asked to stop it, or a request
    /// lets a controller withdraw waiting tasks of the job. Or releases of the job may be forgotten: the attempt's
    /// epilog may then have run on the rank already.
    pub(super) fn was_to_end(&self, job: &JobId, task: TaskId) -> bool {
        self.was_to_stop(task) || self.stops.to_end.contains(job) || self.releases.is_forgetful(job)
    }

    /// Records a request that names this attempt (`None`: the first one). Once requests have named two attempts of a
    /// job, perilog may withdraw waiting tasks of the job.
    pub(crate) fn asked_for_attempt(&mut self, job: &JobId, attempt: Option<Attempt>) {
        let asked = self.stops.attempts.entry(job.clone()).or_default();
        asked.insert(attempt.unwrap_or(Attempt::FIRST));
        if asked.len() > 1 {
            self.asked_to_end(job.clone());
        }
    }

    pub(crate) fn asked_to_stop(&mut self, task: TaskId) {
        self.stops.to_stop.insert(task);
    }

    pub(super) fn was_to_stop(&self, task: TaskId) -> bool {
        self.stops.to_stop.contains(&task)
    }

    pub(crate) fn read_cancel(&mut self, at: usize, incarnation: u64, task: TaskId, t: u64) {
        let hurt = self.stops.hurt.get(&at).is_some_and(|when| t < when + HURT_MS);
        if !hurt && !self.stops.is_to_try_again(at, task, t) {
            self.stops.cancels.insert(task, (at, incarnation));
        }
    }

    /// Records that the agent tried to take a task's claim. `ok`: the claim now exists, by the agent or by a runner.
    /// Otherwise /run is full, and the agent tries again later; a runner may take the claim before that.
    pub(crate) fn claim_tried(&mut self, at: usize, task: TaskId, ok: bool, t: u64) {
        if ok {
            self.stops.not_taken.remove(&(task, at));
        } else {
            self.stops.cancels.remove(&task);
            self.stops.not_taken.insert((task, at), t);
        }
    }

    pub(crate) fn read_start(&mut self, at: usize, task: TaskId, t: u64) {
        self.stops.starts.insert(task, (at, t));
    }

    pub(crate) fn read_forget(&mut self, at: usize, incarnation: u64, tasks: &[TaskId]) {
        self.stops.forgets.extend(tasks.iter().map(|task| (*task, (at, incarnation))));
    }

    /// Records a disturbance of the node: the agent may have read messages without carrying them out.
    pub(crate) fn disturbed(&mut self, at: usize, t: u64) {
        self.stops.hurt.insert(at, t);
        self.stops.cancels.retain(|_, (node, _)| *node != at);
    }

    /// Records that the first controller ends a task as `lost (offline)` at world time `t` (ms), while the task's node
    /// has a session: the node did not accept the task within the start-grace. `conn`: the number of that session. In
    /// it the controller sends a Cancel of the task, so that the task never begins.
    pub(crate) fn fenced(&mut self, task: TaskId, conn: u64, t: u64) {
        self.stops.fenced.insert(task, (conn, t));
    }

    /// Records that an operator resolved a task at world time `t` (ms), while the task's node has a session. Does
    /// nothing if a runner has claimed the task. `conn`: the number of that session, in which the controller sends a
    /// Cancel of the task.
    pub(crate) fn resolved(&mut self, task: TaskId, conn: u64, t: u64) {
        if self.runs_of(task).next().is_none() {
            self.stops.resolved.insert(task, (conn, t));
        }
    }

    /// Returns why a runner must not take the claim of a task now; `None`: it may, or the checks cannot know. `agent`:
    /// index of the node, and number of the agent's process. `fences`: number of the agent's session if a Cancel in it
    /// arrives in time; otherwise `None`. `calm_since`: world time (ms) since when the session is undisturbed.
    pub(crate) fn may_begin(
        &self,
        agent: (usize, u64),
        task: TaskId,
        fences: Option<u64>,
        calm_since: Option<u64>,
        t: u64,
    ) -> Option<String> {
        if self.is_doubtful(task, Some(agent.0))
            || self.is_cleared(task)
            || self.stops.is_to_try_again(agent.0, task, t)
        {
            return None;
        }
        if self.stops.cancels.get(&task) == Some(&agent) {
            return Some("its agent had read the cancel".to_owned());
        }
        let started = self.stops.starts.get(&task).filter(|(node, _)| *node == agent.0).map(|(_, when)| *when);
        if let Some((of, lost)) = self.stops.fenced.get(&task)
            && fences == Some(*of)
            && started.is_some_and(|when| when > lost + FRAME_MS)
            && self.stops.hurt.get(&agent.0).is_none_or(|hurt| hurt < lost)
        {
            return Some(format!(
                "it was lost as offline at {lost}, before its agent read the start in the same session"
            ));
        }
        if let Some((of, when)) = self.stops.resolved.get(&task)
            && fences == Some(*of)
            && calm_since.is_some_and(|since| since < *when && when + 2 * FRAME_MS < t)
        {
            return Some(format!("it was resolved manually at {when}, in a session that stands still"));
        }
        let (lost, _) = self.shown[0].ended_at(task).filter(|(_, outcome)| super::agree::is_offline(outcome))?;
        let since = calm_since.filter(|since| lost < *since && since + 2 * FRAME_MS < t)?;
        Some(format!("it was lost as offline at {lost}, and its node has had a session since {since}"))
    }
}
