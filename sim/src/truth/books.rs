//! Checks the notices to the resource manager, and the drains, that the first controller commits. Releases are parts of
//! R that add up to R, and the last has `final`. A job keeps at least `keep` ranks. A cancel drains no host. The first
//! reason of a drain stays.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{DrainRow, OutboxEntry, Reader};
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{Attempt, HostName, IdSet, JobId, Outcome, Part, ResourceSet};

use super::Truth;
use crate::world::site;

#[derive(Debug, Default)]
pub(super) struct Books {
    notices: BTreeMap<(JobId, Attempt), Notices>,
    /// The reason of each host's drain that is not lifted.
    reasons: BTreeMap<HostName, String>,
    /// Host and cause of each drain so far for an overdue script or for lingering processes.
    stuck: BTreeSet<(HostName, String)>,
}

/// The releases of an attempt that the outbox has had so far, without those that a recovery dropped.
#[derive(Debug, Default)]
struct Notices {
    /// The released part and its fragment of R, by the sequence number of the release.
    releases: BTreeMap<u64, (Part, Option<ResourceSet>)>,
    /// Ranks of the releases that the controller dropped from the outbox. The resource manager no longer counts these
    /// ranks to the attempt, so no release of them has to come.
    gone: Part,
    last: bool,
}

impl Notices {
    fn part(&self) -> Part {
        let mut all = Part::default();
        self.releases.values().for_each(|(part, _)| all.extend_with(part));
        all
    }

    /// Returns the union of the fragments of R in all releases of the attempt. `None`: there is no release, a release
    /// has no fragment, or two fragments contradict each other.
    fn r(&self) -> Option<ResourceSet> {
        let mut fragments = self.releases.values().map(|(_, fragment)| fragment.clone());
        let first = fragments.next()??;
        fragments.try_fold(first, |so_far, fragment| so_far.union(&fragment?).ok())
    }

    /// Forgets a release that the controller has dropped from the outbox, and adds its ranks to `gone`.
    fn drop_release(&mut self, sequence: u64) {
        if let Some((part, _)) = self.releases.remove(&sequence) {
            self.gone.extend_with(&part);
            self.last = false;
        }
    }
}

impl Truth {
    /// Checks the notices and drains in a batch that the first controller has committed, by the rules at the top of
    /// this file. Notices may repeat after the loss of a store.
    pub(super) fn check_books(&mut self, store: &Snapshot, records: &[Record]) {
        let forgetful = self.releases.has_forgotten();
        for record in records {
            let wrong = match record {
                Record::Outbox(entry) if entry.reader == Reader::Manager && !self.releases.is_forgetful(&entry.job) => {
                    self.released_by(store, entry)
                }
                Record::Outbox(entry) if entry.reader == Reader::ReleaseHook => {
                    self.pending(entry);
                    None
                }
                // The resource manager no longer has the attempt, or an operator says so: the hook gets no more notices
                // of it.
                Record::Event { job, event, .. } if ["attempt-over", "attempt-closed"].contains(&event.name()) => {
                    self.dropped_from_outbox(job, records);
                    None
                }
                Record::OutboxDone { sequence } => {
                    self.books.notices.values_mut().for_each(|notices| notices.drop_release(*sequence));
                    self.done(*sequence);
                    None
                }
                Record::Drain(row) => self.drained_by(row, forgetful),
                Record::Undrained { host } => {
                    self.books.reasons.remove(host);
                    None
                }
                Record::Prune { job, attempt, .. } => {
                    self.books.notices.remove(&(job.clone(), *attempt));
                    let of = format!("(job {job} attempt {attempt})");
                    self.books.stuck.retain(|(_, what)| !what.ends_with(&of));
                    None
                }
                _ => None,
            };
            if let Some(text) = wrong {
                self.broken(|| text);
            }
        }
    }

    /// Records a rollback of the resource manager, or the begin of a recovery: the controller may now repeat notices
    /// about the jobs that the resource manager launched.
    pub(super) fn notices_may_repeat(&mut self) {
        self.books.notices.retain(|(job, _), _| !site::is_launched(job));
        self.releases.may_repeat();
    }

    /// Records the ranks that an edge lists as held. If perilog has released such a rank already, it may release the
    /// rank once more.
    pub(crate) fn listed(&mut self, job: &JobId, attempt: Attempt, ranks: &IdSet) {
        let notices = self.books.notices.get(&(job.clone(), attempt));
        if notices.is_some_and(|notices| !notices.part().ranks.is_disjoint(ranks)) {
            self.releases.expect_again(job);
        }
    }

    /// Returns `true` if the first controller's store shows the host as drained.
    pub(super) fn is_drained_here(&self, host: &HostName) -> bool {
        self.books.reasons.contains_key(host)
    }

