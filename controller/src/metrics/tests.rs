use perilog_core::controller::Effect;
use perilog_core::controller::view::StatusView;
use perilog_core::task::Step;
use perilog_core::{ActionId, Event, ExitStatus, JobId, Rank, TaskId};
use serde_json::json;

use super::figures::render;
use super::*;
use crate::store::Pending;

fn step(script: &str, elapsed_ms: u64, code: u8) -> Step {
    Step {
        script: script.to_owned(),
        digest: "d".to_owned(),
        attempt: 1,
        began_ms: 0,
        elapsed_ms,
        status: Some(ExitStatus::Exit(code)),
        tolerable: false,
        timed_out: false,
    }
}

fn ran(action: &str, steps: Vec<Step>) -> Ran {
    let task = TaskId { action: ActionId(uuid::Uuid::from_u128(1)), rank: Rank(0) };
    let elapsed_ms = steps.iter().map(|step| step.elapsed_ms).sum();
    Ran {
        task,
        host: None,
        action: Some(action.into()),
        outcome: "ok",
        began_ms: 0,
        elapsed_ms,
        steps,
        skipped: 0,
        empty: false,
    }
}

fn finish(action: &str, outcome: &str, ranks: &str) -> Effect {
    let context = json!({"action": action, "outcome": outcome, "ranks": ranks});
    let event = Event::at_millis(1, "finish", context.as_object().cloned());
    Effect::Publish { job: JobId::new("f1").unwrap(), sequence: 1, event }
}

fn counts(metrics: &Metrics, status: Option<&StatusView>) -> String {
    render(&metrics.counts(), status, Some(Pending { oldest_open_ms: Some(500), ..Pending::default() }), 2_000).finish()
}

#[test]
fn what_happened_is_on_the_page() {
    let metrics = Metrics::default();
    let tries = vec![step("10-mount.sh", 20, 7), step("10-mount.sh", 400, 0), step("quo\"te\\", 5, 0)];
    let effects = [finish("prolog", "ok", "0-9"), finish("prolog", "ok", "20"), finish("prolog", "lost", "11-12")];
    let empty = Ran { skipped: 2, empty: true, ..ran("epilog", Vec::new()) };
    metrics.committed(Some(Duration::from_millis(3)), &[ran("prolog", tries), empty], &effects);
    metrics.hook(Kind::Drain, false);
    let page = counts(&metrics, None);
    for line in [
        "perilog_tasks_ended_total{action=\"prolog\",outcome=\"ok\"} 11",
        "perilog_tasks_ended_total{action=\"prolog\",outcome=\"lost\"} 2",
        "perilog_tasks_empty_total{action=\"prolog\"} 0",
        "perilog_tasks_empty_total{action=\"epilog\"} 1",
        "perilog_scripts_skipped_total{action=\"epilog\"} 2",
        "perilog_task_duration_seconds_bucket{action=\"prolog\",le=\"0.3\"} 0",
        "perilog_task_duration_seconds_bucket{action=\"prolog\",le=\"1\"} 1",
        "perilog_task_duration_seconds_sum{action=\"prolog\"} 0.425",
        "perilog_script_duration_seconds_bucket{action=\"prolog\",script=\"10-mount.sh\",le=\"0.03\"} 1",
        "perilog_script_duration_seconds_bucket{action=\"prolog\",script=\"10-mount.sh\",le=\"+Inf\"} 2",
        "perilog_script_duration_seconds_count{action=\"prolog\",script=\"quo\\\"te\\\\\"} 1",
        "perilog_script_failures_total{action=\"prolog\",script=\"10-mount.sh\"} 1",
        "perilog_commit_duration_seconds_bucket{le=\"0.0025\"} 0",
        "perilog_commit_duration_seconds_bucket{le=\"0.005\"} 1",
        "perilog_hook_runs_total{hook=\"drain\",result=\"failed\"} 1",
        "perilog_hook_runs_total{hook=\"release\",result=\"failed\"} 0",
        "perilog_controller_answers 0",
        "perilog_oldest_open_action_seconds 1.5",
    ] {
        assert!(page.lines().any(|seen| seen == line), "{line} is not in\n{page}");
    }
    // The page omits unknown figures.
    assert!(!page.contains("perilog_nodes{"));
}

