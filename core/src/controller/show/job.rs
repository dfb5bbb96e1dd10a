//! View of a job: its attempts and actions, and the state, reason and age of each open rank.

use std::collections::BTreeMap;

use serde_json::json;

use crate::controller::action::verdict::last_line;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{External, Refusal, Reply};
use crate::controller::interface::view::{ActionView, AttemptView, JobView, PsRow};
use crate::controller::job::no_job;
use crate::controller::state::{Action, RankState};
use crate::duration::{Span, age};
use crate::ids::{Attempt, JobId, Rank};
use crate::idset::IdSet;
use crate::message::{ITS_START, Phase};
use crate::targets::Targets;
use crate::task::Process;

use super::ends::Ends;

const CANCELLING: &str = "; cancel asked for";

impl Facts<'_> {
    /// Returns the rows of `perilog ps` for the open ranks and named resources of an action. Ranks with the same state
    /// and reason share a row, with the age of the oldest.
    pub(super) fn open_rows(&self, action: &Action) -> Vec<PsRow> {
        let row = &action.row;
        let Some(layout) = self.jobs.layout(row.id) else {
            return Vec::new();
        };
        let mut groups: BTreeMap<(&'static str, String), (IdSet, u64)> = BTreeMap::new();
        for rank in action.open_ranks().iter().map(Rank) {
            let (state, why, age_ms) = self.state_of_rank(action, rank);
            let (ranks, oldest) = groups.entry((state, why)).or_insert_with(|| (IdSet::new(), 0));
            ranks.insert(rank.0);
            *oldest = (*oldest).max(age_ms);
        }
        let lease_left_ms = self.lease_left(action);
        let resources = action.open_part().resources;
        let new = |state: &str, why, age_ms| {
            PsRow::new(Some(row.job.clone()), row.attempt, row.name.clone(), state, why, age_ms)
        };
        let mut rows: Vec<PsRow> = groups
            .into_iter()
            .map(|((state, why), (ranks, age_ms))| {
                let hosts = layout.hosts_of(&ranks);
                PsRow { hosts, ranks, lease_left_ms, ..new(state, why, age_ms) }
            })
            .collect();
        if !resources.is_empty() {
            let asked = row.external.as_ref().is_some_and(|external| external.cancelling);
            let why = format!("{}{}", self.lease_text(action), if asked { CANCELLING } else { "" });
            let age_ms = self.cx.now.wall_ms.saturating_sub(row.began_ms);
            rows.push(PsRow { resources, lease_left_ms, ..new("external", why, age_ms) });
        }
        rows
    }

    /// Returns the rest of the lease (ms) of an open external action; `None` for any other action.
    fn lease_left(&self, action: &Action) -> Option<u64> {
        let external = action.row.external.as_ref().filter(|_| action.is_open())?;
        Some(action.armed_ms.saturating_add(external.lease_ms).saturating_sub(self.cx.now.mono_ms))
    }

    fn lease_text(&self, action: &Action) -> String {
        let lease = action.row.external.as_ref().map_or(0, |external| external.lease_ms);
        let left = age(self.lease_left(action).unwrap_or_default());
        format!("its service must report within {left} (lease {})", Span::from_millis(lease))
    }

    /// Returns, for an open rank: its state, which is a word such as `sent`; the reason, as a text for people; and the
    /// time (ms) since the action began or, for a live task, since its phase began.
    pub(crate) fn state_of_rank(&self, action: &Action, rank: Rank) -> (&'static str, String, u64) {
        let task = action.task(rank);
        let asked_ms = self.cx.now.wall_ms.saturating_sub(action.row.began_ms);
        let node = self.nodes.of(&self.jobs, task);
        let online = node.is_some_and(|n| n.session.is_some());
        let cancelling = if action.row.cancelling.contains(rank.0) { CANCELLING } else { "" };
        let resolution = action.resolving(rank);
        let expected = action.expected.get(&rank);
        let (state, why, age) = match action.rank_state(rank) {
            _ if resolution.is_some() => {
                let host = self.jobs.host_of(task);
                let failed = host.as_ref().and_then(|host| self.drains.failed.get(host));
                let hook = failed.map(|(_, why)| format!(", and the drain hook failed: {why}")).unwrap_or_default();
                let reason = resolution.map(|resolution| resolution.reason.as_str()).unwrap_or_default();
                let what = match resolution.is_some_and(|resolution| resolution.overdue) {
                    true => "will be given up",
                    false => "will be resolved as an operator asked",
                };
                let why = format!("{what} ({reason}) once the drain of its node is in force{hook}");
                ("resolving", why, asked_ms)
            }
            _ if action.row.external.is_some() => ("external", self.lease_text(action), asked_ms),
            RankState::Accepted if expected.is_some_and(|e| e.is_over) && online => (
                "rebooting",
                "its scripts have ended; the task waits for the reboot that one of them announced".to_owned(),
                asked_ms,
            ),
            RankState::Accepted if expected.is_some() && !online => {
                ("rebooting", "the node is not connected; a script has announced a reboot".to_owned(), asked_ms)
            }
            RankState::Waiting | RankState::Sent | RankState::Accepted
                if (action.rank_state(rank) != RankState::Accepted
                    || node.is_some_and(|n| n.unsettled.unclaimed.contains(&task)))
                    && let Some(why) = self.held_by_recovery(task.action, rank) =>
            {
                ("waiting", why.to_string(), asked_ms)
            }
            RankState::Waiting if self.jobs.is_behind(task.action, rank) => {
                let why = match self.jobs.before(task.action, rank).map(|before| &before.row) {
                    Some(older) if older.attempt != action.row.attempt => {
                        format!("{} of attempt {} has not ended there", older.name, older.attempt)
                    }
                    Some(before) => format!("{} has not ended there", before.name),
                    None => String::new(),
                };
                ("waiting", why.to_string(), asked_ms)
            }
            RankState::Waiting if online => ("waiting", "about to be sent".to_owned(), asked_ms),
            RankState::Waiting => ("waiting", "the node is not connected".to_owned(), asked_ms),
            RankState::Sent if online => ("sent", "the node has not accepted it yet".to_owned(), asked_ms),
            RankState::Sent => ("sent", "the node disconnected before it accepted the task".to_owned(), asked_ms),
            _ => match node.and_then(|n| n.live.get(&task)) {
                Some((phase, since_ms)) => {
                    let (state, why) = describe(phase);
                    (state, why, self.cx.now.mono_ms.saturating_sub(*since_ms))
                }
                None if online => ("accepted", "its unit is about to begin".to_owned(), asked_ms),
                None => ("accepted", "the node is not connected; its script may still run".to_owned(), asked_ms),
            },
        };
        (state, format!("{why}{cancelling}"), age)
    }

    /// Returns the view of a job for `perilog show`. `targets`: only the ends of these ranks, a row for each.
    ///
    /// # Errors
    /// `NoSuchJob`. `Conflict`: no attempt of the job has these ranks.
    pub(crate) fn job(&self, job: &JobId, targets: Option<&Targets>) -> Result<JobView, Refusal> {
        let entry = self.jobs.get(job).ok_or_else(|| no_job(job))?;
        if let Some(targets) = targets {
            let chosen = entry.attempts.values().rev().map(|attempt| attempt.layout.choose(targets));
            let chosen = chosen.reduce(|newest, older| newest.or_else(|why| older.map_err(|_| why)));
            chosen.transpose().map_err(Refusal::Conflict)?;
        }
        let mut ends = Ends::new(targets);
        // The newest attempt comes first, and has the room that it needs.
        let mut attempts: Vec<AttemptView> = entry
            .attempts
            .iter()
            .rev()
            .map(|(number, attempt)| AttemptView {
                attempt: *number,
                open: attempt.open,
                hosts: attempt.layout.hosts().clone(),
                waits: self.waits_for(job, *number).map(|why| why.to_string()),
                held: self.held_of(job, *number, attempt, true),
                released: attempt.released.clone(),
                actions: attempt
                    .actions
                    .iter()
                    .filter_map(|id| self.jobs.action(*id))
                    .map(|a| self.action(a, &mut ends))
                    .collect(),
            })
            .collect();
        attempts.reverse();
        let meant = self.jobs.attempt_meant(job, None).ok();
        let userid = meant.and_then(|(_, attempt)| attempt.userid);
        Ok(JobView { job: job.clone(), userid, attempts })
    }

    fn action(&self, action: &Action, ends: &mut Ends<'_>) -> ActionView {
        let row = &action.row;
        let (ended, more) = match self.jobs.layout(row.id) {
            Some(layout) => ends.of(action, layout),
            None => (Vec::new(), None),
        };
        ActionView {
            id: row.id,
            name: row.name.clone(),
            ranks: row.ranks.clone(),
            began_ms: row.began_ms,
            ended_ms: row.ended_ms,
            timeout_ms: row.timeout_ms.or_else(|| row.limits.keys().next_back().copied()),
            verdict: row.verdict,
            ok: row.ok.clone(),
            remarks: row.remarks.clone(),
            open: self.open_rows(action),
            ended,
            more,
            external: row
                .external
                .as_deref()
                .map(|of| External { last_report_ms: action.last_report_ms, ..of.clone() }),
        }
    }

    /// Returns the ranks and resources that failed in the setup actions and external actions of a job's attempt.
    /// `attempt` `None`: the open attempt, or the last.
    ///
    /// # Errors
    /// No such job or attempt.
    pub(crate) fn failed(&self, job: &JobId, attempt: Option<Attempt>) -> Result<Reply, Refusal> {
        let (_, entry) = self.jobs.attempt_meant(job, attempt)?;
        let (mut ranks, mut resources, mut checks) = (IdSet::new(), Vec::new(), Vec::new());
        for id in &entry.actions {
            let Some(action) =
                self.jobs.action(*id).filter(|action| !self.cx.settings.after.contains(&action.row.name))
            else {
                continue;
            };
            let bad = action.bad();
            checks.extend(self.jobs.failed_checks(*id, &bad));
            ranks.extend_with(&bad);
            let bad = action.row.external.iter().flat_map(|external| external.bad());
            resources.extend(bad.map(|(name, ended)| {
                json!({"resource": name, "action": action.row.name, "outcome": ended.outcome.as_str(),
                    "result": ended.outcome.to_string(), "message": last_line(ended), "checks": ended.checks})
            }));
        }
        Ok(Reply::Failed { hosts: entry.layout.hosts_of(&ranks), ranks, resources, checks })
    }
}

