//! View of pending notices: the releases and drains that a hook has not carried out yet.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::controller::facts::Facts;
use crate::controller::interface::io::DrainRow;
use crate::controller::interface::view::PsRow;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId};
use crate::idset::IdSet;

/// The members of a release notice that `perilog ps` shows. All other members, such as the fragment of R, are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NoticeBody<'a> {
    #[serde(borrow)]
    ranks: Cow<'a, str>,
    #[serde(borrow)]
    hosts: Cow<'a, str>,
    at_ms: Option<u64>,
}

/// Releases of an attempt that wait for the same reason, as a row shows them.
struct Waiting {
    ranks: IdSet,
    hosts: Vec<String>,
    /// Time since which the first of them waits, in milliseconds since 1970.
    since_ms: u64,
}

/// Key of a row: job, attempt, state and reason.
type Key = (JobId, Attempt, &'static str, String);

/// Releases that wait, by what a row has of them: a job may have a notice for each of its ranks.
#[derive(Default)]
struct Alike(BTreeMap<Key, Waiting>);

impl Alike {
    fn row(&mut self, job: &JobId, attempt: Attempt, state: &'static str, why: String, since_ms: u64) -> &mut Waiting {
        let why = if defect!(NoticesUnfolded) { format!("{why} ({})", self.0.len()) } else { why };
        let new = Waiting { ranks: IdSet::new(), hosts: Vec::new(), since_ms };
        let row = self.0.entry((job.clone(), attempt, state, why)).or_insert(new);
        row.since_ms = row.since_ms.min(since_ms);
        row
    }

    fn rows(self, now_ms: u64) -> impl Iterator<Item = PsRow> {
        self.0.into_iter().map(move |((job, attempt, state, why), of)| {
            let release = ActionName::new("release").expect("lower-case letters make an action's name");
            let (hosts, age_ms) =
                (HostList::sorted(of.hosts.iter().map(String::as_str)), now_ms - of.since_ms.min(now_ms));
            PsRow { ranks: of.ranks, hosts, ..PsRow::new(Some(job), attempt, release, state, why, age_ms) }
        })
    }
}

impl Facts<'_> {
    /// Returns the rows of `perilog ps` for the pending notices: releases, ranks whose release waits for a drain, and
    /// drains.
    pub(crate) fn pending_notices(&self) -> Vec<PsRow> {
        let mut alike = Alike::default();
        for entry in self.cx.outbox.releases() {
            let reported: NoticeBody<'_> = entry.body.read().unwrap_or_default();
            let why = match self.cx.outbox.failure(entry.sequence) {
                _ if !self.cx.settings.release_hook => format!(
                    "no release hook is configured; a hook that is configured later gets this release. To drop it: \
                     perilog job forget {} --releases --reason TEXT",
                    entry.job
                ),
                Some(why) => format!("the release hook failed, and will be retried: {why}"),
                None => "the release hook has not carried it out yet".to_owned(),
            };
            let since_ms = reported.at_ms.unwrap_or(self.cx.now.wall_ms);
            let (ranks, hosts): (IdSet, HostList) =
                (reported.ranks.parse().unwrap_or_default(), reported.hosts.parse().unwrap_or_default());
            let row = alike.row(&entry.job, entry.attempt, "notifying", why, since_ms);
            row.ranks.extend_with(&ranks);
            row.hosts.extend(hosts.iter().map(str::to_owned));
        }
        for (host, waiting) in &self.drains.waiting {
            let Some(drain) = self.drains.get(host) else { continue };
            let why = match self.drains.failed.get(host) {
                Some((_, why)) => format!("its drain is not in force, because the drain hook failed: {why}"),
                None => format!("its drain is not in force yet ({})", drain.newest().reason),
            };
            for (job, attempt, rank) in waiting {
                let row = alike.row(job, *attempt, "draining", why.clone(), drain.asked_ms);
                row.ranks.insert(rank.0);
                row.hosts.push(host.to_string());
            }
        }
        let mut rows: Vec<PsRow> = alike.rows(self.cx.now.wall_ms).collect();
        rows.extend(self.pending_drains_rows());
        rows
    }

    /// Returns rows for the drains, and the lifts of drains, that the drain hook has not carried out. A drain for which
    /// a rank waits is left out, because the rank has a row already. Drains with the same reason share a row, and so do
    /// lifts. The age of a drain counts from its first unanswered notice, the age of a lift from the hook's first
    /// failure.
    fn pending_drains_rows(&self) -> impl Iterator<Item = PsRow> {
        let mut alike: BTreeMap<(bool, String), (Vec<&HostName>, u64)> = BTreeMap::new();
        let unsettled = |host: &HostName, drain: &DrainRow| {
            drain.lifted || (!drain.confirmed && !self.drains.waiting.contains_key(host))
        };
        for (host, drain) in self.drains.iter().filter(|(host, drain)| unsettled(host, drain)) {
            let (failed, newest) = (self.drains.failed.get(host), drain.newest());
            let why = match failed {
                Some((_, why)) => format!("the drain hook failed, and will be retried: {why} ({})", newest.reason),
                None => format!("the drain hook has not carried it out yet ({})", newest.reason),
            };
            let since_ms = match drain.lifted {
                true => failed.map_or(self.cx.now.wall_ms, |(since_ms, _)| *since_ms),
                false => drain.asked_ms,
            };
            let (hosts, oldest_ms) = alike.entry((drain.lifted, why)).or_insert_with(|| (Vec::new(), since_ms));
            hosts.push(host);
            *oldest_ms = since_ms.min(*oldest_ms);
        }
        alike.into_iter().map(move |((lifted, why), (hosts, since_ms))| {
            let name = ActionName::new(if lifted { "undrain" } else { "drain" });
            let name = name.expect("lower-case letters make an action's name");
            let hosts = HostList::from_names(hosts.iter().map(|host| host.as_str())).unwrap_or_default();
            let age_ms = self.cx.now.wall_ms.saturating_sub(since_ms);
            PsRow { hosts, ..PsRow::new(None, Attempt::default(), name, "notifying", why, age_ms) }
        })
    }
}
