//! Verdict: decides how an action ended, from the ends of its ranks and the failures that the job forgives. Also names
//! the failed ranks and the script to blame.

use std::collections::BTreeMap;

use serde_json::json;

use crate::controller::action::forgiveness::Forgiveness;
use crate::controller::interface::io::RankRow;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::ActionId;
use crate::idset::IdSet;
use crate::outcome::{ExitStatus, Outcome, Verdict};
use crate::output;
use crate::task::{Ended, Step};

impl Action {
    /// Returns `true` if every rank and resource has ended, no rank will join, and the action has no verdict yet.
    pub(crate) fn is_to_be_decided(&self) -> bool {
        let open = if defect!(VerdictTooEarly) {
            !self.row.waiting.is_empty() || !self.row.sent.is_empty()
        } else {
            self.is_open()
        };
        !open && !self.row.growing && self.row.verdict.is_none()
    }

    /// Decides the verdict; `None`: ranks or resources are open, ranks may still join, or the action has its verdict
    /// already.
    pub(crate) fn decide(&mut self, forgiveness: Forgiveness, wall_ms: u64) -> Option<Verdict> {
        if !self.is_to_be_decided() {
            return None;
        }
        let verdict = self.tally(&forgiveness);
        self.row.verdict = Some(verdict);
        self.row.ended_ms = Some(wall_ms);
        self.check_ms = None;
        self.changed = true;
        Some(verdict)
    }

    fn tally(&self, forgiveness: &Forgiveness) -> Verdict {
        let (forgiven, fatal): (Vec<_>, Vec<_>) = self
            .ended
            .iter()
            .filter(|(rank, row)| self.row.not_ok.contains(rank.0) && !row.ended.outcome.is_ok())
            .filter(|(rank, _)| !forgiveness.shed.contains(rank.0))
            .map(|(_, row)| &row.ended)
            .chain(self.row.external.iter().flat_map(|external| external.bad()).map(|(_, ended)| ended))
            .partition(|ended| forgiveness.forgives(&ended.outcome));
        if fatal.is_empty() && forgiveness.enough && forgiveness.covers(&forgiven) {
            return Verdict::Ok;
        }
        Verdict::of(forgiven.into_iter().chain(fatal).map(|ended| &ended.outcome))
    }

    /// Returns the ranks that failed, even if the job's tolerance forgave the failure.
    pub(crate) fn bad(&self) -> IdSet {
        self.ended
            .iter()
            .filter(|(rank, row)| self.row.not_ok.contains(rank.0) && !row.ended.outcome.is_ok())
            .map(|(rank, _)| rank.0)
            .collect()
    }

    /// Returns the ranks that were cancelled before a Start was sent.
    pub(crate) fn never_begun(&self) -> IdSet {
        let mut ranks = IdSet::new();
        let unwanted = |row: &RankRow| row.ended.outcome == Outcome::Cancelled { status: None };
        let found = self.ended.iter().filter(|(rank, row)| self.row.not_ok.contains(rank.0) && unwanted(row));
        ranks.extend(found.map(|(rank, _)| rank.0));
        self.row.boots.values().for_each(|sent| ranks.subtract(sent));
        ranks
    }

    /// Returns the ranks that the job handed over before a task began on them, while it keeps other ranks (`hold`). The
    /// job goes on without them, so they are no failures. Returns no rank if the action began on none at all: such an
    /// action has failed.
    pub(crate) fn shed(&self, hold: &IdSet) -> IdSet {
        let shed = self.never_begun().difference(hold);
        if hold.is_empty() || shed == self.row.ranks { IdSet::new() } else { shed }
    }

    /// Returns the ranks that ended with another outcome than `ok`. Key: the word of the outcome, such as `lost`.
    pub(crate) fn by_outcome(&self) -> BTreeMap<&'static str, IdSet> {
        let mut by = BTreeMap::<_, IdSet>::new();
        for (rank, row) in self.ended.iter().filter(|(rank, _)| self.row.not_ok.contains(rank.0)) {
            by.entry(row.ended.outcome.as_str()).or_default().insert(rank.0);
        }
        by
    }

    /// Returns the largest exit status among the outcomes of the ranks; 0 if none of them has an exit status.
    pub(crate) fn status(&self) -> u8 {
        self.ended.values().filter_map(|row| row.ended.outcome.status()).max().unwrap_or(0)
    }
}

