//! What is shown of holds: what a job keeps for itself, and what its actions are done with and have not let go of.
//!
//! A job that goes on holds what it has, and no operator has to look at that unasked. What nobody may come for is shown with all that waits: of a
//! store that was rebuilt, and what is no rank where no rank is left.

use crate::controller::attempt::JobAttempt;
use crate::controller::io::Now;
use crate::controller::machine::Machine;
use crate::controller::view::PsRow;
use crate::ids::{ActionName, Attempt, JobId};
use crate::job::Part;

impl Machine {
    /// What is held; of jobs only what nobody may come for, but for `all`.
    pub(super) fn held(&self, all: bool, now: Now) -> Vec<PsRow> {
        let attempts =
            self.jobs.iter().flat_map(|(job, entry)| entry.attempts.iter().map(move |(number, of)| (job, *number, of)));
        attempts.flat_map(|(job, number, attempt)| self.held_of(job, number, attempt, all, now)).collect()
    }

    pub(super) fn held_of(
        &self,
        job: &JobId,
        number: Attempt,
        attempt: &JobAttempt,
        all: bool,
        now: Now,
    ) -> Vec<PsRow> {
        let mut rows = Vec::new();
        if attempt.complete {
            return rows;
        }
        let row = |action: ActionName, part: Part, why: String, since_ms: u64| PsRow {
            job: Some(job.clone()),
            attempt: number,
            action,
            hosts: attempt.layout.hosts_of(&part.ranks),
            ranks: part.ranks,
            state: "held".to_owned(),
            why,
            age_ms: now.wall_ms.saturating_sub(since_ms),
            local: false,
            resources: part.resources,
            lease_left_ms: None,
        };
        if let Some(why) = self.held_by_job(job, number, attempt, all) {
            let name = ActionName::new("job").expect("a word of small letters is an action");
            rows.push(row(name, attempt.hold.clone(), why, attempt.touched_ms));
        }
        for action in attempt.actions.iter().filter_map(|id| self.actions.get(id)).filter(|_| all) {
            let mut part = action.row.held.clone();
            part.subtract(&action.open_part());
            if !part.is_empty() {
                let why = "done, and let go of with others of it, as its release policy says".to_owned();
                rows.push(row(action.row.name.clone(), part, why, action.row.began_ms));
            }
        }
        rows
    }

    fn held_by_job(&self, job: &JobId, number: Attempt, attempt: &JobAttempt, all: bool) -> Option<String> {
        let finish = format!("perilog job finish {job}{}", self.attempt_option(job, number));
        match () {
            () if attempt.hold.is_empty() => None,
            () if attempt.hold.ranks.is_empty() => Some(format!("the job has no ranks any more: {finish}")),
            () if !all => None,
            () if attempt.added => Some(format!("the job goes on until: {finish}")),
            () => Some(format!("something was run for it, and nobody has added it as a job; until: {finish}")),
        }
    }
}
