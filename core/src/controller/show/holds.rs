//! View of holds: the ranks and named resources that a job holds, and the ended ones that its actions still hold.
//!
//! Every running job holds its ranks, so `perilog ps` shows these holds only with `--held`. A job that holds named
//! resources and no ranks is always shown, because its resource manager may have forgotten the job.

use crate::controller::facts::Facts;
use crate::controller::interface::view::PsRow;
use crate::controller::recovery::suspended;
use crate::controller::state::Action;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::layout::Layout;
use crate::ids::{ActionName, Attempt, JobId, Rank};
use crate::idset::IdSet;
use crate::job::Part;
use crate::task::NO_SCRIPT;

impl Facts<'_> {
    /// Returns a row of `perilog ps` for each hold. Without `all`, only jobs that hold named resources and no rank get
    /// a row.
    pub(crate) fn held(&self, all: bool) -> Vec<PsRow> {
        self.jobs
            .table
            .live_attempts()
            .flat_map(|(job, number, attempt)| self.held_of(job, number, attempt, all))
            .collect()
    }

    pub(crate) fn held_of(&self, job: &JobId, number: Attempt, attempt: &JobAttempt, all: bool) -> Vec<PsRow> {
        let mut rows = Vec::new();
        if attempt.complete {
            return rows;
        }
        let suspended = attempt.suspended.then(|| suspended(job, number, attempt).to_string());
        let row = |action: ActionName, part: Part, why: String, since_ms: u64| {
            let (hosts, age_ms) = (attempt.layout.hosts_of(&part.ranks), self.cx.now.wall_ms.saturating_sub(since_ms));
            let Part { ranks, resources } = part;
            PsRow { hosts, ranks, resources, ..PsRow::new(Some(job.clone()), number, action, "held", why, age_ms) }
        };
        if let Some(why) = self.held_by_job(job, number, attempt, all) {
            let name = ActionName::new("job").expect("lower-case letters make an action's name");
            rows.push(row(name, attempt.hold.clone(), suspended.clone().unwrap_or(why), attempt.touched_ms));
        }
        for action in self.jobs.of(attempt).filter(|_| all) {
            let mut part = action.row.held.clone();
            part.subtract(&action.open_part());
            if !part.is_empty() {
                let why = suspended.clone().unwrap_or_else(|| self.why_held(action, &part, &attempt.layout));
                rows.push(row(action.row.name.clone(), part, why, action.row.began_ms));
            }
        }
        rows
    }

    /// Returns the reason, by the action's release policy, why the action still holds the part `done`, which has ended.
    fn why_held(&self, action: &Action, done: &Part, layout: &Layout) -> String {
        let row = &action.row;
        let ran_nothing =
            |ranks: &IdSet| row.remarks.iter().any(|(text, of)| text.starts_with(NO_SCRIPT) && ranks.is_subset(of));
        let nothing = if !done.ranks.is_empty() && ran_nothing(&done.ranks) { " (no script ran)" } else { "" };
        let policy = format!("release in [action.{}]", row.name);
        if action.batches.at_ms.is_some() {
            return format!("done here{nothing}; released with the next batch ({policy})");
        }
        let open = action.open_part();
        let others: Vec<String> = std::iter::once(layout.hosts_of(&open.ranks).to_string())
            .filter(|hosts| !hosts.is_empty())
            .chain(open.resources.iter().map(ToString::to_string))
            .collect();
        let still = open.ranks.first().map(|rank| self.state_of_rank(action, Rank(rank)));
        let still = still.map(|(state, why, _)| format!(" ({state}: {why})")).unwrap_or_default();
        format!("done here{nothing}; released together with {}{still}, as set by {policy}", others.join(","))
    }

    fn held_by_job(&self, job: &JobId, number: Attempt, attempt: &JobAttempt, all: bool) -> Option<String> {
        let finish = format!("perilog job finish {job}{}", self.jobs.attempt_option(job, number));
        match () {
            () if attempt.hold.is_empty() => None,
            () if attempt.hold.ranks.is_empty() => {
                Some(format!("the job keeps its resources until it is finished (manually: {finish})"))
            }
            () if !all => None,
            () if attempt.added => Some(format!("the job keeps its ranks until it is finished (manually: {finish})")),
            () => Some(format!("perilog run made this job; to release it: {finish}")),
        }
    }
}
