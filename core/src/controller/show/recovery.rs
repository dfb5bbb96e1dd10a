//! View of a recovery: the attempts that wait for an operator, the orphans, and the hosts that get no Welcome.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::facts::Facts;
use crate::controller::job::attempt::JobAttempt;
use crate::controller::view::{OrphanView, RecoveryView, UnvouchedView};
use crate::hostlist::HostList;
use crate::ids::{ActionName, HostName, JobId};

impl Facts<'_> {
    pub(crate) fn show_recovery(&self) -> RecoveryView {
        let open = |attempt: &JobAttempt| -> Vec<ActionName> {
            self.jobs
                .of(attempt)
                .filter(|action| action.row.verdict.is_none())
                .map(|action| action.row.name.clone())
                .collect()
        };
        let holders = self.holders();
        let beside = |job: &JobId, hosts: &HostList| -> BTreeMap<JobId, HostList> {
            let mut beside: BTreeMap<JobId, Vec<&str>> = BTreeMap::new();
            for host in hosts.iter() {
                if let Some(other) = holders.get(host).filter(|other| **other != job) {
                    beside.entry((*other).clone()).or_default().push(host);
                }
            }
            beside.into_iter().filter_map(|(job, hosts)| Some((job, HostList::from_names(hosts).ok()?))).collect()
        };
        let waiting = self.jobs.attempts().filter(|(_, _, attempt)| attempt.waits_for_a_word());
        let in_doubt = |attempt: &JobAttempt| attempt.layout.hosts_of(&attempt.in_doubt());
        let attempts = waiting.map(|(job, number, attempt)| (job, number, attempt, in_doubt(attempt)));
        let attempts = attempts.map(|(job, number, attempt, hosts)| UnvouchedView {
            job: job.clone(),
            attempt: number,
            beside: beside(job, &hosts),
            hosts,
            source: attempt.source.as_ref().map(|source| source.name.clone()),
            open: open(attempt),
        });
        let orphans = self.orphans().map(|(host, task, orphan)| OrphanView {
            host: host.to_string(),
            job: orphan.job.clone(),
            attempt: orphan.attempt,
            action: orphan.action.clone(),
            rank: task.rank,
            state: orphan.word().to_owned(),
        });
        RecoveryView {
            recovery: self.recovery.row.clone(),
            epoch: self.epoch.number,
            obeyed: self
                .highest_seen
                .as_ref()
                .filter(|(_, seen)| !seen.admits(self.epoch))
                .map(|(_, seen)| seen.number),
            attempts: attempts.collect(),
            orphans: orphans.collect(),
            suspects: self.recovery.suspects.keys().map(ToString::to_string).collect(),
        }
    }

    /// Returns the hosts that asserted attempts hold, each with the attempt's job. A host counts until its rank is
    /// released. Leaves out disowned ranks, and spent attempts: bare runs whose actions have all ended.
    fn holders(&self) -> BTreeMap<String, &JobId> {
        let vouched = self.jobs.attempts().filter(|(_, _, attempt)| attempt.asserted && !self.jobs.is_spent(attempt));
        let held = vouched.flat_map(|(job, _, attempt)| {
            let ranks = attempt.layout.ranks().difference(&attempt.released.ranks).difference(&attempt.disowned);
            let hosts: Vec<String> = attempt.layout.hosts_of(&ranks).iter().map(str::to_owned).collect();
            hosts.into_iter().map(move |host| (host, job))
        });
        held.collect()
    }

    /// Returns a note for operators: about the recovery under way, else about an orphan, else about hosts that get no
    /// Welcome. `None`: none of these exists.
    pub(crate) fn recovery_note(&self) -> Option<String> {
        if let Some(row) = self.recovery.row.as_ref().filter(|row| row.ended_ms.is_none()) {
            let jobs = self.jobs.attempts().filter(|(_, _, attempt)| attempt.waits_for_a_word()).count();
            let orphans = self.orphans().count();
            return Some(format!(
                "in recovery: {}; attempts that wait for a word: {jobs}, unknown tasks on nodes: {orphans}: perilog \
                 controller recover",
                row.why
            ));
        }
        if let Some((host, _, orphan)) = self.orphans().next() {
            let others: BTreeSet<&HostName> = self.orphans().map(|(of, ..)| of).filter(|of| *of != host).collect();
            let more = match others.len() {
                0 => String::new(),
                1 => " and 1 other host".to_owned(),
                others => format!(" and {others} other hosts"),
            };
            return Some(format!(
                "{host}{more}: {} of job {} is there, and this store does not know it: perilog controller recover",
                orphan.action, orphan.job
            ));
        }
        let suspects: Vec<&str> = self.recovery.suspects.keys().map(HostName::as_str).take(4).collect();
        (!suspects.is_empty()).then(|| {
            format!(
                "not welcomed, for they obeyed commits that this store never made: {}: perilog controller recover",
                suspects.join(", ")
            )
        })
    }
}