fn event(name: &str, action: &str) -> Effect {
    let context = json!({"action": action, "ranks": "0"});
    let event = Event::at_millis(1, name, context.as_object().cloned());
    Effect::Publish { job: JobId::new("f1").unwrap(), sequence: 1, event }
}

/// Regression test: for the first overdue task of an action, the counter appeared with the value 1. Prometheus'
/// increase() does not see the step from no value to 1, so no alert fired.
#[test]
fn what_is_counted_of_an_action_is_there_before_it_happens() {
    let of = |page: &str, series: &str| page.lines().filter(|line| line.starts_with(series)).count();
    let metrics = Metrics::default();
    metrics.committed(None, &[], &[event("action-start", "prolog")]);
    // Actions that began before this process.
    metrics.open(["epilog"].into_iter());
    for action in ["prolog", "epilog"] {
        let page = counts(&metrics, None);
        assert!(page.contains(&format!("perilog_tasks_overdue_total{{action=\"{action}\"}} 0\n")), "{page}");
        let ended = format!("perilog_tasks_ended_total{{action=\"{action}\"");
        assert_eq!(of(&page, &ended), 8, "{page}");
        metrics.committed(None, &[], &[event("overdue", action), finish(action, "refused", "0")]);
        let page = counts(&metrics, None);
        assert!(page.contains(&format!("perilog_tasks_overdue_total{{action=\"{action}\"}} 1\n")), "{page}");
        assert!(page.contains(&format!("{ended},outcome=\"refused\"}} 1\n")), "{page}");
        assert_eq!(of(&page, &ended), 8, "an outcome of another name: {page}");
    }
}

/// Every outcome has a counter that begins at zero, also an outcome that core adds later.
#[test]
fn every_outcome_has_a_counter() {
    use perilog_core::outcome::{Failure, Loss, Outcome};
    let all = [
        Outcome::Ok,
        Outcome::Tolerable,
        Outcome::Failed { why: Failure::Oom },
        Outcome::Timeout { status: None },
        Outcome::Cancelled { status: None },
        Outcome::Lost { why: Loss::Rebooted },
        Outcome::Refused { why: String::new() },
        Outcome::Resolved { ok: true, reason: String::new(), by: 0 },
    ];
    let page = |metrics: &Metrics| counts(metrics, None).matches("perilog_tasks_ended_total{").count();
    let metrics = Metrics::default();
    metrics.open(["prolog"].into_iter());
    let before = page(&metrics);
    for outcome in all {
        // The match has no wildcard: the compiler rejects a new outcome until the table above contains it.
        match outcome {
            Outcome::Ok | Outcome::Tolerable | Outcome::Failed { .. } | Outcome::Timeout { .. } => {}
            Outcome::Cancelled { .. } | Outcome::Lost { .. } | Outcome::Refused { .. } | Outcome::Resolved { .. } => {}
        }
        metrics.committed(None, &[], &[finish("prolog", outcome.as_str(), "0")]);
    }
    assert_eq!(page(&metrics), before);
}

/// The metrics page has a bounded number of lines, for any number of jobs, nodes, actions and scripts.
#[test]
fn labels_have_a_bound() {
    let metrics = Metrics::default();
    for n in 0..2_000 {
        let of = ran(&format!("a{n}"), vec![step(&format!("{n}.sh"), 1, 0)]);
        metrics.committed(None, &[of], &[finish(&format!("b{n}"), "ok", "0")]);
    }
    let page = counts(&metrics, None);
    let lines = page.lines().count();
    assert!(lines < 10_000, "{lines} lines");
    assert!(
        page.contains("script=\"other\"")
            && page.contains("perilog_tasks_ended_total{action=\"other\",outcome=\"ok\"}")
    );
    let all: u64 = page
        .lines()
        .filter_map(|line| line.strip_prefix("perilog_script_duration_seconds_count"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(all, 2_000, "nothing is left out");
}
