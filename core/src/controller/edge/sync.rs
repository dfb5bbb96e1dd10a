//! `Sync`: applies an edge's list of all attempts of its source, page by page; [`crate::controller::state::lists`] puts
//! the pages together. Decides for each attempt whether to take it up, add, refuse or close it. A repeated list changes
//! nothing.
//!
//! | the attempt | then |
//! |---|---|
//! | listed, and the job has an unreleased attempt of an edge of another name | refused and shown; unchanged |
//! | listed and known, same owner and hosts | taken up, and holds the listed ranks (1) |
//! | listed and unknown | added as by `job add`; counts as begun on all its ranks |
//! | listed, and contradicts the store or is unfit | refused and shown; clean-ups that wait for the list do not begin |
//! | known of this source and instance, and not listed | unlisted (2), when the last page has come |
//! | of another source or instance, or without a source | unchanged |
//!
//! 1. In the phase `ended`, the attempt is finished too, as by `job finish`. If a listed rank is released already, its
//!    release gets another notice, because the resource manager has lost the first. Ranks that the list lacks are given
//!    up: other jobs have their hosts.
//! 2. [`super::unlisted`]. No setup action of the attempt begins, and no notice is sent.
//!
//! A list adds no setup action. It lifts no drain but the drains for the clean-up of an attempt that it names again.

use crate::agent::io::Level;
use crate::controller::interface::io::{JobPhase, Listed, Recovered, Refusal, Reply, Source, SyncPage, Synced};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::controller::state::lists::Half;
use crate::defect;
use crate::ids::{Attempt, JobId};

impl Jobs {
    /// Applies one entry of an edge's list: one attempt. Returns `true` if the store did not know the attempt.
    ///
    /// # Errors
    /// The reason why the entry is refused, as a text for people: it is malformed, or contradicts the store.
    fn assert_listed(&mut self, source: &Source, of: Listed, cx: &mut Context) -> Result<bool, String> {
        let layout = Layout::new(of.ranks.clone(), of.hosts)?;
        if layout.ranks().is_empty() {
            return Err("the list names no rank of it".to_owned());
        }
        let (job, number) = (of.job, of.attempt);
        self.contradicts_source(&job, source).map_or(Ok(()), Err)?;
        let added = match self.attempt(&job, number) {
            Some(attempt) => {
                contradicts(attempt, &layout, of.userid).map_or(Ok(()), Err)?;
                false
            }
            None => {
                let last = self.get(&job).and_then(|entry| entry.last_attempt());
                if let Some(last) = last.filter(|last| *last > number) {
                    return Err(format!("the job already has the newer attempt {last}"));
                }
                of.terms.check(layout.ranks().len())?;
                let attempt = JobAttempt::new(layout, of.userid, of.terms, true, cx.now.wall_ms);
                let attempt = JobAttempt { source: Some(source.clone()), recovered: Recovered::Added, ..attempt };
                self.open_attempt(&job, number, attempt, cx);
                true
            }
        };
        if !added {
            let gone = self.unreleased(&job, number).ranks.difference(&of.ranks);
            self.list_again(&job, number, cx);
            if let Some(attempt) = self.attempt_mut(&job, number) {
                let changed = attempt.source.is_none() || !attempt.added;
                attempt.source.get_or_insert_with(|| source.clone());
                attempt.added = true;
                if changed {
                    cx.attempt_changed(&job, number);
                }
            }
            match of.phase {
                JobPhase::Preparing => self.take_up(&job, number, cx),
                JobPhase::Running | JobPhase::Ended => self.take_up_begun(&job, number, cx),
            }
            if !defect!(UnlistedRankKept) {
                self.give_up(&job, number, &gone, "its resource manager does not list this host for the job", cx);
            }
            self.release_again(&job, number, &of.ranks, cx);
        }
        if of.phase == JobPhase::Ended {
            let whole = self.attempt(&job, number).map(JobAttempt::whole).unwrap_or_default();
            self.hand_over(&job, number, &whole, cx);
        }
        Ok(added)
    }
}

