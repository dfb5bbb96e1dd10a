//! Page of all figures for Prometheus: the counters, and the present state of machine and store.

use std::path::PathBuf;
use std::time::Duration;

use perilog_core::controller::io::{Reply, Request};
use perilog_core::controller::view::StatusView;
use perilog_host::clock;

use super::Metrics;
use super::counts::Counts;
use super::text::{self, Text, Type};
use crate::daemon::Inlet;
use crate::listener::{By, Expiries, Soonest};
use crate::store::{Pending, StepReader, last_copy};

/// Time that the writer has to answer. Past this limit, the page lacks the writer's part and shows the gap, so a
/// hanging disk is visible.
const ANSWER: Duration = Duration::from_secs(5);

const DAY_MS: u64 = 86_400_000;

/// All that the metrics page reads its figures from. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) metrics: Metrics,
    pub(crate) inlet: Inlet,
    pub(crate) steps: StepReader,
    pub(crate) expiries: Expiries,
    pub(crate) store: PathBuf,
}

impl Source {
    /// Content type of the metrics page.
    pub(crate) const CONTENT_TYPE: &str = text::CONTENT_TYPE;

    pub(crate) async fn page(&self) -> String {
        let asked = tokio::time::timeout(ANSWER, self.inlet.ask(0, Request::Status {}, None)).await;
        let status = match asked {
            Ok(Ok(Reply::Status(status))) => Some(status),
            _ => None,
        };
        let steps = self.steps.clone();
        // A reader fails if the store is unreadable; the writer reports that.
        let pending = tokio::task::spawn_blocking(move || steps.pending().ok()).await.ok().flatten();
        let now_ms = clock::wall_ms();
        let soonest = |by, within_ms| self.expiries.soonest(by, now_ms.saturating_add(within_ms));
        let by_operator = soonest(By::Hand, 30 * DAY_MS);
        // A node tries to renew at the latest when a sixth of the certificate's time is left: five days of thirty.
        let enrolled = soonest(By::Enrolment, 3 * DAY_MS);
        let store = self.store.clone();
        let copy = tokio::task::spawn_blocking(move || last_copy(&store)).await.ok().flatten();
        let mut text = render(&self.metrics.counts(), status.as_deref(), pending, now_ms);
        ends(&mut text, [("hand", by_operator), ("enrolment", enrolled)]);
        copied(&mut text, copy);
        text.finish()
    }
}

/// Writes two metrics about the certificates of the connected nodes: when the first of them ends, and how many end
/// soon. The only label is who renews the certificates: a label for each of ten thousand nodes would be ten thousand
/// series.
fn ends(text: &mut Text, certificates: [(&str, Soonest); 2]) {
    let mut metric = text.metric(
        "perilog_node_certificate_expiry_timestamp_seconds",
        Type::Gauge,
        "When the first certificate of the connected nodes expires, by who renews it.",
    );
    for (by, Soonest { until_ms, .. }) in certificates {
        if let Some(until_ms) = until_ms {
            metric.sample(&[("by", by)], until_ms / 1_000);
        }
    }
    let mut metric = text.metric(
        "perilog_node_certificates_expiring",
        Type::Gauge,
        "Connected nodes whose certificate expires within 30 days, or within 3 days if the node renews it itself.",
    );
    for (by, Soonest { soon, .. }) in certificates {
        metric.sample(&[("by", by)], soon);
    }
}

/// Writes the metric of the last backup. `at_ms`: the time (ms since 1970) of the last `perilog controller backup`.
fn copied(text: &mut Text, at_ms: Option<u64>) {
    let mut metric = text.metric(
        "perilog_last_backup_timestamp_seconds",
        Type::Gauge,
        "When `perilog controller backup` last wrote a copy of the store to a disk; absent: never.",
    );
    if let Some(at_ms) = at_ms {
        metric.sample(&[], at_ms / 1_000);
    }
}

pub(super) fn render(counts: &Counts, status: Option<&StatusView>, pending: Option<Pending>, now_ms: u64) -> Text {
    let mut text = Text::default();
    let version = env!("CARGO_PKG_VERSION");
    text.metric("perilog_build_info", Type::Gauge, "The controller's version.").sample(&[("version", version)], 1);
    text.metric(
        "perilog_controller_answers",
        Type::Gauge,
        "1: the controller answers; 0: it did not answer within 5 s.",
    )
    .sample(&[], status.is_some().into());
    if let Some(status) = status {
        now(&mut text, status);
    }
    if let Some(pending) = pending {
        waiting(&mut text, pending, now_ms);
    }
    counted(&mut text, counts);
    text
}

