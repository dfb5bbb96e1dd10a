//! Reports from the service of an external action ([`crate::controller::action::external`]): decides which attempt a
//! report means, and which ranks and resources end by it. A rank that has ended stays ended: a repeated report changes
//! no end, and a report of another outcome is recorded as late.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::interface::io::{ActionRow, Now, Refusal, Reply, Report, ReportKind};
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::defect;
use crate::ids::{ActionId, Attempt, CheckName, Rank, ResourceName, TaskId};
use crate::job::Part;
use crate::outcome::{Failure, Outcome};
use crate::task::{Check, Ended, Tail};

/// Maximum number of late reports kept for a resource, because a service may send any number.
const MAX_LATE: usize = 8;

impl Jobs {
    /// Carries out a service's report: renews the lease, and then ends the ranks and resources that the report names,
    /// or records their milestone. A report [`ReportKind::Renew`] only renews the lease.
    ///
    /// # Errors
    /// There is no such job or attempt, the attempt has no such action, the agents of its nodes run the action, the
    /// action does not cover the named parts, or the milestone is refused.
    pub(crate) fn report(&mut self, report: &Report, cx: &mut Context) -> Result<Reply, Refusal> {
        let (number, attempt) = self.attempt_reported(report, cx)?;
        let id = ActionId::of(cx.settings.cluster, &report.job, number, &report.action);
        let none = || {
            let (job, name) = (&report.job, &report.action);
            let text = format!("job {job} attempt {number} has no action {name}: its service must start it first");
            Refusal::NoSuchAction(text)
        };
        let action = self.action(id).ok_or_else(none)?;
        if action.row.external.is_none() {
            let text = format!(
                "{} of job {} attempt {number} is run by the agents of its nodes: only they report its end",
                report.action, report.job
            );
            return Err(Refusal::Conflict(text));
        }
        let part = meant(report, action, &attempt.layout)?;
        self.renew_lease(id, cx);
        let (mut ended, mut late) = (Part::default(), Part::default());
        match &report.kind {
            ReportKind::Renew => {}
            ReportKind::Milestone(name) => self.on_service_milestone(id, name, &part.ranks, cx)?,
            kind => {
                for rank in part.ranks.iter().map(Rank) {
                    self.report_rank(TaskId { action: id, rank }, kind, &mut ended, &mut late, cx);
                }
                self.report_resources(id, part.resources, kind, &mut ended, &mut late, cx);
            }
        }
        let action = self.action(id).ok_or_else(none)?;
        Ok(Reply::Reported { ended, late, open: action.open_part(), cancelling: action.cancelling_part() })
    }

    fn report_rank(&mut self, task: TaskId, kind: &ReportKind, ended: &mut Part, late: &mut Part, cx: &mut Context) {
        let Some(action) = self.action(task.action) else { return };
        let rank = task.rank;
        let before = action.ended.get(&rank).map(|row| &row.ended.outcome);
        let asked = action.row.cancelling.contains(rank.0) || is_cancelled(before);
        let end = end_of(kind, &action.row, asked, cx.now);
        let is_open = action.is_open_on(rank);
        let is_open = if defect!(ReportAgainChanges) { true } else { is_open };
        if is_open {
            ended.ranks.insert(rank.0);
            self.end_task(task, end, cx);
        } else if !action.knows(rank, &end) {
            late.ranks.insert(rank.0);
            if let Some(host) = self.host_of(task) {
                self.on_late(&host, task, end, cx);
            }
        }
    }

