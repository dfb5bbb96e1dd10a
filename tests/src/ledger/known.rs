//! Controller's view of a job (`perilog --json show`), task by task.

use std::collections::BTreeMap;

use perilog_core::controller::view::{ActionView, AttemptView, JobView};
use perilog_core::task::Ended;
use perilog_core::{ExitStatus, Failure, IdSet, Outcome};

use super::{Known, NOWHERE};

/// Returns one [`Known`] for each action and rank of the job's attempts.
pub fn known(job: &JobView) -> Vec<Known> {
    let actions = job.attempts.iter().flat_map(|attempt| attempt.actions.iter().map(move |action| (attempt, action)));
    actions.flat_map(|(attempt, action)| tasks(job, attempt, action)).collect()
}

fn tasks(job: &JobView, attempt: &AttemptView, action: &ActionView) -> Vec<Known> {
    let task = |rank: u32, outcome: &str| Known {
        job: job.job.to_string(),
        attempt: attempt.attempt.to_string(),
        action: action.name.to_string(),
        rank,
        outcome: outcome.to_owned(),
        code: None,
        scripts: BTreeMap::new(),
    };
    // A task that ended `ok` and has details is also among the ended tasks.
    let reported = |rank: u32| action.ended.iter().any(|row| row.ranks.contains(rank) && row.ended.outcome.is_ok());
    let mut tasks: Vec<Known> = action.ok.iter().filter(|rank| !reported(*rank)).map(|rank| task(rank, "ok")).collect();
    for row in &action.open {
        tasks.extend(row.ranks.iter().map(|rank| task(rank, &row.state)));
    }
    for row in &action.ended {
        let outcome = &row.ended.outcome;
        let known = |rank| Known { code: code(outcome), scripts: scripts(&row.ended), ..task(rank, outcome.as_str()) };
        tasks.extend(row.ranks.iter().map(known));
    }
    // Jobs of tests end in few ways.
    assert!(action.more.is_none(), "the view leaves out ends: {:?}", action.more);
    // Ranks of the action that the controller lost. Without this step, neither side would report a rank where no script
    // ran.
    let seen: IdSet = tasks.iter().map(|task| task.rank).collect();
    tasks.extend(action.ranks.difference(&seen).iter().map(|rank| task(rank, NOWHERE)));
    tasks
}

fn code(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Failed { why: Failure::Exit(code) } => Some(i32::from(*code)),
        _ => None,
    }
}

/// Returns the exit code of each script of an ended task; `None` for a script that a signal killed. A script that ran
/// again has the code of its last run. Leaves out a script whose end is unknown because the runner was killed.
fn scripts(ended: &Ended) -> BTreeMap<String, Option<i32>> {
    let code = |status: ExitStatus| match status {
        ExitStatus::Exit(code) => Some(i32::from(code)),
        // A killed script wrote no end.
        ExitStatus::Signal(_) => None,
    };
    ended.steps.iter().filter_map(|step| Some((step.script.clone(), code(step.status?)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_task_of_a_job_is_listed() {
        let step = json!({
            "script": "10-a", "digest": "", "attempt": 1, "began_ms": 0, "elapsed_ms": 1,
            "status": {"exit": 37}, "tolerable": false, "timed_out": false,
        });
        let row = json!({
            "job": "j", "attempt": "1", "action": "prolog", "ranks": "4", "hosts": "n4", "state": "running", "why": "",
            "age_ms": 1, "local": false,
        });
        let ended = |outcome: serde_json::Value, steps: serde_json::Value| -> serde_json::Value {
            json!({"outcome": outcome, "ended_ms": 1, "steps": steps})
        };
        let failed = ended(json!({"outcome": "failed", "why": {"exit": 37}}), json!([step]));
        let lost = ended(json!({"outcome": "lost", "why": "rebooted"}), json!([]));
        let view: JobView = serde_json::from_value(json!({
            "job": "j", "userid": null,
            "attempts": [{"attempt": "1", "open": true, "hosts": "n[0-5]", "actions": [{
                "id": "00000000-0000-0000-0000-000000000000", "name": "prolog", "ranks": "0-5", "began_ms": 1,
                "ended_ms": null,
                "timeout_ms": null, "verdict": null, "ok": "0-1", "open": [row],
                "ended": [{"ranks": "2", "hosts": "n2", "rank": 2, "host": "n2", "ended": failed, "late": []},
                          {"ranks": "3", "hosts": "n3", "rank": 3, "host": "n3", "ended": lost, "late": []}],
            }]}],
        }))
        .unwrap();
        let known = known(&view);
        let mut reported: Vec<_> = known.iter().map(|known| (known.rank, known.outcome.as_str(), known.code)).collect();
        reported.sort_unstable();
        let expected = [
            (0, "ok", None),
            (1, "ok", None),
            (2, "failed", Some(37)),
            (3, "lost", None),
            (4, "running", None),
            // Rank 5 is in none of the three lists.
            (5, NOWHERE, None),
        ];
        assert_eq!(reported, expected);
        let failed = known.iter().find(|known| known.rank == 2).unwrap();
        assert_eq!((failed.scripts.get("10-a"), failed.action.as_str()), (Some(&Some(37)), "prolog"));
    }
}
