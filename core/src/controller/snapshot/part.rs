//! Parts of a snapshot: the jobs that a start loads, and the jobs that a batch needs. Every store must give the same
//! result as this code, or a start may load more.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::interface::io::Elsewhere;
use crate::controller::interface::io::{ActionRow, Fetched, NodeRow, OutboxEntry, RankRow, Reader, Snapshot};
use crate::controller::memory::Needs;
use crate::controller::state::away::Holding;
use crate::controller::state::nodes::FAILED_KEPT;
use crate::ids::{ActionId, HostName, JobId};

impl Snapshot {
    /// Returns the snapshot without the jobs that a start need not load: those that have ended, and to which nothing
    /// refers that a start loads.
    #[must_use]
    pub fn without_ended(&self, holding: Holding) -> Self {
        let jobs = self.jobs_to_load(holding.verdicts);
        let part = self.part(&jobs);
        let count = |rows: &mut dyn Iterator<Item = &JobId>| rows.filter(|job| !jobs.contains(*job)).count();
        let ended: BTreeSet<&JobId> =
            self.attempts.iter().map(|row| &row.job).filter(|job| !jobs.contains(*job)).collect();
        let elsewhere = Elsewhere {
            jobs: ended.len(),
            attempts: count(&mut self.attempts.iter().map(|row| &row.job)),
            actions: count(&mut self.actions.iter().map(|row| &row.job)),
            notices: None,
        };
        let Fetched { attempts, actions, ranks, events_last, .. } = part;
        let (here, elsewhere_notices): (Vec<OutboxEntry>, Vec<OutboxEntry>) =
            self.outbox.iter().cloned().partition(|entry| {
                let is_loaded = || attempts.iter().any(|row| row.job == entry.job);
                entry.reader == Reader::ReleaseHook || is_loaded()
            });
        let sequences = || elsewhere_notices.iter().map(|entry| entry.sequence);
        let elsewhere = Elsewhere { notices: sequences().min().zip(sequences().max()), ..elsewhere };
        Self {
            history: self.history.clone(),
            stamp: self.stamp,
            anchor: self.anchor,
            moved: self.moved,
            recovery: self.recovery.clone(),
            nodes: self.nodes.clone(),
            attempts,
            actions,
            ranks,
            drains: self.drains.clone(),
            quiet: self.quiet.clone(),
            outbox: here,
            outbox_last: self.outbox_last,
            events_last,
            elsewhere,
        }
    }

    /// Returns the rows of the jobs that a batch needs.
    #[must_use]
    pub fn fetch(&self, needs: &Needs) -> Fetched {
        if needs.is_empty() {
            return Fetched::default();
        }
        let of_actions = self.actions.iter().filter(|row| needs.actions.contains(&row.id)).map(|row| row.job.clone());
        let mut jobs: BTreeSet<JobId> = needs.jobs.iter().cloned().chain(of_actions).collect();
        if let Some(oldest) = needs.oldest {
            let mut attempts: Vec<_> =
                self.attempts.iter().filter(|row| row.is_over() && row.touched_ms <= oldest.until_ms).collect();
            attempts.sort_by(|a, b| (a.touched_ms, &a.job, a.attempt).cmp(&(b.touched_ms, &b.job, b.attempt)));
            jobs.extend(attempts.into_iter().take(oldest.limit).map(|row| row.job.clone()));
        }
        let mut part = self.part(&jobs);
        if let Some((after, limit)) = needs.page {
            let mut page: Vec<&OutboxEntry> = self.manager().filter(|entry| entry.sequence > after).collect();
            page.sort_by_key(|entry| entry.sequence);
            let here: BTreeSet<u64> = part.outbox.iter().map(|entry| entry.sequence).collect();
            let page = page.into_iter().take(limit).filter(|entry| !here.contains(&entry.sequence));
            part.outbox.extend(page.cloned());
            part.outbox.sort_by_key(|entry| entry.sequence);
        }
        part
    }