/// Returns the state that people see for a task in this phase, with the reason.
pub(super) fn describe(phase: &Phase) -> (&'static str, String) {
    match phase {
        Phase::Waiting { why } => ("waiting", format!("its node waits for {why}")),
        Phase::Starting => ("accepted", "systemd was asked to start its unit".to_owned()),
        Phase::Running { script, index, of, progress } => {
            let progress = progress.as_ref().map(|p| format!(": {p}")).unwrap_or_default();
            ("running", format!("{script} ({index} of {of}){progress}"))
        }
        // Without the process and call, which differ between nodes: so ranks with the same overdue script share a row.
        // `perilog why` and the event log show them.
        Phase::Overdue { script, limit_ms, doing } if script == ITS_START => {
            ("overdue", format!("{script} is past its limit of {}: {doing}", Span::from_millis(*limit_ms)))
        }
        Phase::Overdue { script, limit_ms, .. } => {
            ("overdue", format!("{script} is past its limit of {}", Span::from_millis(*limit_ms)))
        }
        Phase::Lingering { processes } => {
            ("lingering", format!("its scripts ended, but their processes did not: {}", list(processes)))
        }
    }
}

/// Returns the processes as a text, such as `4711 (sleep), 4712 (sh)`. After four processes, the text has only the
/// number of the others.
fn list(processes: &[Process]) -> String {
    const SHOWN: usize = 4;
    let mut text: Vec<String> = processes.iter().take(SHOWN).map(|p| format!("{} ({})", p.pid, p.command)).collect();
    if processes.len() > SHOWN {
        text.push(format!("{} more", processes.len() - SHOWN));
    }
    text.join(", ")
}
