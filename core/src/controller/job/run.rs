//! `Run`: decides whether a request begins an action, and on which ranks. A request for an existing action attaches to
//! the action: no script runs twice.

use crate::controller::action::external;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{ActionRow, ActionStart, External, Recovered, Refusal, Reply, RunRequest};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::targets::Targets;

impl Jobs {
    /// Returns the attempt that a request means: the attempt `asked`, else the open attempt, else a new attempt.
    ///
    /// # Errors
    /// The attempt `asked` is closed, or does not exist and is older than the last, unless `attaches` returns `true`:
    /// the request then only attaches to existing work.
    pub(crate) fn choose_attempt(
        &self,
        job: &JobId,
        asked: Option<Attempt>,
        attaches: impl Fn(Attempt) -> bool,
    ) -> Result<Attempt, Refusal> {
        let entry = self.get(job);
        let (open, last) = (entry.and_then(|j| j.open_attempt()), entry.and_then(|j| j.last_attempt()));
        let is_open = |number| entry.and_then(|j| j.attempts.get(&number)).is_some_and(|attempt| attempt.open);
        let Some(asked) = asked else {
            return Ok(open.unwrap_or_else(|| last.map_or(Attempt::FIRST, Attempt::next)));
        };
        let newer = last.is_none_or(|last| asked > last);
        if defect!(ReopenOlderAttempt) {
            return Ok(asked);
        }
        if is_open(asked) || newer || attaches(asked) {
            return Ok(asked);
        }
        let known = entry.is_some_and(|entry| entry.attempts.contains_key(&asked));
        let text = match (known, open, last) {
            (false, _, Some(last)) => format!("job {job} has no attempt {asked}: a new one must be above {last}"),
            (_, Some(open), _) => format!("attempt {asked} of job {job} is over; the open one is {open}"),
            (_, None, _) => format!("attempt {asked} of job {job} is over: without an attempt, a new one begins"),
        };
        Err(Refusal::AttemptClosed(text))
    }

    /// Refuses a setup action on ranks that an after-action already covers. An after-action runs once on a rank, so
    /// nothing would clean up after the setup action.
    fn check_not_followed(&self, run: &RunRequest, attempt: Attempt, ranks: &IdSet) -> Result<(), Refusal> {
        if defect!(PrologAfterEpilog) {
            return Ok(());
        }
        let entry = self.attempt(&run.job, attempt);
        let following = entry.into_iter().flat_map(|entry| self.of(entry)).filter(|action| self.follows(action));
        let mut known = following.map(|follower| (&follower.row.name, ranks.intersection(&follower.row.ranks)));
        let Some((name, covered)) = known.find(|(_, covered)| !covered.is_empty()) else { return Ok(()) };
        let RunRequest { job, action, .. } = run;
        let (covered, next) = (Part::of_ranks(covered), attempt.next());
        Err(Refusal::Conflict(format!(
            "{name} of job {job} attempt {attempt} covers {covered}, and no action would clean up after {action} \
             there: begin another attempt (--attempt {next})"
        )))
    }

    /// Returns those of the requested `ranks` on which the action may begin; `held`: the ranks that the job holds.
    ///
    /// * A setup action begins only on held ranks: the job has handed over or released every other rank.
    /// * An after-action begins over all held ranks, or over no held rank. Over a part, it would end before the job
    ///   hands the rest over, and would never run on the rest.
    ///
    /// # Errors
    /// A refusal: the action may not begin on a rank that the request names, or must cover more ranks than the request
    /// names.
    fn of_what_is_held(
        &self,
        run: &RunRequest,
        attempt: Attempt,
        held: &IdSet,
        ranks: IdSet,
    ) -> Result<IdSet, Refusal> {
        let RunRequest { job, action, .. } = run;
        if self.after.contains(action) {
            let left = held.difference(&ranks);
            if defect!(EpilogOfAPart) {
                return Ok(ranks);
            }
            if left.is_empty() || (ranks.is_disjoint(held) && !ranks.is_empty()) {
                return Ok(ranks);
            }
            let left = Part::of_ranks(left);
            let text = format!(
                "job {job} attempt {attempt} also holds {left}, where {action} would not run later. To run {action} on \
                 some of the ranks, hand those over: perilog job finish {job} --ranks ..."
            );
            return Err(Refusal::Conflict(text));
        }
        let gone = ranks.difference(held);
        let gone = if defect!(RunAfterRelease) { IdSet::new() } else { gone };
        if gone.is_empty() {
            return Ok(ranks);
        }
        // A request without targets means all ranks that the job still holds.
        let left = ranks.intersection(held);
        if run.targets.is_none() && !left.is_empty() {
            return Ok(left);
        }
        let gone = Part::of_ranks(gone);
        let next = if held.is_empty() {
            format!("; another attempt may begin (--attempt {})", attempt.next())
        } else {
            String::new()
        };
        let text = format!("job {job} attempt {attempt} no longer holds {gone}: {action} cannot begin there{next}");
        Err(Refusal::Conflict(text))
    }

