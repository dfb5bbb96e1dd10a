//! The host's own tasks of one job and rank, for callers whose resource manager does not number attempts.

use perilog_core::ids::{JobId, Rank};
use perilog_core::task::Tombstone;

use super::{Spool, SpoolError, names, read};
use crate::local::Known;

impl Spool {
    /// Reads tasks first, then tombstones: a task buried meanwhile is seen twice, never missed.
    pub fn own(&self, job: &JobId, rank: Rank) -> Result<Vec<Known>, SpoolError> {
        // Filters as `ids::stem` formats names; an action or a job may contain the same text, so the file's content
        // decides.
        let part = format!("-{job}-{rank}-");
        let mut known = Vec::new();
        for stem in self.stems()?.into_iter().filter(|stem| stem.contains(&part)) {
            let Some(intent) = self.intent(&stem).filter(|intent| intent.local) else { continue };
            let start = intent.start;
            if start.job == *job && start.task.rank == rank {
                known.push(Known { action: start.action, attempt: start.attempt, over: false });
            }
        }
        let tombstones = self.root.join("tombstones");
        for name in names(&tombstones)?.into_iter().filter(|name| name.ends_with(".json") && name.contains(&part)) {
            let Some(stone) = read::json::<Tombstone>(&tombstones.join(name)) else { continue };
            if stone.local && stone.job == *job && stone.task.rank == rank {
                known.push(Known { action: stone.action, attempt: stone.attempt, over: true });
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
                spool.bury(&stem, &tombstone).unwrap();
            }
        }
        let known = |action: &str, over: bool| Known {
            action: ActionName::new(action).unwrap(),
            attempt: Attempt::FIRST,
            over,
        };
        let own = spool.own(&JobId::new("5").unwrap(), Rank(0)).unwrap();
        assert_eq!(own, [known("epilog", false), known("prolog", true)]);
        assert_eq!(spool.own(&JobId::new("6").unwrap(), Rank(0)).unwrap(), []);
    }
}