    fn report_resources(
        &mut self,
        id: ActionId,
        names: BTreeSet<ResourceName>,
        kind: &ReportKind,
        ended: &mut Part,
        late: &mut Part,
        cx: &mut Context,
    ) {
        let Some(action) = self.action_mut(id).filter(|_| !names.is_empty()) else { return };
        let row = action.row.clone();
        let Some(external) = action.external_mut() else { return };
        let asked = external.cancelling;
        let (there, fresh): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| external.ended.contains_key(name));
        for name in there {
            let Some(end) = external.ended.get_mut(&name) else { continue };
            let again = end_of(kind, &row, is_cancelled(Some(&end.ended.outcome)), cx.now);
            let known = std::iter::once(&end.ended).chain(&end.late).any(|before| before.outcome == again.outcome);
            if !known && end.late.len() < MAX_LATE {
                end.late.push(again);
                late.resources.insert(name);
            }
        }
        if !late.resources.is_empty() {
            let result = end_of(kind, &row, false, cx.now).outcome;
            let context =
                json!({"resources": late.resources, "outcome": result.as_str(), "result": result.to_string()});
            self.action_event(id, "late", context, cx);
            self.touch(id, cx);
        }
        ended.resources.extend(fresh.iter().cloned());
        self.end_resources(id, fresh, &end_of(kind, &row, asked, cx.now), cx);
    }

    /// Returns the attempt that a service's report means: the attempt that the report names, else the open attempt or
    /// the last. If the report names none and that attempt lacks the action, returns the only attempt in which the
    /// action is open: the service may have begun before a newer attempt opened.
    ///
    /// # Errors
    /// The store does not know the job, or the job has no such attempt.
    fn attempt_reported(&self, report: &Report, cx: &Context) -> Result<(Attempt, &JobAttempt), Refusal> {
        let (number, attempt) = self.attempt_meant(&report.job, report.attempt)?;
        let of = |number| self.action(ActionId::of(cx.settings.cluster, &report.job, number, &report.action));
        if report.attempt.is_some() || of(number).is_some() {
            return Ok((number, attempt));
        }
        let at_work = |action: &Action| action.row.external.is_some() && action.is_open();
        let all = self.get(&report.job).into_iter().flat_map(|entry| &entry.attempts);
        let mut older = all.filter(|(older, _)| of(**older).is_some_and(at_work));
        match (older.next(), older.next()) {
            (Some((only, attempt)), None) => Ok((*only, attempt)),
            _ => Ok((number, attempt)),
        }
    }
}

/// Returns the ranks and resources that a report names; without names, all that the action covers.
///
/// # Errors
/// `Conflict`: a rank or host is outside the attempt's layout, or the action does not cover a named part.
fn meant(report: &Report, action: &Action, layout: &Layout) -> Result<Part, Refusal> {
    let covers = action.covers();
    if report.targets.is_none() && report.resources.is_none() {
        return Ok(covers);
    }
    let over = |what: &str| Refusal::Conflict(format!("{}{what}", action.is_over(&covers)));
    let ranks = report.targets.as_ref().map(|targets| layout.choose(targets)).transpose();
    let part = Part {
        ranks: ranks.map_err(|text| over(&format!(": {text}")))?.unwrap_or_default(),
        resources: report.resources.clone().unwrap_or_default(),
    };
    let mut beyond = part.clone();
    beyond.subtract(&covers);
    if beyond.is_empty() { Ok(part) } else { Err(over(&format!(", and not {beyond}"))) }
}

const fn is_cancelled(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Cancelled { .. }))
}

/// Returns the end that a service's report `kind` gives a rank or resource of the external action `row`. `asked`: the
/// controller has asked the service to stop, so a failure counts as `cancelled`.
fn end_of(kind: &ReportKind, row: &ActionRow, asked: bool, now: Now) -> Ended {
    let name = |check: &Option<CheckName>| check.as_ref().map(CheckName::to_string);
    let (outcome, check, message) = match kind {
        ReportKind::Tolerable { check, message } => {
            (Outcome::Tolerable, Some(name(check).unwrap_or_else(|| row.name.to_string())), message.clone())
        }
        ReportKind::Failed { check, message } if asked => {
            (Outcome::Cancelled { status: None }, name(check), message.clone())
        }
        ReportKind::Failed { check, message } => {
            (Outcome::Failed { why: Failure::Reported }, name(check), message.clone())
        }
        ReportKind::Ok | ReportKind::Renew | ReportKind::Milestone(_) => (Outcome::Ok, None, String::new()),
    };
    let tail =
        (check.is_none() && !message.is_empty()).then(|| Tail { script: row.name.to_string(), text: message.clone() });
    Ended {
        elapsed_ms: Some(now.wall_ms.saturating_sub(row.began_ms)),
        checks: check.map(|check| Check { check, message }).into_iter().collect(),
        tails: tail.into_iter().collect(),
        ..Ended::bare(outcome, now.wall_ms)
    }
}