/// Returns the script to blame for an outcome: the first script that ended with the outcome's status. For `tolerable`,
/// the first failed script whose failure a job may tolerate. `None`: no script is to blame.
pub fn blamed(ended: &Ended) -> Option<&Step> {
    if ended.outcome == Outcome::Tolerable {
        return ended
            .steps
            .iter()
            .find(|step| step.tolerable && step.status.is_some_and(|status| !status.is_success()));
    }
    let status = ended.outcome.status().filter(|status| *status != 0);
    ended.steps.iter().find(|step| status.is_some() && step.status.map(ExitStatus::shell) == status)
}

/// Returns the last line ([`output::last_line`]) that the script to blame wrote. Without a script to blame, returns the
/// last line of the last failed script whose output was kept. `None`: no such line was kept.
pub fn last_line(ended: &Ended) -> Option<String> {
    let tail = match blamed(ended) {
        Some(step) => ended.tails.iter().find(|tail| tail.script == step.script)?,
        None => ended.tails.last()?,
    };
    output::last_line(&tail.text)
}

impl Jobs {
    /// Decides the verdict of an action if every rank has ended, logs it, and normally sends the resource manager a
    /// notice. An action of a suspended attempt gets no verdict.
    pub(crate) fn decide_verdict(&mut self, id: ActionId, cx: &mut Context) {
        let may = !self.is_suspended_action(id);
        let may = if defect!(SuspendedJudged) { true } else { may };
        if !(may && self.action(id).is_some_and(Action::is_to_be_decided)) {
            return;
        }
        let forgiveness = self.forgiveness(id, cx);
        let Some(verdict) = self.action_mut(id).and_then(|action| action.decide(forgiveness, cx.now.wall_ms)) else {
            return;
        };
        let Some(action) = self.action(id) else { return };
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        cx.changes.push_back(Change::Decided(id));
        let (ok, by_outcome, status) = (action.row.ok.clone(), action.by_outcome(), action.status());
        let resources = action.bad_resources();
        let bad = action.row.ranks.difference(&action.row.ok);
        let bad = self.layout(id).filter(|_| !bad.is_empty()).map(|layout| layout.hosts_of(&bad));
        let mut context = json!({"action": name, "attempt": attempt, "verdict": verdict, "status": status, "ok": ok,
            "by_outcome": by_outcome});
        if let (Some(resources), Some(context)) = (resources, context.as_object_mut()) {
            context.insert("resources".to_owned(), resources);
        }
        if let (Some(hosts), Some(context)) = (bad, context.as_object_mut()) {
            context.insert("hosts".to_owned(), json!(hosts));
        }
        self.event(&job, "verdict", context.clone(), cx);
        self.notify_manager(&job, attempt, "verdict", context, cx);
        if let Some(entry) = self.attempt_mut(&job, attempt) {
            entry.touched_ms = cx.now.wall_ms;
            cx.attempt_changed(&job, attempt);
        }
        if verdict == Verdict::Ok {
            self.forgive(id, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use crate::task::Tail;

    #[test]
    fn the_last_line_is_of_the_script_that_the_outcome_is_about() {
        let step = |script: &str, status| Step {
            script: script.to_owned(),
            digest: String::new(),
            attempt: 1,
            began_ms: 0,
            elapsed_ms: 0,
            status: Some(status),
            tolerable: false,
            timed_out: false,
        };
        let tail = |script: &str, text: &str| Tail { script: script.to_owned(), text: text.to_owned() };
        let ended = |why: Failure, first: ExitStatus, tails: &[Tail]| Ended {
            steps: vec![step("10-bad", first), step("20-after", ExitStatus::Exit(3))],
            tails: tails.to_vec(),
            ..Ended::bare(Outcome::Failed { why }, 0)
        };
        let tails = [tail("10-bad", "trying\nno such device\n\n"), tail("20-after", "after\n")];
        for (why, first, tails, expect) in [
            (Failure::Exit(7), ExitStatus::Exit(7), &tails[..], Some("no such device")),
            (Failure::Exit(3), ExitStatus::Exit(1), &tails, Some("after")),
            (Failure::Signal(9), ExitStatus::Signal(9), &tails, Some("no such device")),
            (Failure::Oom, ExitStatus::Signal(9), &tails, Some("after")),
            // The script to blame printed nothing: the output of another script does not explain the outcome.
            (Failure::Exit(7), ExitStatus::Exit(7), &tails[1..], None),
        ] {
            let ended = ended(why, first, tails);
            assert_eq!(last_line(&ended).as_deref(), expect, "{:?}", ended.outcome);
        }
        let mut soft = ended(Failure::Exit(7), ExitStatus::Exit(7), &tails);
        soft.outcome = Outcome::Tolerable;
        soft.steps[1].tolerable = true;
        assert_eq!(blamed(&soft).map(|step| &*step.script), Some("20-after"));
    }
}
