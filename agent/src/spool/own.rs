//! Finds the tasks of one job on this host. `Exec` numbers attempts by the tasks that earlier calls of `Exec` began.
//! `Await` waits for the tasks that the controller started.

use perilog_core::ids::{JobId, Rank};
use perilog_core::task::Tombstone;

use super::{Spool, SpoolError, names, read};
use crate::local::{JobTask, LocalTask};

impl Spool {
    /// Returns the tasks of a job and rank that callers of `Exec` began on this host, ended tasks with a tombstone
    /// included.
    pub fn own(&self, job: &JobId, rank: Rank) -> Result<Vec<LocalTask>, SpoolError> {
        let known = |of: JobTask| LocalTask { action: of.action, attempt: of.attempt, over: of.outcome.is_some() };
        let own = self.tasks_of(job, |local, of| local && of == rank)?;
        Ok(own.into_iter().map(known).collect())
    }

    /// Returns the tasks of a job that the controller started on this host, ended tasks with a tombstone included.
    pub fn controllers(&self, job: &JobId) -> Result<Vec<JobTask>, SpoolError> {
        self.tasks_of(job, |local, _| !local)
    }

    /// Returns the tasks and tombstones of a job for which `is_meant(local, rank)` is `true`. `local`: a call of `Exec`
    /// began the task, not the controller. Reads tasks first, then tombstones: a task whose tombstone the agent writes
    /// meanwhile may appear twice, but is never missing.
    fn tasks_of(&self, job: &JobId, is_meant: impl Fn(bool, Rank) -> bool) -> Result<Vec<JobTask>, SpoolError> {
        // Filters by the format of `ids::stem`. An action or a job may contain the same text, so the file's content
        // decides.
        let part = format!("-{job}-");
        let mut known = Vec::new();
        for stem in self.stems()?.into_iter().filter(|stem| stem.contains(&part)) {
            let Some(intent) = self.intent(&stem) else { continue };
            let start = intent.start;
            if start.job == *job && is_meant(intent.local, start.task.rank) {
                known.push(JobTask { action: start.action, attempt: start.attempt, stem, outcome: None });
            }
        }
        let tombstones = self.root.join("tombstones");
        let stems = names(&tombstones)?.into_iter().filter(|name| name.contains(&part));
        for stem in stems.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())) {
            let Some(tombstone) = read::json::<Tombstone>(&self.tombstone(&stem)) else { continue };
            if tombstone.job == *job && is_meant(tombstone.local, tombstone.task.rank) {
                known.push(JobTask {
                    action: tombstone.action,
                    attempt: tombstone.attempt,
                    stem,
                    outcome: Some(tombstone.outcome),
                });
            }
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use perilog_core::ids::{self, ActionId, ActionName, Attempt, ClusterId, TaskId};
    use perilog_core::outcome::Outcome;
    use perilog_core::task::Intent;

    use super::*;
    use crate::testing;

    fn intent(job: &str, action: &str, attempt: u64, rank: u32, local: bool) -> (String, Intent) {
        let mut intent = testing::intent();
        let start = &mut intent.start;
        (start.job, start.action) = (JobId::new(job).unwrap(), ActionName::new(action).unwrap());
        start.attempt = Attempt::from_number(attempt);
        let action = ActionId::of(ClusterId::LOCAL, &start.job, start.attempt, &start.action);
        start.task = TaskId { action, rank: Rank(rank) };
        intent.local = local;
        (ids::stem(&intent.start.action, &intent.start.job, intent.start.task), intent)
    }

    #[test]
    fn only_the_hosts_own_of_this_job_and_rank() {
        let dir = tempfile::tempdir().unwrap();
        let (spool, _lock) = Spool::open(&dir.path().join("perilog")).unwrap();
        for (job, action, attempt, rank, local) in [
            ("5", "prolog", 0, 0, true),
            ("5", "epilog", 0, 0, true),
            ("5", "epilog", 1, 1, true),
            ("5", "epilog", 2, 0, false),
            ("15", "epilog", 3, 0, true),
            ("5-0", "epilog", 4, 0, true),
        ] {
            let (stem, intent) = intent(job, action, attempt, rank, local);
            spool.write_intent(&stem, &intent).unwrap();
            if action == "prolog" {
                let start = intent.start;
                let tombstone = Tombstone {
                    task: start.task,
                    job: start.job,
                    attempt: start.attempt,
                    action: start.action,
                    outcome: Outcome::Ok,
                    not_after_boottime_ms: 0,
                    local,
                    boot: None,
                    expects_boot: false,
                    limit_ms: None,
                    after: false,
                    commit: None,
                    instance: None,
                };
                spool.write_tombstone(&stem, &tombstone).unwrap();
            }
        }
        let known = |action: &str, over: bool| LocalTask {
            action: ActionName::new(action).unwrap(),
            attempt: Attempt::FIRST,
            over,
        };
        let own = spool.own(&JobId::new("5").unwrap(), Rank(0)).unwrap();
        assert_eq!(own, [known("epilog", false), known("prolog", true)]);
        assert_eq!(spool.own(&JobId::new("6").unwrap(), Rank(0)).unwrap(), []);
        let controllers = spool.controllers(&JobId::new("5").unwrap()).unwrap();
        let found: Vec<_> =
            controllers.iter().map(|of| (of.action.as_str(), of.attempt, of.outcome.is_some())).collect();
        assert_eq!(found, [("epilog", Attempt::from_number(2), false)]);
    }
}
