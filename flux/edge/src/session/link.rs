//! The session with the controller: a list of all attempts of Flux (`Sync`, in pages), then the feed. After each
//! absence the edge begins again with the first page, so the edge needs no memory of the time between.

use perilog_core::{Attempt, Fluid, JobId};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Event, LAST_BACKOFF, Session};
use crate::controller::{CallError, Controller};
use crate::plan::{Job, sync};

impl Session {
    /// Starts an async task that connects to the controller, sends the list, and follows the feed. Each reply goes to
    /// the session's loop as an event.
    pub(super) fn link(&mut self) {
        let source = json!({ "name": "flux", "instance": self.config.instance.as_str() });
        let pages = sync::pages(&self.view, &source);
        // The feed begins with every job of the list, so the edge names only those that are not in it.
        let is_held = |job: &&Job| job.held().is_none() && (job.prolog.is_open() || job.epilog.is_open());
        let held = self.view.jobs.values().filter(is_held);
        let jobs: Vec<String> = held.map(|job| Fluid(job.id).to_string()).collect();
        let follow = json!({ "source": source, "jobs": jobs, "follow": true });
        let (sender, socket) = (self.sender.clone(), self.config.controller.to_path_buf());
        let linked = async move {
            let mut controller = Controller::connect(&socket).await?;
            let mut number = None;
            for mut page in pages {
                let is_first = number.is_none();
                if let Some(number) = number {
                    page["sync"] = number;
                }
                let reported = controller.call("Sync", &page).await?;
                number = Some(reported["sync"].clone());
                if sender.send(Event::Synced { is_first, reported }).await.is_err() {
                    return Ok(());
                }
            }
            controller.call_more("Attempts", &follow).await?;
            loop {
                let (reply, more) = controller.reply().await?;
                if sender.send(Event::Feed(reply)).await.is_err() || !more {
                    return Ok::<(), CallError>(());
                }
            }
        };
        let sender = self.sender.clone();
        let task = tokio::spawn(async move {
            let why = match linked.await {
                Ok(()) => "the feed ended".to_owned(),
                Err(error) => error.to_string(),
            };
            let _ = sender.send(Event::Away(why)).await;
        });
        self.link = Some(task.abort_handle());
    }

    /// Handles the reply to a page of the list: records the refused attempts. The first page makes the edge forget all
    /// known attempts, because the feed lists them anew.
    pub(super) fn synced(&mut self, is_first: bool, reported: &Value) {
        if is_first {
            self.view.attempts.clear();
            self.view.refused.clear();
        }
        let rows = |key: &str| reported[key].as_array().cloned().unwrap_or_default();
        for row in rows("refused") {
            let (job, attempt) = (row["job"].as_str(), row["attempt"].as_str());
            let id = job.and_then(|job| JobId::new(job).ok()).zip(attempt.and_then(|of| of.parse::<Attempt>().ok()));
            let why = row["why"].as_str().unwrap_or_default().to_owned();
            let subject = job.and_then(|job| job.parse::<Fluid>().ok()).map(|id| self.view.subject(id.0));
            let subject = subject.or_else(|| job.map(str::to_owned)).unwrap_or_default();
            tracing::error!(job, "{subject}: perilog refuses it: {why}");
            self.view.refused.extend(id.map(|id| (id, why)));
        }
        for row in rows("over") {
            let job = row["job"].as_str();
            tracing::warn!(job, "{}: Flux no longer has this job; perilog cleans up after it", job.unwrap_or_default());
        }
    }

    /// Closes the feed's connection to the controller if the edge has to send its list again, because the list comes
    /// first on each such connection. Returns `true` if the function closed the connection.
    pub(super) fn syncs_again(&mut self) -> bool {
        let is_due = sync::is_due(&self.view);
        if is_due {
            let why = match std::mem::take(&mut self.view.has_lost) {
                true => {
                    "Flux freed nodes of a job while their brokers were away: perilog-flux sends its list of jobs \
                     again, and jobs wait meanwhile"
                }
                false => {
                    "the controller's store was restored: perilog-flux sends its list of jobs again, and jobs wait \
                     meanwhile"
                }
            };
            self.away(why);
        }
        is_due
    }

    pub(super) fn away(&mut self, why: &str) {
        let why = format!(": {why}");
        // Logs a repeated reason once.
        if self.why != why {
            tracing::warn!("jobs wait for perilog's controller{why}");
            self.why = why;
        }
        self.view.is_current = false;
        self.view.half.clear();
        if let Some(link) = self.link.take() {
            link.abort();
        }
        self.link_at = Some(Instant::now() + self.link_backoff);
        self.link_backoff = (self.link_backoff * 2).min(LAST_BACKOFF / 10);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.abort();
        }
    }
}
