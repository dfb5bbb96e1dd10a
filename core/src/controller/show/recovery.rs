//! View of a recovery: the abandoned attempts, the unknown tasks, and the hosts that get no Welcome.

use std::collections::BTreeMap;

use crate::controller::facts::Facts;
use crate::controller::interface::view::{AbandonedView, RecoveryView, UnknownView};
use crate::controller::state::attempt::JobAttempt;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId};
use crate::idset::IdSet;

impl Facts<'_> {
    pub(crate) fn show_recovery(&self) -> RecoveryView {
        let abandoned = self.jobs.table.live_attempts().filter(|(_, _, attempt)| attempt.abandoned);
        RecoveryView {
            recovery: self.recovery.row.clone(),
            epoch: self.epoch.number,
            accepted_epoch: self
                .highest_seen
                .as_ref()
                .filter(|(_, seen)| !seen.admits(self.epoch))
                .map(|(_, seen)| seen.number),
            abandoned: abandoned
                .map(|(job, number, attempt)| self.abandoned(job, number, attempt))
                .chain(self.not_in_the_store())
                .collect(),
            unknown: self.unknown_tasks(),
            suspects: HostList::sorted(self.recovery.suspects.keys().map(HostName::as_str)),
        }
    }

    /// Returns the unknown tasks. Tasks of one action in the same state share a row.
    fn unknown_tasks(&self) -> Vec<UnknownView> {
        let mut alike: BTreeMap<_, (Vec<&str>, IdSet)> = BTreeMap::new();
        for (host, task, of) in self.unknown() {
            let key = (&of.job, of.attempt, &of.action, of.as_str());
            let (hosts, ranks) = alike.entry(key).or_default();
            hosts.push(host.as_str());
            ranks.insert(task.rank.0);
        }
        let view = |((job, attempt, action, state), (hosts, ranks)): (
            (&JobId, Attempt, &ActionName, &str),
            (Vec<&str>, IdSet),
        )| UnknownView {
            hosts: HostList::sorted(hosts),
            job: job.clone(),
            attempt,
            action: action.clone(),
            ranks,
            state: state.to_owned(),
        };
        alike.into_iter().map(view).collect()
    }

    fn abandoned(&self, job: &JobId, number: Attempt, attempt: &JobAttempt) -> AbandonedView {
        let left = attempt.layout.ranks().difference(&attempt.released.ranks);
        let open = self.jobs.of(attempt).filter(|action| action.row.verdict.is_none());
        AbandonedView {
            job: job.clone(),
            attempt: number,
            hosts: attempt.layout.hosts_of(&left),
            source: attempt.source.as_ref().map(|source| source.name.clone()),
            open: open.map(|action| action.row.name.clone()).collect(),
            stored: true,
            command: format!("perilog job finish {job} --attempt {number}"),
        }
    }

    /// Returns the attempts that the store lacks, and whose clean-up may be missing on a host.
    fn not_in_the_store(&self) -> impl Iterator<Item = AbandonedView> {
        let mut by_attempt: BTreeMap<&(JobId, Attempt), Vec<&str>> = BTreeMap::new();
        let hosts = self.nodes.uncleaned_hosts.iter().filter_map(|host| Some((host, self.nodes.get(host)?)));
        for (host, node) in hosts {
            let lacks = |of: &&(JobId, Attempt)| self.jobs.attempt(&of.0, of.1).is_none();
            let of = node.unsettled.uncleaned.iter().filter(lacks);
            of.for_each(|of| by_attempt.entry(of).or_default().push(host.as_str()));
        }
        by_attempt.into_iter().filter_map(|((job, number), hosts)| {
            let hosts: HostList = hosts.join(",").parse().ok()?;
            let of = format!("{job} --attempt {number}");
            let command = format!("perilog job add {of} --nodes {hosts} && perilog job finish {of}");
            let (job, attempt) = (job.clone(), *number);
            Some(AbandonedView { job, attempt, hosts, source: None, open: Vec::new(), stored: false, command })
        })
    }

    /// Returns the number of abandoned attempts.
    pub(crate) fn count_abandoned(&self) -> usize {
        self.jobs.table.live_attempts().filter(|(_, _, attempt)| attempt.abandoned).count()
    }

    /// Returns a note for operators: about abandoned attempts and unknown tasks, else about hosts that get no Welcome.
    /// `None`: none of these exists.
    pub(crate) fn recovery_note(&self) -> Option<String> {
        let (abandoned, unknown) = (self.count_abandoned(), self.unknown().count());
        let since = self.recovery.row.as_ref().map(|row| row.why.as_str()).unwrap_or_default();
        if abandoned + unknown > 0 {
            let attempts = match abandoned {
                0 => String::new(),
                1 => "1 attempt is abandoned".to_owned(),
                n => format!("{n} attempts are abandoned"),
            };
            let tasks = match unknown {
                0 => String::new(),
                1 => "1 task on a node is unknown to the store".to_owned(),
                n => format!("{n} tasks on nodes are unknown to the store"),
            };
            let both = if abandoned > 0 && unknown > 0 { ", " } else { "" };
            let why = if since.is_empty() { String::new() } else { format!(" ({since})") };
            return Some(format!("{attempts}{both}{tasks}{why}: perilog ps --abandoned"));
        }
        let suspects: Vec<&str> = self.recovery.suspects.keys().map(HostName::as_str).take(4).collect();
        (!suspects.is_empty()).then(|| {
            format!(
                "nodes are refused, because they know a newer state than this store has: {}; if no other controller \
                 runs, take over with perilog controller recover --take-over",
                suspects.join(", ")
            )
        })
    }
}
