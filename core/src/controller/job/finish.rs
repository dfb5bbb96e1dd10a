//! `job add`, `job finish`, `job cancel`: decides which ranks and resources a job holds from its start, and which its
//! end hands over. [`super::hand_over`] carries the hand-over out.

use crate::controller::interface::io::{JobAdd, Recovered, Refusal, Reply, Source, Which};
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, JobId, ResourceName};
use crate::job::{Part, Terms};

impl Jobs {
    /// Returns the named resources that the attempt's external actions cover, each with the action's name.
    fn in_use(&self, job: &JobId, number: Attempt) -> impl Iterator<Item = (&ActionName, &ResourceName)> {
        let actions = self.attempt(job, number).into_iter().flat_map(|attempt| self.of(attempt));
        actions.flat_map(|action| {
            let external = action.row.external.iter();
            external.flat_map(|external| &external.resources).map(|used| (&action.row.name, used))
        })
    }

    /// Carries out `job add`: adds an attempt, takes up an existing one, or gives a bare run its terms. A repeated
    /// request normally changes nothing, but may set the source of an attempt without one, or take up a suspended
    /// attempt.
    ///
    /// # Errors
    /// The request is wrong, names an attempt that is closed, or contradicts the attempt that exists.
    pub(crate) fn job_add(
        &mut self,
        add: JobAdd,
        uid: u32,
        recovered: Recovered,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        let number = self.choose_attempt(&add.job, add.attempt, |number| self.is_abandoned(&add.job, number))?;
        if let Some(why) = add.source.as_ref().and_then(|source| self.contradicts_source(&add.job, source)) {
            return Err(Refusal::Conflict(why));
        }
        let layout = layout_of(&add)?;
        // A request that takes up an attempt may name fewer hosts than the attempt has. The named hosts keep their
        // stored rank numbers.
        let there = self.attempt(&add.job, number).filter(|there| there.abandoned && add.terms.r.is_none());
        let layout = there.and_then(|there| there.layout.on(layout.hosts())).unwrap_or(layout);
        check(&add.terms, &layout)?;
        let (hosts, ranks) = (layout.hosts().clone(), layout.ranks().clone());
        let missing = self.in_use(&add.job, number).find(|(_, used)| !add.terms.resources.contains(*used));
        let missing = missing.map(|(action, used)| {
            format!(
                "job {} attempt {number}: its {action} still uses {used}, which the request no longer names",
                add.job
            )
        });
        let attached = match self.attempt_mut(&add.job, number) {
            None => {
                let attempt = JobAttempt::new(layout, add.userid, add.terms, true, cx.now.wall_ms);
                let attempt = JobAttempt { source: add.source.clone(), recovered, ..attempt };
                self.open_attempt(&add.job, number, attempt, cx);
                false
            }
            Some(there) if there.abandoned && differ(there.userid, add.userid) => {
                let text = format!(
                    "job {} attempt {number} belongs to another user: did the resource manager use the number again?",
                    add.job
                );
                return Err(Refusal::Conflict(text));
            }
            // A lost epoch had released the ranks that the request does not name.
            Some(there) if there.abandoned && layout.is_part_of(&there.layout) => true,
            Some(there) if there.layout != layout => {
                let on = |layout: &Layout| format!("{} ({})", Part::of_ranks(layout.ranks().clone()), layout.hosts());
                let (is, asked) = (on(&there.layout), on(&layout));
                let text =
                    format!("job {} attempt {number} already exists on {is}; the request names {asked}", add.job);
                return Err(Refusal::Conflict(text));
            }
            Some(there) if there.added && !there.terms.is_same(&add.terms) => {
                let text = format!(
                    "job {} attempt {number} was added with other terms (R, resources, tolerance, keep, shrink) than \
                     the request has",
                    add.job
                );
                return Err(Refusal::Conflict(text));
            }
            Some(there) if there.added => true,
            Some(there) if there.hold != there.whole() => {
                let text = format!(
                    "job {} attempt {number} has already dropped some ranks or resources: it can no longer be added",
                    add.job
                );
                return Err(Refusal::Conflict(text));
            }
            Some(_) if let Some(text) = missing => return Err(Refusal::Conflict(text)),
            // An action came before `job add`. From now on a resource manager will finish the job.
            Some(there) => {
                there.added = true;
                there.hold.resources = &add.terms.resources - &there.released.resources;
                there.terms = add.terms;
                there.userid = there.userid.or(add.userid);
                cx.attempt_changed(&add.job, number);
                for id in there.actions.clone() {
                    self.touch(id, cx);
                }
                false
            }
        };
        if let Some(there) = self.attempt_mut(&add.job, number)
            && there.source.is_none()
            && add.source.is_some()
        {
            there.source = add.source;
            cx.attempt_changed(&add.job, number);
        }
        let gone = self.unreleased(&add.job, number).ranks.difference(&ranks);
        let was_abandoned = self.is_abandoned(&add.job, number);
        self.take_up(&add.job, number, cx);
        if was_abandoned {
            let why = format!("the request of uid {uid} does not name this host for the job");
            self.give_up(&add.job, number, &gone, &why, cx);
            if self.attempt(&add.job, number).is_some_and(|there| there.source.is_some()) {
                self.release_again(&add.job, number, &ranks, cx);
            }
        }
        let there = self.attempt(&add.job, number);
        let over = there.is_some_and(|there| there.hold.is_empty());
        Ok(Reply::Added {
            job: add.job,
            attempt: number,
            hosts,
            attached,
            over,
            unknown: HostList::new(),
            meant: HostList::new(),
        })
    }

