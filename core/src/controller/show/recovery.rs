//! View of a recovery for operators.

use crate::controller::attempt::JobAttempt;
use crate::controller::show::Show;
use crate::controller::view::{OrphanView, RecoveryView, UnvouchedView};
use crate::ids::{ActionName, HostName};

impl Show<'_> {
    pub(in crate::controller) fn show_recovery(&self) -> RecoveryView {
        let open = |attempt: &JobAttempt| -> Vec<ActionName> {
            self.jobs
                .of(attempt)
                .filter(|action| action.row.verdict.is_none())
                .map(|action| action.row.name.clone())
                .collect()
        };
        let waiting = self.jobs.attempts().filter(|(_, _, attempt)| attempt.waits_for_a_word());
        let attempts = waiting.map(|(job, number, attempt)| UnvouchedView {
            job: job.clone(),
            attempt: number,
            hosts: attempt.layout.hosts_of(&attempt.in_doubt()),
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

    /// Returns the note about a recovery.
    pub(in crate::controller) fn recovery_note(&self) -> Option<String> {
        if let Some(row) = self.recovery.row.as_ref().filter(|row| row.ended_ms.is_none()) {
            let jobs = self.jobs.attempts().filter(|(_, _, attempt)| attempt.waits_for_a_word()).count();
            let orphans = self.orphans().count();
            return Some(format!(
                "in recovery: {}; attempts that wait for a word: {jobs}, unknown tasks on nodes: {orphans}: perilog controller recover",
                row.why
            ));
        }
        if let Some((host, _, orphan)) = self.orphans().next() {
            let all = self.recovery.orphan_hosts.len();
            let more = if all > 1 { format!(" and {} other hosts", all - 1) } else { String::new() };
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
