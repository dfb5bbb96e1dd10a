//! Views of the machine for operators and programs. A view decides and changes nothing.
//!
//! Files: `job` shows a job and its open ranks, `node` a node and the scripts stuck on it, `holds` the holders of
//! ranks, `list` pages of the lists of drains and nodes, `notices` the notices that a hook has not carried out, `edge`
//! the attempts of a source, `recovery` what a restore has left. `overview` and `timeline` are for the web page.

use std::collections::BTreeMap;

use crate::controller::facts::Facts;
use crate::controller::interface::io::Source;
use crate::controller::interface::view::{PsRow, SourceView, StatusView};
use crate::controller::machine::Machine;
use crate::milestone::MAX_NAMES;

mod continuing;
mod edge;
mod ends;
mod holds;
mod job;
mod list;
mod node;
mod notices;
mod overview;
mod recovery;
mod timeline;

impl Machine {
    /// Returns the controller's state as one line for `systemctl status`.
    pub fn status_line(&self) -> String {
        let online = self.nodes.values().filter(|n| n.session.is_some()).count();
        let open = self.jobs.table.live_actions().filter(|a| a.row.verdict.is_none()).count();
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        format!(
            "epoch {}; {online} of {} node{} online; {open} action{} open{}",
            self.epoch.number,
            self.nodes.len(),
            plural(self.nodes.len()),
            plural(open),
            if self.quiesce.quiet.is_some() { "; quiet: no new starts" } else { "" }
        )
    }
}

impl Facts<'_> {
    /// Returns the rows of `perilog ps` that are at least `older_than_ms` old, oldest first. `held` adds every hold;
    /// without it, only jobs that hold named resources and no rank have a row for their hold.
    pub(crate) fn ps(&self, older_than_ms: u64, held: bool) -> Vec<PsRow> {
        let mut rows = Vec::new();
        for action in self.jobs.table.live_actions().filter(|a| a.is_open()) {
            rows.extend(self.open_rows(action));
        }
        rows.extend(self.continuing_rows());
        rows.extend(self.pending_notices());
        rows.extend(self.held(held));
        rows.retain(|row| row.age_ms >= older_than_ms);
        rows.sort_by(|a, b| {
            b.age_ms.cmp(&a.age_ms).then_with(|| a.job.cmp(&b.job)).then_with(|| a.ranks.first().cmp(&b.ranks.first()))
        });
        rows
    }

    /// Returns the controller's state in numbers, with notes for operators.
    pub(crate) fn status(&self) -> StatusView {
        let (actions_open, tasks_open) = self.jobs.open_count();
        let mut notes: Vec<String> =
            self.nodes.values().filter_map(|n| n.note.as_ref().map(|note| format!("{}: {note}", n.row.host))).collect();
        // Many nodes may have the same problem, so twenty notes are enough.
        notes.truncate(20);
        notes.splice(0..0, self.current_notes());
        let mut sources: BTreeMap<&Source, u64> = BTreeMap::new();
        for source in
            self.jobs.table.live_attempts().filter(|(.., of)| !of.complete).filter_map(|(.., of)| of.source.as_ref())
        {
            *sources.entry(source).or_default() += 1;
        }
        let sources = sources.into_iter().map(|(source, unreleased)| SourceView {
            source: source.to_string(),
            unreleased,
            followed: false,
        });
        StatusView {
            recovery: self.recovery.row.clone().filter(|row| row.ended_ms.is_none() || self.count_abandoned() > 0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: self.cx.settings.cluster.0.to_string(),
            name: String::new(),
            epoch: self.epoch.number,
            nodes: self.nodes.len() as u64,
            drained: self.drains.values().filter(|drain| !drain.lifted).count() as u64,
            held: self.held_hosts().len() as u64,
            online: self.nodes.values().filter(|n| n.session.is_some()).count() as u64,
            jobs: self.jobs.table.count_jobs() as u64,
            actions_open,
            tasks_open,
            quiet: self.quiesce.quiet.clone(),
            outbox: self.cx.outbox.pending() as u64,
            notes,
            sources: sources.collect(),
        }
    }

    /// Returns the notes about the whole controller that apply now, such as a recovery, a full disk, the quiesced
    /// state.
    pub(crate) fn current_notes(&self) -> Vec<String> {
        let full = "the store's disk is full: no new prolog begins. Make room on that disk";
        let full = self.quiesce.store_full.then(|| full.to_owned());
        let quiet = self.quiesce.quiet.as_ref();
        let waits = match self.quiesce.waits.len() {
            0 => String::new(),
            1 => "; 1 client waits until nothing is open".to_owned(),
            waits => format!("; {waits} clients wait until nothing is open"),
        };
        let quiet =
            quiet.map(|quiet| format!("{}: nothing new begins until: perilog resume{waits}", quiet.text(self.cx.now)));
        self.recovery_note().into_iter().chain(full).chain(quiet).collect()
    }

    /// Returns a line for `perilog ps` about the attempts that are not fully released and have the maximum number of
    /// milestones ([`MAX_NAMES`]); `None` if there is no such attempt.
    pub(crate) fn full_of_milestones(&self) -> Option<String> {
        let mut full =
            self.jobs.table.live_attempts().filter(|(_, _, attempt)| !attempt.complete && attempt.milestones.is_full());
        let (job, number, _) = full.next()?;
        let more = match full.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "job {job} attempt {number}{more}: the limit of {MAX_NAMES} milestones is reached, and reports of \
             others are dropped"
        ))
    }
}
