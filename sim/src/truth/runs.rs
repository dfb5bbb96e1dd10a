//! Records what really happens in each run of a task: scripts that begin and end, reports of scripts, signals,
//! lingering processes, stops from outside, and reboots of the node. Each claim of a runner begins a run.

use perilog_core::task::{Intent, Lingering, Report, RunResult};
use perilog_core::{ActionName, Attempt, BootId, ExitStatus, InvocationId, JobId, TaskId};

use super::{Truth, agree};

/// A run: a runner's claim, and everything that happened after it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) task: TaskId,
    pub(super) node: usize,
    pub(super) stem: String,
    pub(super) job: JobId,
    pub(super) step: (Attempt, ActionName),
    pub(super) boot: u64,
    pub(super) meant_for: BootId,
    pub(super) lingering: Lingering,
    pub(super) local: bool,
    pub(super) invocation: InvocationId,
    /// Number of times that each script of the run began.
    pub(super) starts: Vec<u32>,
    /// Whether the last try of a script failed and another try follows.
    pub(super) failed_try: bool,
    /// Whether the run's time limit passed while a script was alive.
    pub(super) overdue: bool,
    /// The exit status or signal of each script that has ended.
    pub(super) ends: Vec<ExitStatus>,
    /// Whether a script of the run has begun.
    pub(super) begun: bool,
    /// Whether the last of the task's scripts has begun.
    pub(super) last_begun: bool,
    /// Whether a script of the run is alive.
    pub(super) alive: bool,
    /// Whether lingering processes of the run are alive.
    pub(super) left_behind: bool,
    /// Whether a script reported a failed check (`perilog-report tolerable`).
    pub(super) tolerable: bool,
    /// Whether a script announced a reboot of its node.
    pub(super) announced: bool,
    /// Whether the script that announced a reboot got the controller's confirmation.
    pub(super) boot_known: bool,
    /// Number of reboots of the node since a script announced one.
    pub(super) boots: u32,
    /// Whether the node has since restarted as a container that keeps /run.
    uncounted: bool,
    /// Whether a script failed, or was alive past its limit.
    pub(super) failed: bool,
    /// Whether a script had failed, or was alive past its limit, when a script announced a reboot.
    pub(super) failed_before: bool,
    /// Whether a script had reported a failed check (`perilog-report tolerable`) when a script announced a reboot.
    pub(super) tolerable_before: bool,
    /// Whether the runner got TERM.
    pub(super) cancelled: bool,
    /// Whether a signal killed the runner.
    pub(super) killed: bool,
    /// Whether the kernel killed a script for its memory.
    pub(super) oom: bool,
    /// Whether the unit was stopped without a request to perilog.
    pub(super) meddled: bool,
    /// Whether the node went down before the run's end was safe. The end is safe once the agent has written the task's
    /// tombstone and the first controller's store shows the outcome. For a local task the tombstone is enough.
    pub(super) down: bool,
    /// Whether the node has gone down since the run began.
    pub(super) rebooted: bool,
    /// Whether the run's unit has been stopped and unloaded.
    pub(super) unloaded: bool,
    /// Whether no trace of the run is left: a fault removed the directory, and the unit was gone or the run had ended.
    pub(super) traceless: bool,
    /// The runner's result, and `true` if the result is in the task's directory; `None`: the runner has no result.
    pub(super) result: Option<(RunResult, bool)>,
}

impl Truth {
    pub(super) fn runs_of(&self, task: TaskId) -> impl Iterator<Item = &Run> {
        self.by_task.get(&task).into_iter().flatten().filter_map(|at| self.runs.get(*at))
    }

