//! The views of waits: every wait with its age and reason, folded over ranks in the same state.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::action::{Action, Stand};
use crate::controller::io::{External, Now, Refusal};
use crate::controller::machine::Machine;
use crate::controller::view::{ActionView, AttemptView, JobView, PsRow, RankView, StatusView};
use crate::duration::Span;
use crate::hostlist::HostList;
use crate::ids::{JobId, Rank};
use crate::idset::IdSet;
use crate::message::Phase;
use crate::task::Process;

const CANCELLING: &str = "; cancel asked for";

impl Machine {
    /// Returns one line for `systemctl status`.
    pub fn status_line(&self) -> String {
        let online = self.nodes.values().filter(|n| n.session.is_some()).count();
        let open = self.actions.values().filter(|a| a.row.verdict.is_none()).count();
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        format!(
            "epoch {}; {online} of {} node{} online; {open} action{} open{}",
            self.epoch.number,
            self.nodes.len(),
            plural(self.nodes.len()),
            plural(open),
            if self.quiet.is_some() { "; quiet: no new starts" } else { "" }
        )
    }

    pub(super) fn ps(&self, older_than_ms: u64, held: bool, now: Now) -> Vec<PsRow> {
        let mut rows = Vec::new();
        for action in self.actions.values().filter(|a| a.is_open()) {
            rows.extend(self.open_rows(action, now));
        }
        rows.extend(self.untold(now));
        rows.extend(self.held(held, now));
        rows.retain(|row| row.age_ms >= older_than_ms);
        rows.sort_by(|a, b| {
            b.age_ms.cmp(&a.age_ms).then_with(|| a.job.cmp(&b.job)).then_with(|| a.ranks.first().cmp(&b.ranks.first()))
        });
        rows
    }

    /// Returns rows for the open ranks of an action. Ranks in the same state share a row, with the age of the oldest
    /// rank.
    fn open_rows(&self, action: &Action, now: Now) -> Vec<PsRow> {
        let row = &action.row;
        let Some(layout) = self.layout(row.id) else {
            return Vec::new();
        };
        let mut groups: BTreeMap<(&'static str, String), (IdSet, u64)> = BTreeMap::new();
        for rank in action.open().iter().map(Rank) {
            let (state, why, age_ms) = self.standing(action, rank, now);
            let (ranks, oldest) = groups.entry((state, why)).or_insert_with(|| (IdSet::new(), 0));
            ranks.insert(rank.0);
            *oldest = (*oldest).max(age_ms);
        }
        let lease_left_ms = self.lease_left(action, now);
        let resources = action.open_part().resources;
        let mut rows: Vec<PsRow> = groups
            .into_iter()
            .map(|((state, why), (ranks, age_ms))| PsRow {
                job: Some(row.job.clone()),
                attempt: row.attempt,
                action: row.name.clone(),
                hosts: layout.hosts_of(&ranks),
                ranks,
                state: state.to_owned(),
                why,
                age_ms,
                local: false,
                resources: BTreeSet::new(),
                lease_left_ms,
            })
            .collect();
        if !resources.is_empty() {
            let asked = row.external.as_ref().is_some_and(|external| external.cancelling);
            rows.push(PsRow {
                job: Some(row.job.clone()),
                attempt: row.attempt,
                action: row.name.clone(),
                hosts: HostList::new(),
                ranks: IdSet::new(),
                state: "external".to_owned(),
                why: format!("{}{}", self.lease_text(action, now), if asked { CANCELLING } else { "" }),
                age_ms: now.wall_ms.saturating_sub(row.began_ms),
                local: false,
                resources,
                lease_left_ms,
            });
        }
        rows
    }

    /// Returns how long the service of an external action may still be silent.
    fn lease_left(&self, action: &Action, now: Now) -> Option<u64> {
        let external = action.row.external.as_ref().filter(|_| action.is_open())?;
        Some(action.armed_ms.saturating_add(external.lease_ms).saturating_sub(now.mono_ms))
    }

    fn lease_text(&self, action: &Action, now: Now) -> String {
        let seconds = |ms: u64| Span::from_millis(ms / 1000 * 1000);
        let lease = action.row.external.as_ref().map_or(0, |external| external.lease_ms);
        let left = seconds(self.lease_left(action, now).unwrap_or_default());
        format!("its service must be heard of within {left} (lease {})", Span::from_millis(lease))
    }

    /// Returns the state word, reason and age of an open rank.
    pub(super) fn standing(&self, action: &Action, rank: Rank, now: Now) -> (&'static str, String, u64) {
        let task = action.task(rank);
        let asked_ms = now.wall_ms.saturating_sub(action.row.began_ms);
        let node = self.host_of(task).and_then(|host| self.nodes.get(&host));
        let online = node.is_some_and(|n| n.session.is_some());
        let cancelling = if action.row.cancelling.contains(rank.0) { CANCELLING } else { "" };
        let word = action.resolving(rank);
        let expected = action.expected.get(&rank);
        let (state, why, age) = match action.stand(rank) {
            _ if word.is_some() => {
                let host = self.host_of(task);
                let failed = host.as_ref().and_then(|host| self.drain_failed.get(host));
                let hook = failed.map(|(_, why)| format!(", and the drain hook failed: {why}")).unwrap_or_default();
                let reason = word.map(|word| word.reason.as_str()).unwrap_or_default();
                let why = format!("resolved by hand ({reason}) once the drain of its node is in force{hook}");
                ("resolving", why, asked_ms)
            }
            _ if action.row.external.is_some() => ("external", self.lease_text(action, now), asked_ms),
            Stand::Accepted if expected.is_some_and(|e| e.is_over) && online => {
                ("rebooting", "its scripts ended; the node is to boot, as one of them said".to_owned(), asked_ms)
            }
            Stand::Accepted if expected.is_some() && !online => {
                ("rebooting", "the node is away to boot, as its script said".to_owned(), asked_ms)
            }
            Stand::Waiting | Stand::Sent if let Some(why) = self.is_held_back(task.action, rank) => {
                ("waiting", why, asked_ms)
            }
            Stand::Waiting if self.is_behind(task.action, rank) => {
                let why = match self.before(task.action, rank).map(|before| &before.row) {
                    Some(older) if older.attempt != action.row.attempt => {
                        format!("{} of attempt {} has not ended there", older.name, older.attempt)
                    }
                    Some(before) => format!("{} has not ended there", before.name),
                    None => String::new(),
                };
                ("waiting", why, asked_ms)
            }
            Stand::Waiting if online => ("waiting", "about to be sent".to_owned(), asked_ms),
            Stand::Waiting => ("waiting", "the node is not connected".to_owned(), asked_ms),
            Stand::Sent if online => ("sent", "the node has not accepted it yet".to_owned(), asked_ms),
            Stand::Sent => ("sent", "the node left before it accepted".to_owned(), asked_ms),
            _ => match node.and_then(|n| n.live.get(&task)) {
                Some((phase, since_ms)) => {
                    let (state, why) = describe(phase);
                    (state, why, now.mono_ms.saturating_sub(*since_ms))
                }
                None if online => ("accepted", "its unit is about to begin".to_owned(), asked_ms),
                None => (
                    "accepted",
                    "the node is not connected; where it has power its script goes on".to_owned(),
                    asked_ms,
                ),
            },
        };
        (state, format!("{why}{cancelling}"), age)
    }

    pub(super) fn show(&self, job: &JobId, now: Now) -> Result<JobView, Refusal> {
        let entry = self.jobs.get(job).ok_or_else(|| self.no_job(job))?;
        let attempts = entry
            .attempts
            .iter()
            .map(|(number, attempt)| AttemptView {
                attempt: *number,
                open: attempt.open,
                hosts: attempt.layout.hosts().clone(),
                waits: self.waits_for(job, *number),
                held: self.held_of(job, *number, attempt, true, now),
                released: attempt.released.clone(),
                actions: attempt
                    .actions
                    .iter()
                    .filter_map(|id| self.actions.get(id))
                    .map(|a| self.show_action(a, now))
                    .collect(),
            })
            .collect();
        let meant = self.attempt_of(job, None).ok();
        let userid = meant.and_then(|(_, attempt)| attempt.userid);
        Ok(JobView { job: job.clone(), userid, attempts })
    }

    fn show_action(&self, action: &Action, now: Now) -> ActionView {
        let row = &action.row;
        let ended = action
            .ended
            .iter()
            .map(|(rank, r)| RankView {
                rank: *rank,
                host: self.host_of(r.task).map(|h| h.to_string()).unwrap_or_default(),
                ended: r.ended.clone(),
                late: r.late.clone(),
            })
            .collect();
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
            open: self.open_rows(action, now),
            ended,
            external: row.external.as_deref().map(|of| External { heard_ms: action.heard_ms, ..of.clone() }),
        }
    }