fn now(text: &mut Text, status: &StatusView) {
    text.metric(
        "perilog_epoch",
        Type::Gauge,
        "The epoch: it grows with each start of a controller on this store, and with each take-over.",
    )
    .sample(&[], status.epoch);
    text.metric("perilog_nodes", Type::Gauge, "Nodes that have ever connected, by whether they are connected now.")
        .sample(&[("state", "online")], status.online)
        .sample(&[("state", "offline")], status.nodes.saturating_sub(status.online));
    text.metric("perilog_hosts_drained", Type::Gauge, "Hosts that are drained.").sample(&[], status.drained);
    text.metric("perilog_hosts_held", Type::Gauge, "Hosts that a job or an action holds.").sample(&[], status.held);
    text.metric("perilog_jobs", Type::Gauge, "Jobs that the controller remembers.").sample(&[], status.jobs);
    text.metric("perilog_actions_open", Type::Gauge, "Actions without a verdict yet.").sample(&[], status.actions_open);
    text.metric("perilog_tasks_in_flight", Type::Gauge, "Tasks that have not ended.").sample(&[], status.tasks_open);
    text.metric("perilog_quiet", Type::Gauge, "1: an operator has quiesced the controller, and nothing new begins.")
        .sample(&[], status.quiet.is_some().into());
    text.metric(
        "perilog_recovery",
        Type::Gauge,
        "1: the store may be behind its nodes; its open attempts are on hold until they are asked for again.",
    )
    .sample(&[], status.recovery.is_some().into());
}

fn waiting(text: &mut Text, pending: Pending, now_ms: u64) {
    text.metric("perilog_releases_pending", Type::Gauge, "Releases that the release hook has not carried out.")
        .sample(&[], pending.release_hook);
    text.metric("perilog_outbox_pending", Type::Gauge, "Notices to the resource manager that no edge has confirmed.")
        .sample(&[], pending.manager);
    text.metric("perilog_drains_pending", Type::Gauge, "Drains and undrains that the drain hook has not carried out.")
        .sample(&[("what", "drain")], pending.drains)
        .sample(&[("what", "undrain")], pending.undrains);
    let age = pending.oldest_open_ms.map_or(0, |began| now_ms.saturating_sub(began));
    text.metric(
        "perilog_oldest_open_action_seconds",
        Type::Gauge,
        "Age of the oldest action without a verdict; 0: there is none.",
    )
    .seconds(&[], age as f64 / 1000.0);
}

fn counted(text: &mut Text, counts: &Counts) {
    let mut metric = text.metric("perilog_tasks_ended_total", Type::Counter, "Tasks that ended, by outcome.");
    for ((action, outcome), count) in &counts.ended {
        metric.sample(&[("action", action), ("outcome", outcome)], *count);
    }
    for (name, help, counter) in [
        ("perilog_tasks_overdue_total", "Tasks that passed their limit.", &counts.overdue),
        ("perilog_tasks_empty_total", "Tasks that were ok because there was no script to run.", &counts.empty),
        (
            "perilog_scripts_skipped_total",
            "Files in directories of scripts that were not run: not executable, or not regular files.",
            &counts.skipped,
        ),
    ] {
        let mut metric = text.metric(name, Type::Counter, help);
        for (action, count) in counter {
            metric.sample(&[("action", action)], *count);
        }
    }
    let mut metric = text.metric(
        "perilog_task_duration_seconds",
        Type::Histogram,
        "Time from the begin of a task on its node to its end.",
    );
    for (action, histogram) in &counts.tasks {
        metric.histogram(&[("action", action)], histogram);
    }
    let mut metric = text.metric("perilog_script_duration_seconds", Type::Histogram, "Each try of each script.");
    for ((action, script), of) in &counts.scripts {
        metric.histogram(&[("action", action), ("script", script)], &of.seconds);
    }
    let mut metric = text.metric(
        "perilog_script_failures_total",
        Type::Counter,
        "Tries of scripts that failed: exit status other than 0, killed by a signal, or no known end.",
    );
    for ((action, script), of) in &counts.scripts {
        metric.sample(&[("action", action), ("script", script)], of.failed);
    }
    text.metric("perilog_commit_duration_seconds", Type::Histogram, "How long a batch took until it was on the disk.")
        .histogram(&[], &counts.commits);
    text.metric("perilog_commit_failures_total", Type::Counter, "Batches that could not be committed.")
        .sample(&[], counts.commits_failed);
    text.metric("perilog_store_full", Type::Gauge, "1: the store's disk is full, and prologs are refused.")
        .sample(&[], counts.store_full.into());
    text.metric("perilog_agent_connects_total", Type::Counter, "Sessions of agents that the controller accepted.")
        .sample(&[], counts.connects);
    text.metric("perilog_agent_disconnects_total", Type::Counter, "Sessions of agents that ended.")
        .sample(&[], counts.disconnects);
    let mut metric = text.metric(
        "perilog_hook_runs_total",
        Type::Counter,
        "Runs of the commands of [release] and [drain] that ended, by result.",
    );
    for ((hook, ok), count) in &counts.hooks {
        metric.sample(&[("hook", hook), ("result", if *ok { "ok" } else { "failed" })], *count);
    }
}