    /// Records a runner's claim on node `at`, and checks invariant 1: a task is claimed at most once per attempt.
    /// Returns the index of the run.
    pub(crate) fn claimed(
        &mut self,
        at: usize,
        machine: usize,
        boot: u64,
        stem: &str,
        intent: &Intent,
        invocation: &InvocationId,
        t: u64,
    ) -> usize {
        let start = &intent.start;
        let task = start.task;
        let before = self.runs_of(task).next().map(|run| (run.node, run.boot, run.invocation.clone()));
        if let Some((node, of_boot, other)) = before {
            // A controller with a lost store may start the task again. That is no violation where no machine can know
            // of the earlier run: it was on another node or in another boot, or the tombstone was removed.
            let elsewhere = (node, of_boot) != (at, boot);
            let unknowable = self.is_doubtful(task, Some(at)) && (elsewhere || self.forgotten.contains(&task));
            // The node lost every trace of its last run: the directory was removed after the end was in it or the unit
            // was gone, or the unit was stopped from outside after the removal.
            let last = self.runs_of(task).filter(|run| run.node == at).last();
            let traceless = last.is_some_and(|run| run.traceless);
            // A host remembers local tasks until the next reboot, and only as long as there is room. Later, a new
            // request runs the task anew.
            let is_over = last.is_none_or(|run| run.boot != boot) || self.forgotten.contains(&task);
            let is_anew = intent.local && is_over;
            if !unknowable && !traceless && !is_anew {
                self.broken(|| {
                    format!(
                        "1 claimed once: {stem} on n{at} (machine {machine}) by {invocation} at {t}, and before on \
                         n{node} by {other}"
                    )
                });
            }
        }
        self.check_nothing_ran(task, at, stem);
        let index = self.runs.len();
        self.runs.push(Run {
            task,
            node: at,
            stem: stem.to_owned(),
            job: start.job.clone(),
            step: (start.attempt, start.action.clone()),
            boot,
            meant_for: start.boot.clone(),
            lingering: intent.plan.lingering,
            local: intent.local,
            invocation: invocation.clone(),
            starts: Vec::new(),
            failed_try: false,
            overdue: false,
            ends: Vec::new(),
            begun: false,
            last_begun: false,
            alive: false,
            left_behind: false,
            tolerable: false,
            announced: false,
            boot_known: false,
            boots: 0,
            uncounted: false,
            failed: false,
            failed_before: false,
            tolerable_before: false,
            cancelled: false,
            killed: false,
            oom: false,
            meddled: false,
            down: false,
            rebooted: false,
            unloaded: false,
            traceless: false,
            result: None,
        });
        self.by_task.entry(task).or_default().push(index);
        index
    }

    pub(crate) fn script_starts(&mut self, index: usize, script: usize, last: bool, t: u64) {
        self.scripts += 1;
        self.check_start_of_script(index, script);
        let Some(run) = self.runs.get_mut(index) else { return };
        run.alive = true;
        run.begun = true;
        run.last_begun |= last;
        let task = run.task;
        let (node, stem) = (run.node, run.stem.clone());
        self.check_nothing_ran(task, node, &stem);
        self.check_not_released(index);
        self.check_released_to_another(index);
        self.check_alone(index, t);
        self.check_turn(index);
    }

    pub(crate) fn script_ended(&mut self, index: usize, status: ExitStatus, _t: u64) {
        if let Some(run) = self.runs.get_mut(index) {
            run.alive = false;
            run.ends.push(status);
            run.failed |= !status.is_success();
        }
        self.check_tries(index, status);
    }