    pub(super) fn status(&self, now: Now) -> StatusView {
        let (actions_open, tasks_open) = self.open_count();
        let mut notes: Vec<String> =
            self.nodes.values().filter_map(|n| n.note.as_ref().map(|note| format!("{}: {note}", n.row.host))).collect();
        // A problem that a hundred nodes share is one problem.
        notes.truncate(20);
        notes.splice(0..0, self.standing_notes(now));
        StatusView {
            recovery: self.recovery.row.clone().filter(|row| row.ended_ms.is_none()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: self.settings.cluster.0.to_string(),
            epoch: self.epoch.number,
            nodes: self.nodes.len() as u64,
            drained: self.drains.values().filter(|drain| !drain.lifted).count() as u64,
            held: self.held_hosts().len() as u64,
            online: self.nodes.values().filter(|n| n.session.is_some()).count() as u64,
            jobs: self.jobs.len() as u64,
            actions_open,
            tasks_open,
            quiet: self.quiet.clone(),
            outbox: self.outbox.owed() as u64,
            notes,
        }
    }
}

/// Returns the state word and the reason of a phase.
fn describe(phase: &Phase) -> (&'static str, String) {
    match phase {
        Phase::Waiting { why } => ("waiting", format!("its node waits for {why}")),
        Phase::Starting => ("accepted", "systemd was asked to start its unit".to_owned()),
        Phase::Running { script, index, of, progress } => {
            let progress = progress.as_ref().map(|p| format!(": {p}")).unwrap_or_default();
            ("running", format!("{script} ({index} of {of}){progress}"))
        }
        // `perilog why` and the job's log tell about the processes of each node. Here, ranks in the same state stay one
        // row.
        Phase::Overdue { script, limit_ms, .. } => {
            ("overdue", format!("{script} is past its limit of {}", Span::from_millis(*limit_ms)))
        }
        Phase::Lingering { processes } => {
            ("lingering", format!("scripts ended, processes did not: {}", list(processes)))
        }
        Phase::Milestone { name } => ("running", format!("reached {name}")),
    }
}

/// Lists a few processes by name.
pub(super) fn list(processes: &[Process]) -> String {
    const SHOWN: usize = 4;
    let mut text: Vec<String> = processes.iter().take(SHOWN).map(|p| format!("{} ({})", p.pid, p.command)).collect();
    if processes.len() > SHOWN {
        text.push(format!("{} more", processes.len() - SHOWN));
    }
    text.join(", ")
}
