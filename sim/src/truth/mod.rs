//! What really happened: which script was alive where, how it ended. The machines never see this; everything they say is held against it.

mod agree;
mod books;
mod given;
mod guard;
mod milestones;
mod quiet;
mod services;
mod stopped;
mod store;

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::Snapshot;
use perilog_core::controller::io::ActionRow;
use perilog_core::task::{Intent, Lingering, Report, RunResult};
use perilog_core::{ActionId, ActionName, Attempt, BootId, ExitStatus, InvocationId, JobId, Loss, Outcome, TaskId};

use stopped::Stops;
use store::Shown;

#[derive(Debug, Default)]
pub(crate) struct Truth {
    runs: Vec<Run>,
    by_task: BTreeMap<TaskId, Vec<usize>>,
    /// What each store has shown.
    shown: [Shown; 2],
    /// Actions of which a store was lost, or that two controllers had in hand: nobody can know some things of them.
    doubtful: BTreeSet<ActionId>,
    /// Machines that share a name: nobody can know on which of them something ran.
    doubtful_nodes: BTreeSet<usize>,
    /// Tasks whose directory somebody removed, and their names: what only that said nobody can know.
    cleared: BTreeMap<TaskId, String>,
    /// Tasks whose tombstone went when it might.
    forgotten: BTreeSet<TaskId>,
    /// What callers on a host's local socket were told: (machine, its boot, task) and the word of the outcome.
    told: BTreeMap<(usize, u64, TaskId), &'static str>,
    /// (machine, boot, task) of which it was said that it was cancelled before it began.
    told_cancelled: BTreeSet<(usize, u64, TaskId)>,
    /// Their end was acknowledged, and their directory went.
    buried: BTreeSet<TaskId>,
    /// Tasks whose runner died before it claimed, and of which signal.
    died_unclaimed: BTreeSet<(TaskId, u8)>,
    given: given::Given,
    books: books::Books,
    services: services::Services,
    /// Nodes on which all tasks queue.
    exclusive: BTreeSet<usize>,
    stops: Stops,
    milestones: milestones::Book,
    quiet: quiet::Book,
    /// In which boot of its node a task was first shown as ok.
    ok_in: BTreeMap<TaskId, BootId>,
    broken: Option<String>,
    pub(crate) scripts: u64,
    pub(crate) outcomes: u64,
}

/// One claim, and what came of it.
#[derive(Debug)]
struct Run {
    task: TaskId,
    node: usize,
    stem: String,
    job: JobId,
    step: (Attempt, ActionName),
    boot: u64,
    meant_for: BootId,
    lingering: Lingering,
    local: bool,
    invocation: InvocationId,
    /// Ends of scripts so far.
    ends: Vec<ExitStatus>,
    /// A script of it began; the last of them did.
    begun: bool,
    last_begun: bool,
    alive: bool,
    left_behind: bool,
    tolerable: bool,
    /// A script announced a boot; it heard that the controller knew; boots since.
    announced: bool,
    boot_known: bool,
    boots: u32,
    /// A script failed, or a limit passed while one lived; and what had gone wrong when the boot was announced: a check too.
    failed: bool,
    failed_before: bool,
    tolerable_before: bool,
    cancelled: bool,
    /// The runner was killed; somebody stopped the unit; the machine went down before its end was acknowledged.
    killed: bool,
    oom: bool,
    meddled: bool,
    down: bool,
    /// The machine went down then, or later.
    rebooted: bool,
    /// Its unit is gone.
    unloaded: bool,
    /// What the runner made of it, and whether it could be written.
    result: Option<(RunResult, bool)>,
}

impl Truth {
    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    fn broken(&mut self, text: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(text);
    }

    fn runs_of(&self, task: TaskId) -> impl Iterator<Item = &Run> {
        self.by_task.get(&task).into_iter().flatten().filter_map(|at| self.runs.get(*at))
    }

    /// Invariant 1: a task is claimed at most once per attempt.
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
            // A store that was put back may not know what it had asked of a boot that is over, or of an attempt that its nodes were told to
            // forget; nobody else knows it either.
            let elsewhere = (node, of_boot) != (at, boot);
            let unknowable = self.is_doubtful(task, Some(at)) && (elsewhere || self.forgotten.contains(&task));
            // Nor does anybody know of a run whose directory somebody removed, once its unit is gone: a unit that is there would have its name.
            if !unknowable && !self.is_cleared(task) && !intent.local {
                self.broken(|| {
                    format!("1 claimed once: {stem} on n{at} (machine {machine}) by {invocation} at {t}, and before on n{node} by {other}")
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
            ends: Vec::new(),
            begun: false,
            last_begun: false,
            alive: false,
            left_behind: false,
            tolerable: false,
            announced: false,
            boot_known: false,
            boots: 0,
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
            result: None,
        });
        self.by_task.entry(task).or_default().push(index);
        index
    }

    pub(crate) fn script_starts(&mut self, index: usize, last: bool, t: u64) {
        self.scripts += 1;
        let Some(run) = self.runs.get_mut(index) else { return };
        run.alive = true;
        run.begun = true;
        run.last_begun |= last;
        let task = run.task;
        let (node, stem) = (run.node, run.stem.clone());
        self.check_nothing_ran(task, node, &stem);
        self.check_not_given(index);
        self.check_alone(index, t);
    }

