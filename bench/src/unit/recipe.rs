//! Properties of a task's unit as an agent with a plain configuration sets them. The bench gives the same properties to
//! the units that it starts without an agent.

use perilog_core::ids;
use perilog_core::task::Start;
use zbus::Variant;

/// Returns the properties of a unit that executes `argv`.
pub(crate) fn recipe(start: &Start, argv: Vec<String>) -> Vec<(&'static str, Variant<'static>)> {
    let program = argv.first().cloned().unwrap_or_default();
    let fields: Vec<Vec<u8>> = [
        format!("PERILOG_JOB={}", start.job),
        format!("PERILOG_ACTION={}", start.action),
        format!("PERILOG_RANK={}", start.task.rank),
        format!("PERILOG_ATTEMPT={}", start.attempt),
        format!("PERILOG_ACTION_ID={}", start.task.action),
    ]
    .map(String::into_bytes)
    .into();
    let describe =
        format!("{} of job {}, rank {} (attempt {})", start.action, start.job, start.task.rank, start.attempt);
    vec![
        ("Description", describe.into()),
        ("Type", "oneshot".into()),
        ("RemainAfterExit", true.into()),
        ("CollectMode", "inactive".into()),
        ("ExecStart", vec![(program, argv, false)].into()),
        ("Slice", "perilog.slice".into()),
        ("NotifyAccess", "main".into()),
        ("TimeoutStartUSec", u64::MAX.into()),
        ("TimeoutStopUSec", u64::MAX.into()),
        ("KillMode", "control-group".into()),
        ("SyslogIdentifier", format!("perilog-{}", start.action).into()),
        ("LogExtraFields", fields.into()),
        ("OOMScoreAdjust", 0i32.into()),
        ("KeyringMode", "inherit".into()),
        ("LogRateLimitIntervalUSec", 0u64.into()),
    ]
}

/// Returns the name of the task's unit.
pub(crate) fn unit(start: &Start) -> String {
    ids::unit_of(&ids::stem(&start.action, &start.job, start.task))
}

#[cfg(test)]
mod tests {
    use super::super::link::start;
    use super::*;

    /// Properties of a task's unit that an agent with a plain configuration does not set.
    const UNSET: [&str; 3] = ["MemoryMax", "TasksMax", "CPUWeight"];

    #[test]
    fn properties_are_the_agents() {
        let golden = include_str!("../../../agent/src/systemd/recipe.golden");
        let names: Vec<&str> = golden.lines().filter_map(|line| line.split_once(": ").map(|(name, _)| name)).collect();
        let expected: Vec<&str> = names.into_iter().filter(|name| !UNSET.contains(name)).collect();
        let boot = perilog_core::BootId::new("b-1").unwrap();
        let ours: Vec<&str> =
            recipe(&start(1, &boot), vec!["/bin/true".into()]).iter().map(|(name, _)| *name).collect();
        assert_eq!(ours, expected);
    }
}