    /// Returns the layout of the attempt, and the ranks that the request names. A new attempt gets its layout from the
    /// request or from the attempt before.
    ///
    /// # Errors
    /// A host or rank is outside the layout; or the nodes make no layout; or the request must name its nodes: the job
    /// is unknown, a resource manager adds its attempts, or the attempt before no longer holds all its nodes.
    fn choose_ranks(&self, run: &RunRequest, attempt: Attempt) -> Result<(Layout, IdSet), Refusal> {
        let job = self.get(&run.job);
        let existing = job.and_then(|j| j.attempts.get(&attempt)).map(|a| &a.layout);
        if let Some(layout) = existing {
            let ranks = match (&run.targets, &run.nodes) {
                (Some(targets), _) => layout.choose(targets).map_err(Refusal::Conflict)?,
                (None, Some(nodes)) => layout.choose(&Targets::Hosts(nodes.clone())).map_err(Refusal::Conflict)?,
                (None, None) => layout.ranks().clone(),
            };
            return Ok((layout.clone(), ranks));
        }
        let is_bare = |of: &JobAttempt| {
            let added = if defect!(AddedRepeats) { false } else { of.added };
            !added && of.recovered == Recovered::No
        };
        let all_bare = job.is_none_or(|job| job.attempts.values().all(is_bare));
        let layout = match (&run.nodes, job.and_then(|job| job.before_the_next())) {
            (Some(nodes), _) => Layout::counted(nodes.clone()).map_err(Refusal::Invalid)?,
            // A resource manager chooses the nodes of each attempt anew: only bare runs take those of the one before.
            (None, Some(_)) if !all_bare => {
                return Err(Refusal::NoSuchAttempt(format!(
                    "no attempt {attempt} of job {}: add it (perilog job add), or name its nodes (--nodes)",
                    run.job
                )));
            }
            // The attempt before must still hold the nodes: released nodes may belong to other jobs.
            (None, Some(before)) => {
                let gone = before.layout.ranks().difference(&before.hold.ranks);
                if defect!(RequeueTakesBack) {
                } else if !gone.is_empty() {
                    let (job, hosts) = (&run.job, before.layout.hosts_of(&gone));
                    return Err(Refusal::Conflict(format!(
                        "attempt {attempt} of job {job} cannot take over {hosts}, which the attempt before it no \
                         longer holds: name its nodes (--nodes)"
                    )));
                }
                before.layout.clone()
            }
            (None, None) => {
                return Err(Refusal::NoSuchJob(format!("no job {}: name its nodes to begin it (--nodes)", run.job)));
            }
        };
        let ranks = match &run.targets {
            Some(targets) => layout.choose(targets).map_err(Refusal::Invalid)?,
            None => layout.ranks().clone(),
        };
        Ok((layout, ranks))
    }

    /// Adds the ranks that the job still holds to the existing after-action `id`, which the request `run` names. Does
    /// so only if further ranks may join the after-action, and the request names all of these ranks and all ranks that
    /// the after-action has.
    fn join(&mut self, id: ActionId, number: Attempt, run: &RunRequest, cx: &mut Context) {
        let Some(attempt) = self.attempt(&run.job, number) else { return };
        let named = match (&run.targets, &run.nodes) {
            (Some(targets), _) => attempt.layout.choose(targets).ok(),
            (None, nodes) => nodes.as_ref().and_then(|nodes| attempt.layout.ranks_of(nodes).ok()),
        };
        let Some(action) = self.action(id).filter(|action| self.follows(action)) else { return };
        let row = &action.row;
        let may = row.growing && row.verdict.is_none();
        let all = row.ranks.union(&attempt.hold.ranks);
        let Some(named) = named.filter(|named| may && all.is_subset(named)) else { return };
        let new = named.difference(&row.ranks);
        if !new.is_empty() && new.is_subset(&attempt.hold.ranks) {
            self.grow(id, &new, cx);
        }
    }
}

