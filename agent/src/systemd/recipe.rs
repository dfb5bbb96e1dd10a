//! The properties of a task's unit. [`recipe`] has one line for each property; a comment gives the reason of the value,
//! where the value alone does not show it.

use std::path::Path;

use perilog_core::defect;
use perilog_core::ids;
use perilog_core::task::{Intent, Lingering, OnTimeout};
use zbus::Variant;

use super::fields::fields;
use super::probe::Probed;

/// Time that a stopped unit (shutdown, `systemctl stop`) has before PID 1 kills it, if the plan allows killing.
const STOP_USEC: u64 = 90 * 1_000_000;
/// The value `infinity` of systemd's limits.
const INFINITY: u64 = u64::MAX;
/// The slice of all tasks of a node, so that a site can limit them together.
pub(crate) const SLICE: &str = "perilog.slice";

/// Returns the properties for StartTransientUnit. `runner` and `run_dir` become ExecStart, with `since_boot_ms`: the
/// CLOCK_BOOTTIME (ms) from which the task's limit counts.
pub fn recipe(
    intent: &Intent,
    probed: &Probed,
    runner: &Path,
    run_dir: &Path,
    since_boot_ms: u64,
) -> Vec<(&'static str, Variant<'static>)> {
    let (start, plan) = (&intent.start, &intent.plan);
    let stem = ids::stem(&start.action, &start.job, start.task);
    let optional =
        |name: &'static str, value: Option<Variant<'static>>| value.filter(|_| probed.has(name)).map(|v| (name, v));
    let runner = runner.to_string_lossy().into_owned();
    // ExecStart instead of ExecStartEx, which systemd 239 lacks: a stem has no characters that systemd expands. The
    // unit has no Environment, because every user can read it.
    let mut argv = vec![runner.clone(), "--run-dir".to_owned(), run_dir.to_string_lossy().into_owned()];
    argv.extend(["--since".to_owned(), since_boot_ms.to_string(), stem]);
    let stop = match plan.on_timeout {
        // With a finite timeout, PID 1 would kill a cleanup that traps TERM, and the exit status would be lost.
        OnTimeout::Drain => INFINITY,
        OnTimeout::Kill => STOP_USEC,
    };
    let kill_mode = match plan.lingering {
        Lingering::Keep => "process",
        Lingering::Hold | Lingering::Kill => "control-group",
    };
    // With `all`, any process that a script leaves behind can forge MAINPID= and turn a failure into success.
    let notifiers = if defect!(AnybodyNotifies) { "all" } else { "main" };
    let describe =
        format!("{} of job {}, rank {} (attempt {})", start.action, start.job, start.task.rank, start.attempt);
    let mut unit: Vec<(&'static str, Variant<'static>)> = vec![
        ("Description", describe.into()),
        // Only the type oneshot counts death by TERM as a failure and sends JobRemoved at the end.
        ("Type", "oneshot".into()),
        // Together these keep every status loaded until the agent unloads it.
        ("RemainAfterExit", true.into()),
        ("CollectMode", "inactive".into()),
        ("ExecStart", vec![(runner, argv, false)].into()),
        ("Slice", SLICE.into()),
        ("NotifyAccess", notifiers.into()),
        // The runner enforces the limits.
        ("TimeoutStartUSec", INFINITY.into()),
        ("TimeoutStopUSec", stop.into()),
        ("KillMode", kill_mode.into()),
        ("SyslogIdentifier", format!("perilog-{}", start.action).into()),
        // Ids of the task: the agent does not recognise a unit without ids.
        ("LogExtraFields", fields(start).into()),
    ];
    unit.extend(
        [
            optional("OOMScoreAdjust", Some(plan.oom_score_adjust.into())),
            optional("KeyringMode", Some("inherit".into())),
            optional("LogRateLimitIntervalUSec", Some(0u64.into())),
            optional("MemoryMax", plan.memory_max.map(Into::into)),
            optional("TasksMax", plan.tasks_max.map(Into::into)),
            optional("CPUWeight", plan.cpu_weight.map(Into::into)),
        ]
        .into_iter()
        .flatten(),
    );
    unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn shown(intent: &Intent, probed: &Probed) -> String {
        let unit =
            recipe(intent, probed, Path::new("/usr/libexec/perilog/perilog-runner"), Path::new("/run/perilog"), 7);
        unit.iter().map(|(name, value)| format!("{name}: {} = {}\n", value.value_signature(), show(value))).collect()
    }

    /// Shows a D-Bus value for comparison: arrays of bytes as text, all other values as zbus prints them.
    fn show(value: &Variant<'_>) -> String {
        match Vec::<Vec<u8>>::try_from(value.try_clone().unwrap()) {
            Ok(bytes) => format!("{:?}", bytes.iter().map(|b| String::from_utf8_lossy(b)).collect::<Vec<_>>()),
            Err(_) => value.to_string(),
        }
    }

    #[test]
    fn golden() {
        let mut intent = testing::intent();
        assert_eq!(shown(&intent, &Probed::default()), include_str!("recipe.golden"));
        intent.plan.on_timeout = OnTimeout::Kill;
        intent.plan.lingering = Lingering::Keep;
        intent.plan.memory_max = None;
        let text = shown(&intent, &Probed::of([]));
        assert!(
            text.contains("TimeoutStopUSec: t = uint64 90000000\n") && text.contains("KillMode: s = \"process\"\n"),
            "{text}"
        );
        for absent in ["MemoryMax", "TasksMax", "KeyringMode", "LogRateLimitIntervalUSec"] {
            assert!(!text.contains(absent), "{absent}");
        }
    }
}