impl Jobs {
    /// Applies one listed attempt, and records the result in the list and in the reply.
    fn take_listed(&mut self, source: &Source, of: Listed, half: &mut Half, reported: &mut Synced, cx: &mut Context) {
        let (job, number) = (of.job.clone(), of.attempt);
        let taken = self.assert_listed(source, of, cx);
        self.table.mark_listed(&job, number, half.number);
        match taken {
            Ok(true) => reported.added += 1,
            Ok(false) => reported.known += 1,
            Err(why) => {
                half.refused = true;
                refuse(job, number, why, reported, cx);
            }
        }
    }

    /// Closes the unreleased attempts of the source that its list `list` lacks, and returns them.
    fn close_missing(&mut self, source: &Source, list: u64, cx: &mut Context) -> Vec<(JobId, Attempt)> {
        if defect!(MissingContinues) {
            return Vec::new();
        }
        let is_same = |of: &Source| {
            if defect!(AnyInstanceLists) {
                return of.name == source.name;
            }
            of == source
        };
        let is_missing = |attempt: &JobAttempt| {
            attempt.source.as_ref().is_some_and(is_same)
                && attempt.listed != list
                && !attempt.complete
                && !attempt.silent
        };
        let missing = self.table.live_attempts().filter(|(_, _, attempt)| is_missing(attempt));
        let missing: Vec<(JobId, Attempt)> = missing.map(|(job, number, _)| (job.clone(), number)).collect();
        for (job, number) in &missing {
            self.unlist(job, *number, cx);
        }
        missing
    }
}

/// Adds an attempt to those that the reply names as refused, and writes a line to the journal.
fn refuse(job: JobId, number: Attempt, why: String, reported: &mut Synced, cx: &mut Context) {
    let note = format!("attempt {number}, which the resource manager lists, was refused: {why}");
    cx.note(Level::Error, Some(&job), None, note);
    reported.refused.push((job, number, why));
}

impl Machine {
    /// Applies a page of an edge's list of all attempts of its source.
    ///
    /// # Errors
    /// The name or the instance of the source is empty, the list that the page continues is not under way, the list
    /// exceeds a bound, or too many sources have lists.
    pub(crate) fn sync(&mut self, page: SyncPage) -> Result<Reply, Refusal> {
        if page.source.name.is_empty() || page.source.instance.is_empty() {
            let text = "a list of jobs must name its resource manager (source.name) and that manager's instance \
                        (source.instance)";
            return Err(Refusal::Invalid(text.to_owned()));
        }
        let mut half = self.lists.turn(&page, self.cx.now)?;
        let SyncPage { source, continues, attempts, unfit, drains, .. } = page;
        let mut reported = Synced { sync: half.number, ..Synced::default() };
        for of in attempts {
            self.jobs.take_listed(&source, of, &mut half, &mut reported, &mut self.cx);
        }
        for of in unfit {
            half.refused = true;
            self.jobs.table.mark_listed(&of.job, of.attempt, half.number);
            refuse(of.job, of.attempt, of.why, &mut reported, &mut self.cx);
        }
        let continues = if defect!(EachPageIsLast) { false } else { continues };
        if !continues {
            let number = half.number;
            self.lists.is_whole(&source, half);
            let lists = &self.lists;
            self.jobs.table.keep_listed(|number| lists.is_newest(number));
            reported.over = self.jobs.close_missing(&source, number, &mut self.cx);
        } else {
            self.lists.is_half(&source, half);
        }
        let drains = if defect!(ListedDrainsIgnored) { Vec::new() } else { drains };
        for drain in drains {
            self.drains.adopt(drain, &mut self.cx);
        }
        Ok(Reply::Synced(reported))
    }
}

/// Returns the contradiction between a listed attempt and the stored attempt of the same number; `None` if both agree.
/// A side without a user id agrees with any. Job numbers repeat, so the listed job can be a different job.
fn contradicts(attempt: &JobAttempt, listed: &Layout, userid: Option<u32>) -> Option<String> {
    let elsewhere = listed.pairs(listed.ranks()).find(|(rank, host)| attempt.layout.rank(host) != Some(rank.0));
    if let Some((rank, host)) = elsewhere {
        return Some(format!(
            "rank {rank} is on {host} in the resource manager, but the controller has the attempt on {}",
            attempt.layout.hosts()
        ));
    }
    match (attempt.userid, userid) {
        (Some(known), Some(reported)) if known != reported => Some(format!(
            "the job belongs to uid {reported} in the resource manager, and to uid {known} in the controller"
        )),
        _ => None,
    }
}