    fn manager(&self) -> impl Iterator<Item = &OutboxEntry> {
        self.outbox.iter().filter(|entry| entry.reader == Reader::Manager)
    }

    /// Returns the rows of these jobs, of those that have an attempt.
    fn part(&self, jobs: &BTreeSet<JobId>) -> Fetched {
        let jobs: BTreeSet<&JobId> =
            self.attempts.iter().map(|row| &row.job).filter(|job| jobs.contains(*job)).collect();
        let is_of = |job: &JobId| jobs.contains(job);
        let actions: Vec<ActionRow> = self.actions.iter().filter(|row| is_of(&row.job)).cloned().collect();
        let ids: BTreeSet<ActionId> = actions.iter().map(|row| row.id).collect();
        Fetched {
            attempts: self.attempts.iter().filter(|row| is_of(&row.job)).cloned().collect(),
            ranks: self.ranks.iter().filter(|row| ids.contains(&row.task.action)).cloned().collect(),
            events_last: self.events_last.iter().filter(|(job, _)| is_of(job)).map(|(j, n)| (j.clone(), *n)).collect(),
            outbox: self.manager().filter(|entry| is_of(&entry.job)).cloned().collect(),
            actions,
        }
    }

    fn jobs_to_load(&self, verdicts_held: usize) -> BTreeSet<JobId> {
        let of: BTreeMap<ActionId, &JobId> = self.actions.iter().map(|row| (row.id, &row.job)).collect();
        let attempts = self.attempts.iter().filter(|row| row.is_live()).map(|row| &row.job);
        let actions = self.actions.iter().filter(|row| row.is_live()).map(|row| &row.job);
        let expected = self.ranks.iter().filter(|row| row.expects.is_some()).filter_map(|row| of.get(&row.task.action));
        let hooked = self.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook).map(|entry| &entry.job);
        let drains = self.drains.iter().filter_map(|drain| drain.passing.as_ref()?.job());
        let mut verdicts: Vec<_> = self.actions.iter().filter(|row| row.verdict.is_some()).collect();
        verdicts.sort_by_key(|row| std::cmp::Reverse((row.ended_ms, row.began_ms, row.id)));
        let verdicts = verdicts.into_iter().take(verdicts_held).map(|row| &row.job);
        let all = attempts.chain(actions).chain(expected.copied()).chain(hooked).chain(drains).chain(verdicts);
        all.cloned().chain(self.failed_jobs(&of)).collect()
    }

    /// Returns the jobs of the last failed tasks of each node.
    fn failed_jobs(&self, of: &BTreeMap<ActionId, &JobId>) -> BTreeSet<JobId> {
        let mut layouts = BTreeMap::new();
        for row in &self.attempts {
            layouts.insert(
                (&row.job, row.attempt),
                crate::controller::state::layout::Layout::new(row.ranks.clone(), row.hosts.clone()),
            );
        }
        let actions: BTreeMap<ActionId, &ActionRow> = self.actions.iter().map(|row| (row.id, row)).collect();
        let host = |row: &RankRow| {
            let action = actions.get(&row.task.action)?;
            layouts.get(&(&action.job, action.attempt))?.as_ref().ok()?.host(row.task.rank)
        };
        let mut failed: Vec<&RankRow> = self.ranks.iter().filter(|row| !row.ended.outcome.is_ok()).collect();
        failed.sort_by_key(|row| std::cmp::Reverse((row.ended.ended_ms, row.task)));
        let mut left: BTreeMap<&HostName, usize> =
            self.nodes.iter().map(|NodeRow { host, .. }| (host, FAILED_KEPT)).collect();
        let mut jobs = BTreeSet::new();
        for row in failed.into_iter().filter(|row| row.expects.is_none()) {
            let Some(left) = host(row).as_ref().and_then(|host| left.get_mut(host)).filter(|left| **left > 0) else {
                continue;
            };
            *left -= 1;
            jobs.extend(of.get(&row.task.action).map(|job| (*job).clone()));
        }
        jobs
    }
}
