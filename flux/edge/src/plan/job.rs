//! A job of Flux, built from the events of its eventlog (RFC 21). It keeps only what the plan needs, so that a hundred
//! thousand pending jobs take little memory.

use std::collections::BTreeSet;

use perilog_core::eventlog::JobEvent;
use perilog_core::{ActionName, Attempt, Event, Fluid, JobId, ResourceSet};
use perilog_terms::Terms;
use serde_json::{Map, Value};

use super::tasks::{Inspection, Tasks};

/// The description that the plugin's prolog and epilog references have in the eventlog.
pub const DESCRIPTION: &str = "perilog";
/// Key of perilog's mark in the context of an event ([`Job::context`]). `flux job raise` cannot set this key, so no
/// user's exception has the mark.
pub const MARK: &str = "perilog";

/// The state of the plugin's prolog or epilog reference on a job: what the job's eventlog says of it, and whether the
/// plugin has answered the edge's request to finish it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    started: u32,
    finished: u32,
    /// Whether the plugin has accepted the edge's request to finish this reference, or refused it for good. The
    /// reference then counts as closed, although the journal may not have reported the finish yet.
    pub asked: bool,
}

impl Held {
    pub const fn is_open(self) -> bool {
        self.started > self.finished && !self.asked
    }

    /// Returns `true` if the plugin ever held this reference.
    pub const fn was_held(self) -> bool {
        self.started > 0
    }
}

/// A job to which Flux has allocated resources: its id, its attempt and its R.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocated<'a> {
    pub job: JobId,
    pub attempt: Attempt,
    pub r: &'a ResourceSet,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Job {
    pub id: u64,
    pub userid: Option<u32>,
    pub alloc: Option<Attempt>,
    /// Whether the job's allocation bypassed the scheduler. Such a job has no prolog.
    pub bypass: bool,
    pub r: Option<Box<ResourceSet>>,
    /// The reason why perilog cannot read the R that Flux sent; `None`: perilog can read it, or Flux has sent none.
    pub malformed: Option<String>,
    pub terms: Terms,
    /// The site's external actions that the jobspec asks for.
    pub externals: BTreeSet<ActionName>,
    pub prolog: Held,
    pub epilog: Held,
    /// Whether processes of the job's user may have begun: Flux has started the job, or the job's prolog has finished
    /// with status 0 before any fatal exception.
    pub may_have_tasks: bool,
    /// Time of the `start` event, in seconds since 1970; `None`: Flux has not started the job.
    pub started: Option<f64>,
    /// Time of the last final `release` event, in seconds since 1970; `None`: Flux has sent none.
    pub released: Option<f64>,
    /// The type of the job's fatal exception; `None`: the job had none.
    pub fatal: Option<String>,
    /// Time of the job's first fatal exception, in seconds since 1970.
    fatal_at: Option<f64>,
    /// Whether the job had an exception that is not perilog's, fatal or not. Without one, Flux has a report of the end
    /// of each of the job's shells.
    pub had_exception: bool,
    /// Findings of the edge about the job's tasks after their end in Flux.
    pub inspection: Inspection,
    pub freed: bool,
    /// Whether the job is inactive in Flux.
    pub clean: bool,
    /// Whether the job existed before Flux loaded the plugin. The job's eventlog may then lack events of its end.
    pub before: bool,
    /// Marks of the events that the edge has posted for this attempt, for example `tolerated`: the edge posts the event
    /// of each mark once.
    pub reported: BTreeSet<String>,
    /// Actions for which the edge has asked the controller for `Cancel`.
    pub cancel_asked: BTreeSet<ActionName>,
}

impl Job {
    pub fn new(id: u64) -> Self {
        Self { id, ..Self::default() }
    }

