//! `job add`, `job finish`, `job cancel`: what a job holds, and how it lets go of it. In one step with that, what follows the job (its epilog,
//! its housekeeping) takes the ranks over, so that nobody finds them free in between.

use std::ops::Bound::{Excluded, Unbounded};

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::{Action, UNKNOWN_BOOT};
use crate::controller::attempt::JobAttempt;
use crate::controller::io::{ActionRow, JobAdd, Now, Record, Refusal, Reply, Which};
use crate::controller::layout::Layout;
use crate::controller::machine::Machine;
use crate::controller::tally::last_line;
use crate::defect;
use crate::duration::Span;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};

impl Machine {
    pub(super) fn job_add(&mut self, add: JobAdd, now: Now) -> Result<Reply, Refusal> {
        let number = self.choose_attempt(&add.job, add.attempt, |_| false)?;
        let layout = layout_of(&add)?;
        check(&add.terms, &layout)?;
        let hosts = layout.hosts().clone();
        let missing = self.in_use(&add.job, number).find(|(_, used)| !add.terms.resources.contains(*used));
        let missing = missing.map(|(action, used)| {
            format!("job {} attempt {number}: its {action} has {used}, which the job is to have no more", add.job)
        });
        let attached = match self.jobs.get_mut(&add.job).and_then(|job| job.attempts.get_mut(&number)) {
            None => {
                let attempt = JobAttempt::new(layout, add.userid, add.terms, true, now.wall_ms);
                self.open_attempt(&add.job, number, attempt, now);
                false
            }
            Some(there) if there.layout != layout && !there.is_part_of(&layout) => {
                let on = |layout: &Layout| format!("{} ({})", Part::of_ranks(layout.ranks().clone()), layout.hosts());
                let (is, asked) = (on(&there.layout), on(&layout));
                let text = format!("job {} attempt {number} is on {is}; asked for {asked}", add.job);
                return Err(Refusal::Conflict(text));
            }
            Some(there) if there.added && !there.terms.is_same(&add.terms) => {
                return Err(Refusal::Conflict(format!("job {} attempt {number} was added with other terms", add.job)));
            }
            Some(there) if there.added => true,
            // Of one that nodes told of nobody knows what it was, and whoever adds it says so; what it has let go of stays so.
            Some(there) if there.hold != there.whole() && !there.rebuilt => {
                let text = format!(
                    "job {} attempt {number} has let go of something already: it cannot be added any more",
                    add.job
                );
                return Err(Refusal::Conflict(text));
            }
            Some(_) if let Some(text) = missing => return Err(Refusal::Conflict(text)),
            // An action came first, or nodes told of it: from here on it is a job that somebody will finish.
            Some(there) => {
                there.widen(layout);
                (there.added, there.rebuilt) = (true, false);
                there.hold.resources = &add.terms.resources - &there.released.resources;
                // It had gone back whole, as far as nodes could tell: what is no rank has not.
                there.complete &= there.hold.is_empty();
                there.terms = add.terms;
                there.userid = there.userid.or(add.userid);
                let all = there.layout.ranks().clone();
                self.batch.attempts.insert((add.job.clone(), number));
                self.take_place(&add.job, number, &all, now);
                self.touch_all(&add.job, number, now);
                self.let_go_of_rest(&add.job, number, now);
                false
            }
        };
        let there = self.jobs.get(&add.job).and_then(|job| job.attempts.get(&number));
        let over = there.is_some_and(|there| there.hold.is_empty());
        Ok(Reply::Added { job: add.job, attempt: number, hosts, attached, over })
    }

    /// It was added with what is no rank, and has no rank left: nobody would ask for that again.
    fn let_go_of_rest(&mut self, job: &JobId, number: Attempt, now: Now) {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let rest = attempt.filter(|attempt| attempt.hold.ranks.is_empty()).map(|attempt| attempt.hold.clone());
        if let Some(rest) = rest {
            self.let_go(job, number, &rest, now);
        }
    }

    fn touch_all(&mut self, job: &JobId, number: Attempt, now: Now) {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        for id in attempt.map(|attempt| attempt.actions.clone()).unwrap_or_default() {
            self.touch(id, now);
        }
    }

    /// What is no rank and an action of this attempt covers, with the action's name.
    fn in_use(&self, job: &JobId, number: Attempt) -> impl Iterator<Item = (&ActionName, &ResourceName)> {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let actions = attempt.into_iter().flat_map(|attempt| &attempt.actions).filter_map(|id| self.actions.get(id));
        actions.flat_map(|action| {
            let external = action.row.external.iter();
            external.flat_map(|external| &external.resources).map(|used| (&action.row.name, used))
        })
    }