impl Machine {
    /// Carries out `action start`: begins an external action, or attaches a service to the existing action again.
    ///
    /// # Errors
    /// As [`Self::begin_or_attach`], or the lease is 0, or the action's name is that of an after-action.
    pub(crate) fn action_start(&mut self, start: ActionStart) -> Result<Reply, Refusal> {
        let ActionStart { run, resources, lease_ms } = start;
        if lease_ms == 0 {
            return Err(Refusal::Invalid("the lease is 0: expected a duration above zero".to_owned()));
        }
        if self.cx.settings.after.contains(&run.action) {
            let text = format!(
                "{} is an after-action, which the nodes of each job run: an external action needs another name",
                run.action
            );
            return Err(Refusal::Conflict(text));
        }
        let external = External { lease_ms, last_report_ms: self.cx.now.wall_ms, resources, ..External::default() };
        self.begin_or_attach(run, Some(external))
    }

    /// Begins an action, or attaches to the action if it exists; `external`: `Some` for an external action.
    ///
    /// # Errors
    /// The action may not begin now or on these ranks, or the request contradicts the action that exists.
    pub(crate) fn begin_or_attach(&mut self, run: RunRequest, external: Option<External>) -> Result<Reply, Refusal> {
        let id_in = |attempt| ActionId::of(self.cx.settings.cluster, &run.job, attempt, &run.action);
        let exists = |attempt| self.jobs.action(id_in(attempt)).is_some();
        let attempt = self.jobs.choose_attempt(&run.job, run.attempt, exists)?;
        let id = id_in(attempt);
        let attaches = exists(attempt);
        if attaches {
            self.jobs.attach(id, attempt, &run, external.as_ref(), &mut self.cx)?;
        } else {
            let may_begin = self.quiesce.may_begin(&run.action, &self.cx);
            let (layout, ranks) = self.jobs.choose_ranks(&run, attempt)?;
            if let Err(refusal) = may_begin {
                // The request shows all the same that a client has the attempt.
                self.jobs.take_up(&run.job, attempt, &mut self.cx);
                return Err(refusal);
            }
            let ranks = self.facts().check_begin(&run, external.as_ref(), attempt, &layout, ranks)?;
            let recovered = self.facts().how_added(&run.job);
            self.jobs.open_or_take_up(&run, attempt, layout, &ranks, recovered, &mut self.cx)?;
            let timeout_ms = run.timeout_ms.or_else(|| self.cx.settings.timeouts.get(&run.action).copied());
            let userid = run.userid.or_else(|| self.jobs.attempt(&run.job, attempt).and_then(|a| a.userid));
            let row = ActionRow::new(id, run.job, attempt, run.action, ranks, self.cx.now.wall_ms);
            let row = ActionRow { userid, env: run.env, timeout_ms, ..row };
            self.jobs.begin_action(external.map_or(row.clone(), |external| external::row(row, external)), &mut self.cx);
        }
        match (self.jobs.action(id), self.jobs.layout(id)) {
            (Some(action), Some(layout)) => Ok(self.facts().running(id, &action.row, layout, attaches)),
            _ => Err(Refusal::NoSuchAction("it could not begin".to_owned())),
        }
    }
}

impl Jobs {
    /// Attaches a request to the existing action: lets an after-action grow, takes the attempt up, or renews a lease.
    fn attach(
        &mut self,
        id: ActionId,
        attempt: Attempt,
        run: &RunRequest,
        external: Option<&External>,
        cx: &mut Context,
    ) -> Result<(), Refusal> {
        let is_external = self.action(id).is_some_and(|action| action.row.external.is_some());
        if external.is_some() != is_external {
            let who = if external.is_some() { "agents" } else { "a service outside of perilog (an external action)" };
            let text = format!("{} of job {} attempt {attempt} is run by {who}", run.action, run.job);
            return Err(Refusal::Conflict(text));
        }
        if external.is_none() {
            self.join(id, attempt, run, cx);
        }
        // A request that contradicts the action takes nothing up: it may be of another job with this id.
        self.check_ranks(id, run)?;
        if let Some(asked) = external {
            self.check_covers(id, run, asked)?;
        }
        self.take_up(&run.job, attempt, cx);
        if let Some(asked) = external {
            self.renew(id, asked.lease_ms, cx);
        }
        Ok(())
    }