    pub(crate) fn overdue(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            (run.failed, run.overdue) = (true, true);
        }
    }

    pub(crate) fn boot_known(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.boot_known = true;
        }
    }

    /// Returns `true` if the node rebooted exactly once since a script of the task announced a reboot, in a way that
    /// its agent can count, and two more conditions hold: that script had got the controller's confirmation, and the
    /// task's last script had begun. `at`: the index of the node.
    pub(crate) fn was_awaited(&self, task: TaskId, at: usize) -> bool {
        self.runs_of(task)
            .any(|run| run.node == at && run.boot_known && run.boots == 1 && run.last_begun && !run.uncounted)
    }

    /// Records the end of a script's try that another try follows: it does not count as the script's end.
    pub(crate) fn script_tried(&mut self, index: usize, status: ExitStatus) {
        if let Some(run) = self.runs.get_mut(index) {
            run.alive = false;
            run.failed_try = !status.is_success();
        }
    }

    /// Records that the kernel killed a script of this run for its memory.
    pub(crate) fn oom(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.oom = true;
        }
    }

    pub(crate) fn reported(&mut self, index: usize, report: &Report) {
        if let Some(run) = self.runs.get_mut(index) {
            run.tolerable |= matches!(report, Report::Tolerable { .. });
            if *report == Report::ExpectReboot {
                run.announced = true;
                (run.failed_before, run.tolerable_before) = (run.failed, run.tolerable);
            }
            if let Report::Milestone { name } = report
                && !run.local
            {
                self.milestones.reported(&run.job, run.step.0, run.task.rank, name);
            }
        }
    }

    pub(crate) fn left_behind(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.left_behind = true;
        }
    }

    pub(crate) fn leftovers_ended(&mut self, at: usize, stem: &str) {
        for run in self.runs.iter_mut().filter(|run| run.node == at && run.stem == stem) {
            run.left_behind = false;
        }
    }

    pub(crate) fn cancelled(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.cancelled = true;
        }
    }

    pub(crate) fn result(&mut self, index: usize, result: RunResult, written: bool) {
        if let Some(run) = self.runs.get_mut(index) {
            run.result = Some((result, written));
        }
    }

    pub(crate) fn runner_killed(&mut self, index: usize, leaves: bool, _t: u64) {
        if let Some(run) = self.runs.get_mut(index) {
            run.killed = true;
            if run.alive {
                run.alive = false;
                run.ends.push(ExitStatus::Signal(15));
            }
            run.left_behind |= leaves;
        }
    }

    pub(crate) fn died_unclaimed(&mut self, task: TaskId, signal: u8) {
        self.died_unclaimed.insert((task, signal));
    }

    pub(crate) fn machine_down(&mut self, at: usize, _t: u64) {
        let (at_rest, shown) = (&self.at_rest, &self.shown[0]);
        for run in self.runs.iter_mut().filter(|run| run.node == at) {
            run.rebooted = true;
            run.boots += u32::from(run.announced);
            // The end is safe if the agent has written the task's tombstone. For a controller's task the first
            // controller's store must show it, too: a second controller may have acknowledged it.
            let is_reported = shown.ended_at(run.task).is_some();
            run.down |= at_rest.get(&(run.task, at)) != Some(&true) || !(run.local || is_reported);
            run.alive = false;
            run.left_behind = false;
        }
    }

    /// Records that node `at` restarted as a container that keeps /run. An agent cannot count such restarts: an
    /// announced one may be any number of them.
    pub(crate) fn restarts_uncounted(&mut self, at: usize) {
        for run in self.runs.iter_mut().filter(|run| run.node == at) {
            run.uncounted = true;
        }
    }

    /// Records that a fault stopped a unit, without a request to perilog.
    pub(crate) fn meddled(&mut self, at: usize, stem: &str) {
        let cleared = &self.cleared;
        for run in self.runs.iter_mut().filter(|run| run.node == at && run.stem == stem) {
            run.meddled = true;
            run.traceless |= cleared.contains_key(&run.task);
        }
    }

    /// Records that a unit is stopped and unloaded, and checks that an agent's stop ended no live process. `keeps`:
    /// lingering processes may stay.
    pub(crate) fn unit_stopped(&mut self, _at: usize, stem: &str, run: Option<usize>, keeps: bool, t: u64) {
        let Some(run) = run.and_then(|run| self.runs.get_mut(run)) else { return };
        let killed = run.alive || (run.left_behind && !keeps);
        let meddled = run.meddled;
        run.alive = false;
        run.left_behind = false;
        run.unloaded = true;
        if killed && !meddled {
            self.broken(|| format!("an agent stopped {stem} at {t}, and something of it was alive"));
        }
    }

    /// Returns `true` if a runner claimed the task on node `at` in this boot.
    pub(crate) fn began_in(&self, task: TaskId, at: usize, boot: u64) -> bool {
        self.runs_of(task).any(|run| run.node == at && run.boot == boot)
    }

    /// Checks a task as a runner claims it on node `at`, or as one of its scripts begins: no store has shown an outcome
    /// which says that no script of the task ran.
    fn check_nothing_ran(&mut self, task: TaskId, at: usize, stem: &str) {
        if self.is_doubtful(task, Some(at)) {
            return;
        }
        let earlier =
            self.shown.iter().find_map(|shown| shown.outcome(task)).filter(|outcome| agree::nothing_ran(outcome));
        if let Some(earlier) = earlier.map(ToString::to_string) {
            self.broken(|| format!("2 one outcome: {stem} begins, and was shown as ended: {earlier}"));
        }
    }
}