    pub(super) fn job_finish(&mut self, which: &Which, now: Now) -> Result<Reply, Refusal> {
        let (number, entry) = self.attempt_of(&which.job, which.attempt)?;
        self.check_named(which)?;
        let part = match (&which.targets, &which.resources) {
            (None, None) => entry.whole(),
            (targets, resources) => {
                let ranks = targets.as_ref().map(|targets| entry.layout.choose(targets)).transpose();
                let ranks = ranks.map_err(Refusal::Invalid)?.unwrap_or_default();
                Part { ranks, resources: resources.clone().unwrap_or_default() }
            }
        };
        self.check_heard(&which.job, number, entry, &part)?;
        // Whoever names ranks vouches for them.
        let mut gone = self.own(&which.job, number, &part.ranks, now);
        gone.extend_with(&self.let_go(&which.job, number, &part, now));
        Ok(Reply::Finished(gone))
    }

    /// A job does not end while nodes that were told of by others may hold something of it: where a store was lost, nobody else knows.
    fn check_heard(&self, job: &JobId, number: Attempt, attempt: &JobAttempt, part: &Part) -> Result<(), Refusal> {
        let unheard = self.unheard(attempt).difference(&part.ranks);
        let only_resources = part.ranks.is_empty() && !part.resources.is_empty();
        let last = !only_resources && attempt.hold.ranks.is_subset(&part.ranks);
        if unheard.is_empty() || !last {
            return Ok(());
        }
        let (hosts, whole) = (attempt.layout.hosts_of(&unheard), attempt.layout.ranks());
        Err(Refusal::Conflict(format!(
            "of what job {job} attempt {number} has on {hosts} only other nodes have told: it ends when those have too; or name all that it has (perilog job add, or --ranks {whole})"
        )))
    }

    pub(super) fn job_cancel(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        why: &str,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let (number, entry) = self.attempt_of(job, attempt)?;
        self.check_heard(job, number, entry, &entry.whole())?;
        // An epilog cleans up after the job, however that ended.
        let names = entry.actions.iter().filter_map(|id| self.actions.get(id)).map(|action| action.row.name.clone());
        let stopped: Vec<ActionName> = names.filter(|name| !self.settings.after.contains(name)).collect();
        for action in stopped {
            let which =
                Which { job: job.clone(), attempt: Some(number), action: Some(action), targets: None, resources: None };
            self.cancel(&which, why, uid, now)?;
        }
        let all = Which { job: job.clone(), attempt: Some(number), action: None, targets: None, resources: None };
        self.job_finish(&all, now)
    }

    pub(super) fn failed(&self, job: &JobId, attempt: Option<Attempt>) -> Result<Reply, Refusal> {
        let (_, entry) = self.attempt_of(job, attempt)?;
        let (mut ranks, mut resources, mut checks) = (IdSet::new(), Vec::new(), Vec::new());
        for id in &entry.actions {
            let Some(action) = self.actions.get(id).filter(|action| !self.settings.after.contains(&action.row.name))
            else {
                continue;
            };
            let bad = action.bad();
            checks.extend(self.failed_checks(*id, &bad));
            ranks.extend_with(&bad);
            let bad = action.row.external.iter().flat_map(|external| external.bad());
            resources.extend(bad.map(|(name, ended)| {
                json!({"resource": name, "action": action.row.name, "outcome": ended.outcome.word(),
                    "result": ended.outcome.to_string(), "message": last_line(ended), "checks": ended.checks})
            }));
        }
        Ok(Reply::Failed { hosts: entry.layout.hosts_of(&ranks), ranks, resources, checks })
    }

    /// The attempt that a request means: the open one, or the last.
    pub(super) fn attempt_of(&self, job: &JobId, asked: Option<Attempt>) -> Result<(Attempt, &JobAttempt), Refusal> {
        let entry = self.jobs.get(job).ok_or_else(|| self.no_job(job))?;
        let number = asked.or_else(|| entry.open_attempt()).or_else(|| entry.last_attempt());
        number.and_then(|number| Some((number, entry.attempts.get(&number)?))).ok_or_else(|| {
            let known: Vec<String> = entry.attempts.keys().map(ToString::to_string).collect();
            Refusal::NoSuchAttempt(format!("no such attempt of job {job}; it has {}", known.join(", ")))
        })
    }

    /// What a command says to mean this attempt, where one that names none means another.
    pub(super) fn attempt_option(&self, job: &JobId, number: Attempt) -> String {
        let meant = self.attempt_of(job, None).is_ok_and(|(meant, _)| meant == number);
        if meant { String::new() } else { format!(" --attempt {number}") }
    }