    /// Opens the attempt of an action that begins, or takes the attempt up if it exists.
    fn open_or_take_up(
        &mut self,
        run: &RunRequest,
        attempt: Attempt,
        layout: Layout,
        ranks: &IdSet,
        recovered: Recovered,
        cx: &mut Context,
    ) -> Result<(), Refusal> {
        let job = &run.job;
        let Some(entry) = self.attempt(job, attempt) else {
            let before = self.get(job).and_then(|job| job.before_the_next());
            let opened = JobAttempt::requeue(layout, run.userid, before, cx.now.wall_ms).map_err(|text| {
                Refusal::Invalid(format!("{text}: name other terms (perilog job add {job} --attempt {attempt})"))
            })?;
            self.open_attempt(job, attempt, JobAttempt { recovered, ..opened }, cx);
            return Ok(());
        };
        if entry.complete && ranks.is_empty() {
            let what = format!("all ranks of job {job} attempt {attempt} are already released");
            return Err(Refusal::Conflict(format!("{what}; start a new attempt (--attempt {})", attempt.next())));
        }
        let gone = entry.released.ranks.intersection(ranks);
        if defect!(RunAfterRelease) {
        } else if !gone.is_empty() {
            let what = format!("job {job} attempt {attempt} has released {}", Part::of_ranks(gone));
            return Err(Refusal::Conflict(format!("{what}: no action can begin there")));
        }
        self.take_up(job, attempt, cx);
        Ok(())
    }

    /// Checks that a request for an action that exists names the action's ranks, or none.
    fn check_ranks(&self, id: ActionId, run: &RunRequest) -> Result<(), Refusal> {
        let (Some(action), Some(layout)) = (self.action(id), self.layout(id)) else {
            return Err(Refusal::NoSuchAction(format!("no action {} of job {}", run.action, run.job)));
        };
        let row = &action.row;
        let conflict = |asked: &dyn std::fmt::Display| {
            let (what, held) = (format!("{} of job {}", row.name, row.job), Part::of_ranks(row.ranks.clone()));
            Refusal::Conflict(format!("{what} attempt {} covers {held}; the request names {asked}", row.attempt))
        };
        if let Some(targets) = &run.targets {
            let ranks = layout.choose(targets).map_err(Refusal::Conflict)?;
            if ranks != row.ranks {
                return Err(conflict(&Part::of_ranks(ranks)));
            }
        } else if let Some(nodes) = &run.nodes {
            let ranks = layout.ranks_of(nodes).map_err(|host| conflict(&format!("host {host}")))?;
            if ranks != row.ranks {
                return Err(conflict(nodes));
            }
        }
        Ok(())
    }
}

impl Facts<'_> {
    /// Checks that the action may begin in the attempt, and returns its ranks: those of `ranks` that the request means.
    fn check_begin(
        &self,
        run: &RunRequest,
        external: Option<&External>,
        attempt: Attempt,
        layout: &Layout,
        mut ranks: IdSet,
    ) -> Result<IdSet, Refusal> {
        let entry = self.jobs.attempt(&run.job, attempt);
        if let Some(asked) = external {
            external::check_resources(entry, run, asked)?;
            // A request that names resources and no ranks covers no ranks.
            if !asked.resources.is_empty() && run.nodes.is_none() && run.targets.is_none() {
                ranks = IdSet::new();
            } else if let Some(entry) = entry.filter(|_| run.nodes.is_none() && run.targets.is_none()) {
                // A request without targets means all ranks that the job still holds.
                let left = ranks.intersection(&entry.hold.ranks);
                ranks = if left.is_empty() { ranks } else { left };
            }
        } else {
            let hold = entry.map_or_else(|| layout.ranks().clone(), |entry| entry.hold.ranks.clone());
            ranks = self.jobs.of_what_is_held(run, attempt, &hold, ranks)?;
        }
        if entry.is_none() {
            self.nodes.check_spelling(layout.hosts())?;
        }
        if run.known && entry.is_none() {
            let others = "nothing was begun; to begin on hosts before their first connection, add";
            self.nodes.check_known(&layout.hosts_of(layout.ranks()), &self.drains, others)?;
        }
        if external.is_none() {
            self.check_configured(&run.action, layout, &ranks)?;
        }
        if !self.cx.settings.after.contains(&run.action) {
            self.jobs.check_not_followed(run, attempt, &ranks)?;
        }
        if let Some(asked) = external {
            self.jobs.check_alone(run, asked, attempt, layout, &ranks)?;
        }
        Ok(ranks)
    }

    fn running(&self, id: ActionId, row: &ActionRow, layout: &Layout, attached: bool) -> Reply {
        Reply::Running {
            job: row.job.clone(),
            attempt: row.attempt,
            id,
            ranks: row.ranks.clone(),
            hosts: layout.hosts_of(&row.ranks),
            attached,
            events_after: row.events_from,
            waits: self.waits_for(&row.job, row.attempt).map(|why| why.to_string()),
        }
    }
}