    /// Returns the job's id, attempt and R. `None`: Flux has not allocated the job, allocated it without the scheduler,
    /// or has freed it, or the edge has no readable R. A freed job in housekeeping still counts.
    pub fn held(&self) -> Option<Allocated<'_>> {
        let (attempt, r) = (self.alloc?, self.r.as_deref()?);
        let is_ours = !self.bypass && (!self.freed || self.is_in_housekeeping());
        is_ours.then(|| Allocated { job: Fluid(self.id).job(), attempt, r })
    }

    /// Returns `true` if the job's epilog runs as Flux's housekeeping: Flux has freed the job, and the plugin never
    /// held the job for an epilog (`epilog-start`). A job that the plugin never held for a prolog counts only if it
    /// existed before Flux loaded the plugin. On each of the job's nodes Flux's housekeeping waits for the end of the
    /// epilog there, unless the job is also [`Job::is_freed_unseen`].
    pub const fn is_in_housekeeping(&self) -> bool {
        self.freed && !self.epilog.was_held() && (self.prolog.was_held() || self.before)
    }

    /// Returns `true` if Flux freed the job, as it seems, while brokers of its nodes were away: its epilog is
    /// housekeeping, and processes from before a restart of rank 0 may live ([`Job::needs_rejoin`]). No housekeeping of
    /// Flux then waits on the job's nodes.
    pub const fn is_freed_unseen(&self) -> bool {
        self.is_in_housekeeping() && self.needs_rejoin()
    }

    /// Updates the job by the next event of its eventlog.
    pub fn take(&mut self, event: &Event) {
        if let Some(mark) = event.get(MARK).and_then(|mark| mark.get("what")).and_then(Value::as_str)
            && event.get(MARK).and_then(|mark| mark.get("attempt")).and_then(Value::as_str)
                == self.alloc.map(|of| of.to_string()).as_deref()
        {
            self.reported.insert(mark.to_owned());
        }
        match event.name() {
            "submit" => self.userid = event.get("userid").and_then(Value::as_u64).and_then(|id| id.try_into().ok()),
            "alloc" => self.allocated(event),
            _ => {}
        }
        // Skips an event that RFC 21 forbids.
        let Ok(Some(event_of)) = JobEvent::read(event) else { return };
        match event_of {
            JobEvent::PrologStart { description } if description == DESCRIPTION => self.prolog.started += 1,
            JobEvent::PrologFinish { description, status } if description == DESCRIPTION => {
                self.prolog.finished += 1;
                self.may_have_tasks |= status == 0 && self.fatal.is_none();
            }
            JobEvent::EpilogStart { description } if description == DESCRIPTION => self.epilog.started += 1,
            JobEvent::EpilogFinish { description, .. } if description == DESCRIPTION => self.epilog.finished += 1,
            JobEvent::Start => (self.started, self.may_have_tasks) = (Some(event.timestamp()), true),
            JobEvent::Release { last: true, .. } => self.released = Some(event.timestamp()),
            JobEvent::Free => self.freed = true,
            JobEvent::Clean => self.clean = true,
            JobEvent::Exception(exception) => {
                self.had_exception |= event.get(MARK).is_none();
                if exception.severity == 0 {
                    self.fatal.get_or_insert(exception.kind);
                    self.fatal_at.get_or_insert(event.timestamp());
                }
            }
            _ => {}
        }
    }

    /// Begins the attempt of a new allocation. A job that is allocated again has a new attempt, and the earlier attempt
    /// has ended.
    fn allocated(&mut self, event: &Event) {
        // The plugin reports `before` ahead of the journal's backlog, which begins with this event.
        let (id, userid, before, terms) = (self.id, self.userid, self.before, std::mem::take(&mut self.terms));
        // Some releases of Flux send R beside the event, before or after it.
        let (r, malformed, externals) = (self.r.take(), self.malformed.take(), std::mem::take(&mut self.externals));
        *self = Self { id, userid, before, terms, externals, r, malformed, ..Self::default() };
        self.alloc = Attempt::of_alloc(event.timestamp());
        self.bypass = event.get("bypass").and_then(Value::as_bool).unwrap_or(false);
    }

    pub fn set_r(&mut self, r: &Value) {
        match ResourceSet::from_json(&r.to_string()) {
            Ok(r) => self.r = Some(Box::new(r)),
            Err(error) => self.malformed = Some(error.to_string()),
        }
    }

    /// Reads the terms of the jobspec. Returns the mistake in malformed terms; the job has no terms then.
    pub fn set_jobspec(&mut self, jobspec: &Value) -> Option<String> {
        let asked = jobspec.pointer("/attributes/system/perilog")?;
        let (terms, wrong) = Terms::read_or_none(&asked.to_string());
        self.terms = terms;
        wrong
    }

    /// Returns `true` if all processes of the user's job count as ended. `starttime`: of the broker of rank 0, in
    /// seconds since 1970.
    ///
    /// `true` in four cases:
    ///
    /// * The job never started a process.
    /// * Flux has sent the final `release`. A restarted rank 0 sends such a release too, although processes on other
    ///   nodes may live ([`Job::needs_rejoin`]).
    /// * Flux has freed the job.
    /// * The job started before the present rank 0 did: Flux may never send the job's final `release`.
    pub fn is_gone(&self, starttime: f64) -> bool {
        !self.may_have_tasks
            || self.released.is_some()
            || self.freed
            || (self.before && self.started.is_some_and(|at| at < starttime))
    }

    /// Returns `true` if processes of the job's user may have outlived a restart of rank 0: the job existed before Flux
    /// loaded the plugin, and may have started processes. Where jobs are children of their brokers, a node has none of
    /// them once its broker has joined anew.
    pub const fn needs_rejoin(&self) -> bool {
        self.before && self.may_have_tasks
    }

    /// Returns `true` if processes of the job's user may live although the job [`Job::is_gone`]: rank 0 was restarted
    /// during the job, or the job had an exception. Flux may then have lost the broker of a node; after a cancel no
    /// event says so.
    pub const fn may_have_left_tasks(&self) -> bool {
        self.may_have_tasks && (self.before || self.had_exception)
    }

    /// Returns the time (ms since 1970) from which the edge waits for the end of the job's processes. It stays the same
    /// over restarts of rank 0 and of the edge, because the job's eventlog has it: the final `release`, else the fatal
    /// exception. The start of rank 0, if the eventlog has neither.
    pub fn ended_ms(&self, starttime: f64) -> u64 {
        (self.released.or(self.fatal_at).unwrap_or(starttime) * 1000.0) as u64
    }

    /// Updates what is known of the job's tasks by the answers of some of its ranks.
    pub fn found(&mut self, ranks: impl IntoIterator<Item = (u32, Tasks)>) {
        match &mut self.inspection {
            Inspection::Ranks(known) => known.extend(ranks),
            inspection => *inspection = Inspection::Ranks(ranks.into_iter().collect()),
        }
    }

    /// Returns the context of an event that the edge posts: the object `context`, with perilog's mark added under
    /// [`MARK`]. The mark has the attempt and `what`, the name by which the edge recognises the event.
    pub fn context(&self, what: &str, context: Value) -> Value {
        let mut context = match context {
            Value::Object(context) => context,
            _ => Map::new(),
        };
        let attempt = self.alloc.map(|of| of.to_string());
        context.insert(MARK.to_owned(), serde_json::json!({ "attempt": attempt, "what": what }));
        Value::Object(context)
    }
}