    pub(crate) fn script_ended(&mut self, index: usize, status: ExitStatus, _t: u64) {
        if let Some(run) = self.runs.get_mut(index) {
            run.alive = false;
            run.ends.push(status);
            run.failed |= !status.is_success();
        }
    }

    pub(crate) fn overdue(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.failed = true;
        }
    }

    pub(crate) fn boot_known(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.boot_known = true;
        }
    }

    /// Had a script of it announced the one boot that there was, and heard that the controller knew, and none was left to begin?
    pub(crate) fn was_awaited(&self, task: TaskId, at: usize) -> bool {
        self.runs_of(task).any(|run| run.node == at && run.boot_known && run.boots == 1 && run.last_begun)
    }

    /// It failed, and is tried again: that end counts for nothing.
    pub(crate) fn script_tried(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index) {
            run.alive = false;
        }
    }

    /// The kernel killed a script of it.
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
                self.milestones.said(&run.job, run.step.0, run.task.rank, name);
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
        for run in self.runs.iter_mut().filter(|run| run.node == at) {
            run.rebooted = true;
            run.boots += u32::from(run.announced);
            // One whose end was acknowledged had been told before.
            run.down |= !self.buried.contains(&run.task);
            run.alive = false;
            run.left_behind = false;
        }
    }

    /// Somebody who is not us stops a unit.
    pub(crate) fn meddled(&mut self, at: usize, stem: &str) {
        for run in self.runs.iter_mut().filter(|run| run.node == at && run.stem == stem) {
            run.meddled = true;
        }
    }

    /// StopUnit ends what is there: an agent does that only to a unit in which nothing lives.
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

    /// Somebody removed a directory, with whatever was in it. `task`: as its intent said, if it had one.
    pub(crate) fn cleared(&mut self, at: usize, stem: &str, task: Option<TaskId>) {
        self.cleared.extend(task.map(|task| (task, stem.to_owned())));
        let there = self.runs.iter_mut().filter(|run| run.node == at && run.stem == stem);
        there.filter_map(|run| run.result.as_mut()).for_each(|(_, written)| *written = false);
    }

    pub(crate) fn is_cleared(&self, task: TaskId) -> bool {
        self.cleared.contains_key(&task)
    }

    pub(crate) fn is_cleared_stem(&self, stem: &str) -> bool {
        self.cleared.values().any(|cleared| cleared == stem)
    }

    pub(crate) fn told_cancelled(&mut self, machine: usize, boot: u64, task: TaskId) {
        self.told_cancelled.insert((machine, boot, task));
    }

    /// ... and its node, or a controller, can know that still.
    pub(crate) fn was_told_cancelled(&self, machine: usize, boot: u64, task: TaskId) -> bool {
        let known = !self.is_cleared(task) || !self.is_doubtful(task, None);
        known && self.told_cancelled.contains(&(machine, boot, task))
    }

    pub(crate) fn forgotten(&mut self, task: TaskId) {
        self.told_cancelled.retain(|(_, _, told)| *told != task);
        self.forgotten.insert(task);
    }

    /// How a task had ended for everybody to see before `t`.
    pub(crate) fn ended_before(&self, task: TaskId, t: u64) -> Option<&Outcome> {
        let sure = !self.is_doubtful(task, None);
        let shown = self.shown.iter().filter(|_| sure).filter_map(|shown| shown.ended_at(task));
        shown.filter(|(at, _)| *at < t).map(|(_, outcome)| outcome).next()
    }

    fn was_resolved(&self, task: TaskId) -> bool {
        matches!(self.shown[0].outcome(task), Some(Outcome::Resolved { .. }))
    }

    /// Everything that a node could still tell has been told: as an outcome, or as late.
    pub(crate) fn all_told(&mut self, store: &Snapshot) {
        self.all_heard(store);
        let mut missing = None;
        // One that waited for a boot ends by that, or by its being late.
        let unknowable = |run: &Run| run.down || run.meddled || run.announced || self.is_cleared(run.task);
        // Of one that was settled by hand before a script began nothing is left to tell.
        let unknowable = |run: &Run| unknowable(run) || (!run.begun && self.was_resolved(run.task));
        let sure = |run: &&Run| !unknowable(run) && !run.local && !self.is_doubtful(run.task, None);
        for run in self.runs.iter().filter(sure) {
            let Some(row) = store.actions.iter().find(|row| row.id == run.task.action) else { continue };
            let rank = run.task.rank;
            let told = row.ok.contains(rank.0) && self.agrees(run.task, &Outcome::Ok).is_ok();
            let rows = store.ranks.iter().filter(|row| row.task == run.task);
            let mut ends = rows.flat_map(|row| std::iter::once(&row.ended).chain(&row.late));
            let is_told = |outcome: &Outcome| match outcome {
                // While its action is open, what its node did in the boot before counts no more: that had been told, and is lost.
                Outcome::Lost { why: Loss::Rebooted } => run.rebooted,
                Outcome::Lost { .. } | Outcome::Resolved { .. } => false,
                _ => true,
            };
            if !told && !ends.any(|ended| is_told(&ended.outcome)) {
                missing = Some(run.stem.clone());
            }
        }
        if let Some(stem) = missing {
            self.broken(|| {
                format!("5 told: {stem} ran to its end, its node is there, and the controller was never told")
            });
        }
    }

    /// A store was put back, or is another's: what it does not have as it was, nobody may know; nor what only it still has, and nodes were told
    /// to forget.
    pub(crate) fn store_replaced(&mut self, which: usize, before: &Snapshot, store: &Snapshot) {
        let only_in = |one: &Snapshot, other: &Snapshot| -> Vec<ActionId> {
            let only = |row: &&ActionRow| !other.actions.contains(row);
            one.actions.iter().filter(only).map(|row| row.id).collect()
        };
        self.doubtful.extend(only_in(before, store));
        self.doubtful.extend(only_in(store, before));
        // What was appended to a rank late changes no action.
        let rank = |row: &&perilog_core::controller::io::RankRow| !store.ranks.contains(row);
        self.doubtful.extend(before.ranks.iter().filter(rank).map(|row| row.task.action));
        // An attempt that was pruned is there again, as it was before some of its actions began.
        let again = |job: &JobId, attempt| {
            let of = |row: &&perilog_core::controller::io::AttemptRow| row.job == *job && row.attempt == attempt;
            store.attempts.iter().any(|row| of(&row)) && !before.attempts.iter().any(|row| of(&row))
        };
        let runs = self.runs.iter().filter(|run| again(&run.job, run.step.0));
        self.doubtful.extend(runs.map(|run| run.task.action).collect::<Vec<_>>());
        self.shown[which] = Shown::of(store, &self.shown[0]);
        self.given_forgets(which, store);
        if which == 0 {
            self.services_forget();
            self.milestones.forget_all();
            self.quiet.forget();
        }
    }

    /// An agent buries a task: its end is known where it should be.
    pub(crate) fn buried(&mut self, task: TaskId) {
        self.buried.insert(task);
    }

    /// Of an attempt that was pruned a node may still tell an end that nobody has acknowledged: it was away, or obeyed another controller, for
    /// longer than the retention. Then its action comes again, and what had been shown of it was forgotten with the attempt.
    fn pruned(&mut self, which: usize, job: &JobId, attempt: Attempt) {
        let untold: BTreeSet<ActionId> = self.shown[which]
            .tasks_of(job, attempt)
            .filter(|task| !self.buried.contains(task))
            .map(|task| task.action)
            .collect();
        self.shown[which].forget(&untold);
        if which == 0 {
            self.given.forget(job, attempt);
            self.milestones.forget(job, attempt);
        }
    }

    /// Two machines of one name.
    pub(crate) fn cloned(&mut self, of: usize, clone: usize) {
        self.doubtful_nodes.extend([of, clone]);
    }

    /// Is this a task of which what a controller said need not hold? `at`: where something of it happens now.
    fn is_doubtful(&self, task: TaskId, at: Option<usize>) -> bool {
        let there = |node| self.doubtful_nodes.contains(&node);
        self.doubtful.contains(&task.action) || at.is_some_and(there) || self.runs_of(task).any(|run| there(run.node))
    }

    pub(crate) fn is_sure(&self, task: TaskId, at: usize) -> bool {
        !self.is_doubtful(task, Some(at))
    }

    /// Was it claimed in this boot?
    pub(crate) fn began_in(&self, task: TaskId, at: usize, boot: u64) -> bool {
        self.runs_of(task).any(|run| run.node == at && run.boot == boot)
    }

    /// A caller on the local socket of a machine was told how its task ended.
    pub(crate) fn told(&mut self, at: usize, boot: u64, task: TaskId, outcome: &Outcome) {
        let runs: Vec<&Run> = self.runs_of(task).filter(|run| run.node == at).collect();
        if let Err(truth) = self.runs_agree(task, &runs, outcome) {
            self.broken(|| format!("3 true: n{at} tells a caller that {task} is {outcome}; {truth}"));
        }
        let before = *self.told.entry((at, boot, task)).or_insert(outcome.word());
        if before != outcome.word() && !self.is_cleared(task) {
            self.broken(|| format!("5 shown: n{at} told a caller that {task} was {before}, and now {outcome}"));
        }
    }

    /// Tasks that a store says ended without a script.
    fn check_nothing_ran(&mut self, task: TaskId, at: usize, stem: &str) {
        if self.is_doubtful(task, Some(at)) {
            return;
        }
        let said =
            self.shown.iter().find_map(|shown| shown.outcome(task)).filter(|outcome| agree::nothing_ran(outcome));
        if let Some(said) = said.map(ToString::to_string) {
            self.broken(|| format!("2 one outcome: {stem} begins, and was shown as ended: {said}"));
        }
    }
}

/// Small sets of ids in texts.
pub(super) fn some<T: std::fmt::Display>(ids: &BTreeSet<T>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
