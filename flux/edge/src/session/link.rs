//! The session with the controller: an `Assert` of all attempts of Flux, then the feed. After each absence the edge
//! begins again with the `Assert`, so the edge needs no memory of the time between.

use perilog_core::{Attempt, Fluid, JobId};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Event, LAST_BACKOFF, Session};
use crate::controller::{CallError, Controller};
use crate::plan::{Job, assert};

impl Session {
    /// Starts an async task that connects to the controller, sends `Assert`, and follows the feed. Each reply goes to
    /// the session's loop as an event.
    pub(super) fn link(&mut self) {
        let source = json!({ "name": "flux", "instance": self.config.instance.as_str() });
        let asserted = assert::parameters(&self.view, &source);
        let is_held = |job: &&Job| job.prolog.is_open() || job.epilog.is_open() || job.is_in_housekeeping();
        let held = self.view.jobs.values().filter(is_held);
        let jobs: Vec<String> = held.map(|job| Fluid(job.id).to_string()).collect();
        let follow = json!({ "source": source, "jobs": jobs, "follow": true });
        let (sender, socket) = (self.sender.clone(), self.config.controller.path().to_owned());
        let linked = async move {
            let mut controller = Controller::connect(&socket).await?;
            let told = controller.call("Assert", &asserted).await?;
            if sender.send(Event::Asserted(told)).await.is_err() {
                return Ok(());
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

    /// Handles the reply to `Assert`: records the refused attempts, and forgets all known attempts, because the feed
    /// lists them anew.
    pub(super) fn asserted(&mut self, told: &Value) {
        self.view.attempts.clear();
        self.view.refused.clear();
        let rows = |key: &str| told[key].as_array().cloned().unwrap_or_default();
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
            tracing::warn!(job, "{}: Flux has it no more: perilog cleans up after it", job.unwrap_or_default());
        }
    }

    /// Closes the feed's connection to the controller if the edge has to send `Assert` again: `Assert` is the first
    /// call of each such connection. Returns `true` if the function closed the connection.
    pub(super) fn asserts_again(&mut self) -> bool {
        let is_due = assert::is_due(&self.view);
        if is_due {
            let why = match std::mem::take(&mut self.view.has_lost) {
                true => "Flux has freed a job's nodes while their brokers were away",
                false => "perilog asks which jobs Flux has: its store was put back",
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