    /// Returns why the edge of `source` must leave the job alone: an attempt that is not fully released has a source of
    /// another name. `None`: there is no such attempt.
    pub(crate) fn contradicts_source(&self, job: &JobId, source: &Source) -> Option<String> {
        let mut sources = self.get(job)?.attempts.iter().filter(|(_, attempt)| !attempt.complete);
        let (number, other) = sources.find_map(|(number, attempt)| {
            Some((number, attempt.source.as_ref().filter(|own| own.name != source.name)?))
        })?;
        Some(format!("job {job} attempt {number} was added by the edge of {other}, not of {source}"))
    }

    /// Carries out `job finish`: hands the ranks and named resources in `which` over to the job's after-actions.
    /// Returns the part that was handed over, which leaves out what the job no longer held.
    pub(crate) fn job_finish(&mut self, which: &Which, cx: &mut Context) -> Result<Reply, Refusal> {
        let (number, entry) = self.attempt_meant(&which.job, which.attempt)?;
        self.check_named(which)?;
        let part = match (&which.targets, &which.resources) {
            (None, None) => entry.whole(),
            (targets, resources) => {
                let ranks = targets.as_ref().map(|targets| entry.layout.choose(targets)).transpose();
                let ranks = ranks.map_err(Refusal::Invalid)?.unwrap_or_default();
                Part { ranks, resources: resources.clone().unwrap_or_default() }
            }
        };
        self.take_up_begun(&which.job, number, cx);
        Ok(Reply::Finished(self.hand_over(&which.job, number, &part, cx)))
    }

    /// Carries out `job cancel`: cancels all actions of a job except its after-actions, and hands over everything that
    /// the job holds.
    pub(crate) fn job_cancel(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        why: &str,
        uid: u32,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        let (number, entry) = self.attempt_meant(job, attempt)?;
        // After-actions are not cancelled: they clean up after the job, however the job ended.
        let names = self.of(entry).map(|action| action.row.name.clone());
        let stopped: Vec<ActionName> = names.filter(|name| !cx.settings.after.contains(name)).collect();
        for action in stopped {
            let which =
                Which { job: job.clone(), attempt: Some(number), action: Some(action), targets: None, resources: None };
            self.cancel(&which, why, uid, cx)?;
        }
        let all = Which { job: job.clone(), attempt: Some(number), action: None, targets: None, resources: None };
        self.job_finish(&all, cx)
    }

    /// Returns the attempt that a request means: the attempt `asked`. If that is `None`, returns the open attempt, or
    /// else the last attempt.
    ///
    /// # Errors
    /// The store does not know the job, or the job has no attempt `asked`.
    pub(crate) fn attempt_meant(&self, job: &JobId, asked: Option<Attempt>) -> Result<(Attempt, &JobAttempt), Refusal> {
        let entry = self.get(job).ok_or_else(|| no_job(job))?;
        let number = asked.or_else(|| entry.open_attempt()).or_else(|| entry.last_attempt());
        number.and_then(|number| Some((number, entry.attempts.get(&number)?))).ok_or_else(|| {
            let known: Vec<String> = entry.attempts.keys().map(ToString::to_string).collect();
            let asked = asked.map(|asked| format!(" {asked}")).unwrap_or_default();
            Refusal::NoSuchAttempt(format!("job {job} has no attempt{asked}; its attempts are: {}", known.join(", ")))
        })
    }

    /// Returns the option ` --attempt N` for a command that an operator is to type, or an empty text if the command
    /// means this attempt without it.
    pub(crate) fn attempt_option(&self, job: &JobId, number: Attempt) -> String {
        let meant = self.attempt_meant(job, None).is_ok_and(|(meant, _)| meant == number);
        if meant { String::new() } else { format!(" --attempt {number}") }
    }
}

/// Returns the refusal of a request for a job that the store does not know.
pub(crate) fn no_job(job: &JobId) -> Refusal {
    Refusal::NoSuchJob(format!("no job {job}"))
}

fn layout_of(add: &JobAdd) -> Result<Layout, Refusal> {
    match (&add.terms.r, &add.nodes) {
        (Some(r), None) => Layout::new(r.ranks().clone(), r.hosts().clone()).map_err(Refusal::Invalid),
        (None, Some(nodes)) => Layout::counted(nodes.clone()).map_err(Refusal::Invalid),
        (Some(_), Some(_)) => {
            Err(Refusal::Invalid("R already names the hosts of the job: give R or hosts, not both".to_owned()))
        }
        (None, None) => Err(Refusal::Invalid("a job needs R, or the names of its hosts".to_owned())),
    }
}

fn differ(known: Option<u32>, reported: Option<u32>) -> bool {
    known.zip(reported).is_some_and(|(known, reported)| known != reported)
}

fn check(terms: &Terms, layout: &Layout) -> Result<(), Refusal> {
    let ranks = layout.ranks().len();
    if ranks == 0 {
        return Err(Refusal::Invalid("a job must have at least one rank".to_owned()));
    }
    terms.check(ranks).map_err(Refusal::Invalid)
}