    /// The job lets go of a part of what it holds, and what follows it holds that from the same moment on.
    pub(super) fn let_go(&mut self, job: &JobId, number: Attempt, asked: &Part, now: Now) -> Part {
        let Some(entry) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else {
            return Part::default();
        };
        let part = entry.let_go(asked);
        if part.is_empty() {
            return part;
        }
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let last = attempt.is_some_and(|attempt| attempt.hold.ranks.is_empty() && self.unheard(attempt).is_empty());
        let Some(entry) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else { return part };
        if !last {
            entry.milestones.leave(&part.ranks);
        }
        let hosts = entry.layout.hosts_of(&part.ranks);
        let follows = !(entry.rebuilt && defect!(RebuiltUnfollowed));
        if last || !part.resources.is_empty() {
            entry.touched_ms = now.wall_ms;
            self.batch.attempts.insert((job.clone(), number));
        }
        self.batch.given.entry((job.clone(), number)).or_default().extend_with(&part.ranks);
        let context = json!({"attempt": number, "ranks": part.ranks, "hosts": hosts, "resources": part.resources});
        self.event(job, now, if last { "job-finish" } else { "job-let-go" }, context);
        // At its end all that was asked for has its turn before what follows.
        if !last && !defect!(BeginsWhereLetGo) {
            self.withdraw(job, number, &part.ranks, "the job has let go of them", now);
        }
        for name in self.settings.after.clone().into_iter().filter(|_| follows) {
            self.follow(job, number, &name, &part.ranks, last, now);
        }
        if last {
            // Also of what follows jobs no more, by the configuration of now.
            self.nothing_more(job, number);
        }
        self.batch.let_go.entry((job.clone(), number)).or_default().extend_with(&part);
        part
    }

    /// What follows a job that holds no rank any more has all its ranks.
    pub(super) fn nothing_more(&mut self, job: &JobId, number: Attempt) {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        for id in attempt.map(|attempt| attempt.actions.clone()).unwrap_or_default() {
            if let Some(action) = self.actions.get_mut(&id) {
                action.grown();
            }
            self.batch.touched.insert(id);
        }
    }

    /// Begins an action that follows the job over these ranks, or grows it by them.
    pub(super) fn follow(
        &mut self,
        job: &JobId,
        number: Attempt,
        name: &ActionName,
        ranks: &IdSet,
        last: bool,
        now: Now,
    ) {
        let id = ActionId::of(self.settings.cluster, job, number, name);
        let covered = self.actions.get(&id).map(|action| action.row.ranks.clone()).unwrap_or_default();
        let ranks = ranks.union(&self.begun_by_others(job, number));
        let ranks = &ranks.difference(&self.overtaken(id, job, number, &ranks.difference(&covered), now));
        if ranks.is_empty() && !self.actions.contains_key(&id) {
            return;
        }
        if let Some(action) = self.actions.get(&id) {
            // It was begun by hand before: what it covers it has covered.
            let new = ranks.difference(&action.row.ranks);
            if action.row.verdict.is_none() && action.row.external.is_none() {
                self.grow(id, &new, now);
            } else if action.row.verdict.is_some() && !new.is_empty() {
                let text = format!("{name} had ended before ranks {new} were let go: it does not follow there");
                self.note(Level::Warning, Some(job), None, text);
                let begun = self.begun(job, number).union(&self.spoken(job, number, &new));
                for rank in begun.intersection(&new).iter().map(Rank) {
                    self.drain_unclean(TaskId { action: id, rank }, now);
                }
            }
            return;
        }
        let userid = self.jobs.get(job).and_then(|j| j.attempts.get(&number)).and_then(|a| a.userid);
        let mut row = ActionRow::new(id, job.clone(), number, name.clone(), ranks.clone(), now.wall_ms);
        row.userid = userid;
        row.timeout_ms = self.settings.timeouts.get(name).copied();
        row.growing = !last;
        if defect!(HoldDropped) {
            row.held = Part::default();
        }
        self.begin(row, now);
    }

    /// Of these ranks those on whose nodes a later attempt has begun, which what follows this one (`by`) would disturb: their nodes are drained, but for
    /// those that tell that it was there. Not where only nodes have told of the later one: nobody knows then which the job is in.
    fn overtaken(&mut self, by: ActionId, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) -> IdSet {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let Some(attempt) = attempt.filter(|_| self.has_later_begun(job, number) && !defect!(OvertakenFollowed)) else {
            return IdSet::new();
        };
        let later = |rank: Rank| self.begun_since(job, number, &attempt.layout.host(rank)?);
        let overtaken: Vec<(Rank, Attempt)> =
            ranks.iter().map(Rank).filter_map(|rank| Some((rank, later(rank)?))).collect();
        let was_there = |rank: Rank| {
            let node = attempt.layout.host(rank).and_then(|host| self.nodes.get(&host));
            node.is_some_and(|node| node.stones.ran(TaskId { action: by, rank }))
        };
        // Named by what is known to have covered it, or by what else there is of the attempt.
        let of = |rank: Rank| {
            let covers = |action: &&Action| action.row.ranks.contains(rank.0) && !self.follows(action);
            self.of(attempt).find(covers).or_else(|| self.of(attempt).next()).map(|action| action.task(rank))
        };
        let unclean = overtaken.iter().filter(|(rank, _)| !was_there(*rank));
        let unclean: Vec<(TaskId, Attempt)> = unclean.filter_map(|(rank, later)| Some((of(*rank)?, *later))).collect();
        for (task, later) in unclean {
            self.drain_overtaken(task, later, now);
        }
        overtaken.iter().map(|(rank, _)| rank.0).collect()
    }

