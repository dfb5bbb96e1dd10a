//! Ids of a task in its unit's LogExtraFields. systemd adds them to each journal line of the unit. By these ids the
//! agent also finds the task of a unit whose task directory is gone.

use perilog_core::agent::io::UnitIds;
use perilog_core::ids::{self, ActionId, ActionName, Attempt, JobId, Rank, TaskId};
use perilog_core::task::Start;

/// Returns the ids of a task as `NAME=value` fields, in the form of LogExtraFields (systemd.exec(5)).
pub(super) fn fields(start: &Start) -> Vec<Vec<u8>> {
    [
        ("PERILOG_JOB", start.job.to_string()),
        ("PERILOG_ACTION", start.action.to_string()),
        ("PERILOG_RANK", start.task.rank.to_string()),
        ("PERILOG_ATTEMPT", start.attempt.to_string()),
        ("PERILOG_ACTION_ID", start.task.action.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| format!("{name}={value}").into_bytes())
    .collect()
}

/// Returns the ids, if all five are present, well formed, and form the unit's stem. A unit that only imitates the name
/// belongs to no task.
pub(super) fn read_back(stem: &str, fields: &[Vec<u8>]) -> Option<UnitIds> {
    let get = |name: &str| {
        fields.iter().find_map(|field| std::str::from_utf8(field).ok()?.strip_prefix(name)?.strip_prefix('='))
    };
    let action = ActionName::new(get("PERILOG_ACTION")?).ok()?;
    let job = JobId::new(get("PERILOG_JOB")?).ok()?;
    let rank = Rank(get("PERILOG_RANK")?.parse().ok()?);
    let attempt: Attempt = get("PERILOG_ATTEMPT")?.parse().ok()?;
    let task = TaskId { action: ActionId(get("PERILOG_ACTION_ID")?.parse().ok()?), rank };
    (ids::stem(&action, &job, task) == stem).then_some(UnitIds { task, job, attempt, action })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn ids_come_back_and_imitations_do_not() {
        let start = testing::intent().start;
        let stem = ids::stem(&start.action, &start.job, start.task);
        let ids = read_back(&stem, &fields(&start)).unwrap();
        assert_eq!(
            (ids.task, &ids.job, ids.attempt, &ids.action),
            (start.task, &start.job, start.attempt, &start.action)
        );
        assert_eq!(read_back("perilog-task-prolog-j1-0-000000000000", &fields(&start)), None);
        for missing in 0..5 {
            let mut some = fields(&start);
            some.remove(missing);
            assert_eq!(read_back(&stem, &some), None);
        }
    }
}