    fn released_by(&mut self, store: &Snapshot, entry: &OutboxEntry) -> Option<String> {
        let attempt = store.attempts.iter().find(|row| row.job == entry.job && row.attempt == entry.attempt)?;
        let of = format!("{} attempt {}", entry.job, entry.attempt);
        let body = entry.body.value();
        let ranks = |key: &str| -> IdSet { body[key].as_str().and_then(|text| text.parse().ok()).unwrap_or_default() };
        let r = || ResourceSet::from_json(&body["R"].to_string()).ok();
        match body["event"].as_str()? {
            "release" => {
                let resources = body["resources"].as_array().into_iter().flatten();
                let names = resources.filter_map(|name| perilog_core::ResourceName::new(name.as_str()?).ok());
                let part = Part { ranks: ranks("ranks"), resources: names.collect() };
                let notices = self.books.notices.entry((entry.job.clone(), entry.attempt)).or_default();
                notices.gone.subtract(&part);
                let given_up = self.releases.given_up(&entry.job, entry.attempt);
                let handed_out = attempt.ranks.difference(&given_up).difference(&notices.gone.ranks);
                let whole = Part { ranks: handed_out, resources: &attempt.terms.resources - &notices.gone.resources };
                let twice = !notices.part().intersection(&part).is_empty();
                let fragment = r().filter(|fragment| *fragment.ranks() == part.ranks);
                notices.releases.insert(entry.sequence, (part.clone(), fragment));
                let last = body["final"].as_bool().unwrap_or_default();
                let after = std::mem::replace(&mut notices.last, last);
                if part.is_empty() || twice || after || last != (notices.part() == whole) {
                    return Some(format!(
                        "4 released: {part} of {of} is sent, final {last}; so far {}",
                        notices.part()
                    ));
                }
                let Some(all) = &attempt.terms.r else { return None };
                let sum = notices.r();
                // Ranks that were given up need no release, so the fragments may not add up to all of R.
                let is_all = |sum: &ResourceSet| match whole.ranks == attempt.ranks {
                    true => *sum == **all,
                    false => *sum.ranks() == whole.ranks,
                };
                let adds_up = sum.as_ref().is_some_and(|sum| !last || is_all(sum));
                (!adds_up).then(|| format!("4 released: of {of} go {part}, and the fragment is {}", body["R"]))
            }
            "shrink" => {
                let (left, back) = (ranks("left"), ranks("ranks"));
                let few = left.len() < attempt.terms.keep.map_or(1, u64::from);
                let r_is_left = attempt.terms.r.is_none() || r().is_some_and(|r| *r.ranks() == left);
                (few || !left.is_disjoint(&back) || !r_is_left)
                    .then(|| format!("5 keep: {of} goes on with {left}, without {back}, of {:?}", attempt.terms.keep))
            }
            "exception" => {
                let bad = ranks("ranks");
                let named = |rank: &u32| {
                    let mut ends = store.ranks.iter().filter(|row| row.task.rank.0 == *rank);
                    ends.any(|row| matches!(row.ended.outcome, Outcome::Tolerable | Outcome::Lost { .. }))
                };
                let nobody = bad.is_empty() && body["resources"].is_null();
                let wrong = body["severity"] != 1 || nobody || !bad.iter().all(|rank| named(&rank));
                wrong.then(|| format!("5 exception: ranks {bad} of {of} are reported as forgiven"))
            }
            _ => None,
        }
    }

    /// Returns what is wrong with a committed drain; `None`: nothing. Three rules: the first reason of a drain stays;
    /// after an undrain, the same stuck script or process does not drain the host again; a cancelled setup action
    /// drains no host. `forgetful`: the store may lack earlier drains, so only the last rule is checked.
    fn drained_by(&mut self, row: &DrainRow, forgetful: bool) -> Option<String> {
        let (host, reason) = (row.host.clone(), row.reason.clone());
        if row.lifted {
            self.books.reasons.remove(&host);
            return None;
        }
        let before = self.books.reasons.insert(host.clone(), reason.clone());
        if before.is_none()
            && let Some(what) = stuck(&reason)
            && !self.books.stuck.insert((host.clone(), what))
            // A generation drops a pending undrain, so the same drain may come again.
            && !row.doubtful
            && !forgetful
        {
            return Some(format!(
                "5 drain: {host} was drained for this, an operator lifted that, and it is again: {reason}"
            ));
        }
        if let Some(before) = before.filter(|before| *before != reason && !forgetful) {
            return Some(format!("5 drain: {host} is drained for {before:?}, and that is written over: {reason:?}"));
        }
        // A cancelled setup action is no fault of the node. A cancelled after-action leaves the host uncleaned, so the
        // host is drained.
        let cleans = |name: &str| !super::attempts::prepares(name);
        let of = reason.split([' ', ':']).next().is_some_and(cleans);
        let after = reason
            .split_once(" had been cancelled")
            .and_then(|(before, _)| before.rsplit(' ').next())
            .is_some_and(cleans);
        let cancelled = row.by.is_none() && reason.contains(": cancelled") && !of && !after;
        cancelled.then(|| format!("5 drain: {host} is drained ({reason})"))
    }
}

/// Returns the cause in a drain's reason if it is an overdue script or lingering processes; `None`: another cause.
fn stuck(reason: &str) -> Option<String> {
    if reason.contains(" is past its limit of ") {
        return Some(reason.to_owned());
    }
    // The rest of the reason lists the host's other processes, which may differ.
    let (what, _) = reason.split_once(", processes did not within ")?;
    let of = reason.rfind("(job ").and_then(|at| reason.get(at..)).unwrap_or_default();
    Some(format!("{what} {of}"))
}