    /// Was anything begun, anywhere, of a later attempt of this job that somebody has asked for?
    fn has_later_begun(&self, job: &JobId, number: Attempt) -> bool {
        let later = self.jobs.get(job).map(|entry| entry.attempts.range((Excluded(number), Unbounded)));
        later
            .into_iter()
            .flatten()
            .any(|(_, attempt)| attempt.asked && self.of(attempt).any(|action| !action.row.boots.is_empty()))
    }

    /// A later attempt of this job that somebody has asked for, and of which something was begun on this host.
    fn begun_since(&self, job: &JobId, number: Attempt, host: &HostName) -> Option<Attempt> {
        let later = self.jobs.get(job)?.attempts.range((Excluded(number), Unbounded));
        let begun = |(_, attempt): &(&Attempt, &JobAttempt)| {
            let rank = attempt.layout.rank(host.as_str()).map(Rank);
            rank.is_some_and(|rank| {
                self.of(attempt).any(|action| action.boot(rank).is_some_and(|boot| boot != UNKNOWN_BOOT))
            })
        };
        later.filter(|(_, attempt)| attempt.asked).filter(begun).map(|(later, _)| *later).next_back()
    }

    /// Of an attempt that is over, and that nobody holds there any more: ranks on which another store had something begun that this one does not know, as
    /// their nodes told.
    fn begun_by_others(&self, job: &JobId, number: Attempt) -> IdSet {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let Some(attempt) = attempt.filter(|attempt| !attempt.open) else { return IdSet::new() };
        let mut left = attempt.layout.ranks().difference(&attempt.hold.ranks);
        left.subtract(&attempt.released.ranks);
        left.subtract(&attempt.told);
        self.spoken(job, number, &left)
    }

    /// It is over these too, and begins there.
    pub(super) fn grow(&mut self, id: ActionId, new: &IdSet, now: Now) {
        if let Some(action) = self.actions.get_mut(&id) {
            action.grow(new);
            self.index(id, new);
            self.touch(id, now);
            self.start_ready(id, new, now);
        }
    }

    /// An action that is new begins.
    pub(super) fn begin(&mut self, mut row: ActionRow, now: Now) {
        let (id, job, ranks) = (row.id, row.job.clone(), row.ranks.clone());
        row.events_from = self.jobs.get(&job).map_or(0, |j| j.events_last);
        let (name, attempt, external) = (row.name.clone(), row.attempt, row.external.clone());
        // Stored in the order of their begins, which says who waits for whom.
        self.batch.records.push(Record::Action(Box::new(row.clone())));
        self.load_action(Action::new(row, now.mono_ms));
        self.arm(id, now);
        self.touch(id, now);
        let hosts = self.layout(id).map(|layout| layout.hosts_of(&ranks));
        let mut context = json!({"action": name, "attempt": attempt, "id": id, "ranks": ranks, "hosts": hosts});
        if let (Some(external), Some(context)) = (external, context.as_object_mut()) {
            context.insert("resources".to_owned(), json!(external.resources));
            context.insert("lease".to_owned(), json!(Span::from_millis(external.lease_ms)));
        }
        self.event(&job, now, "action-start", context);
        self.start_ready(id, &ranks, now);
    }
}

fn layout_of(add: &JobAdd) -> Result<Layout, Refusal> {
    match (&add.terms.r, &add.nodes) {
        (Some(r), None) => Layout::new(r.ranks().clone(), r.hosts().clone()).map_err(Refusal::Invalid),
        (None, Some(nodes)) => Layout::counted(nodes.clone()).map_err(Refusal::Invalid),
        (Some(_), Some(_)) => Err(Refusal::Invalid("R names the hosts of the job: name none beside it".to_owned())),
        (None, None) => Err(Refusal::Invalid("a job needs R, or the names of its hosts".to_owned())),
    }
}

fn check(terms: &Terms, layout: &Layout) -> Result<(), Refusal> {
    let ranks = layout.ranks().len();
    if ranks == 0 {
        return Err(Refusal::Invalid("a job has at least one rank".to_owned()));
    }
    terms.check(ranks).map_err(Refusal::Invalid)
}
