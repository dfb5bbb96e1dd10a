//! Looks on at the edge of the machine: what agents tell of their scripts that the machine has no use for, and figures for Prometheus. It changes
//! nothing of what the machine hears or says.
//!
//! A Finished counts when the machine acknowledged it in the same batch, and when its host is the one that the task's rank is on (the store knows).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use perilog_core::controller::io::{Output, SessionId};
use perilog_core::controller::{Effect, Input, Record};
use perilog_core::message::{FromAgent, ToAgent};
use perilog_core::task::Ended;
use perilog_core::{HostName, TaskId};

use crate::metrics::Metrics;
use crate::store::Ran;

#[derive(Debug)]
pub(super) struct Observer {
    /// Who said Hello first on a session.
    hosts: HashMap<SessionId, HostName>,
    metrics: Option<Metrics>,
}

/// What one session told of one task.
#[derive(Debug)]
pub(super) struct Heard {
    session: SessionId,
    ran: Ran,
}

impl Observer {
    pub(super) fn new(metrics: Option<Metrics>) -> Self {
        Self { hosts: HashMap::new(), metrics }
    }

    /// Before the machine takes them.
    pub(super) fn listen(&mut self, inputs: &[Input]) -> Vec<Heard> {
        inputs.iter().filter_map(|input| self.hear(input)).collect()
    }

    fn hear(&mut self, input: &Input) -> Option<Heard> {
        match input {
            Input::Message { session, message: FromAgent::Hello(hello), .. } => {
                self.hosts.entry(*session).or_insert_with(|| hello.host.clone());
                None
            }
            Input::Message { session, message: FromAgent::Finished { task, ended }, .. } => {
                let host = self.hosts.get(session)?.clone();
                Some(Heard { session: *session, ran: ran(*task, Some(host), ended)? })
            }
            Input::Closed { session, .. } => {
                let known = self.hosts.remove(session);
                if let (Some(_), Some(metrics)) = (known, &self.metrics) {
                    metrics.disconnected();
                }
                None
            }
            _ => None,
        }
    }

    /// What of it stands, now that the machine has spoken; and what it says itself, of boots that scripts had announced.
    pub(super) fn standing(&self, heard: Vec<Heard>, output: &Output) -> Vec<Ran> {
        let booted = output.records.iter().filter_map(|record| match record {
            Record::Rank(row) if row.expects.is_none() && row.ended.booted => ran(row.task, None, &row.ended),
            _ => None,
        });
        if heard.is_empty() {
            return booted.collect();
        }
        let acknowledged: HashSet<(SessionId, TaskId)> = output
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { session, message: ToAgent::Ack { task } } => Some((*session, *task)),
                _ => None,
            })
            .collect();
        let stands = |heard: &Heard| acknowledged.contains(&(heard.session, heard.ran.task));
        heard.into_iter().filter(stands).map(|heard| heard.ran).chain(booted).collect()
    }

    /// A batch is on the disk, in that time if it had records. `ran`: what is news of it.
    pub(super) fn committed(&self, took: Option<Duration>, ran: &[Ran], effects: &[Effect]) {
        if let Some(metrics) = &self.metrics {
            metrics.committed(took, ran, effects);
        }
    }

    pub(super) fn not_committed(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.not_committed();
        }
    }

    /// Every session is ended from our side, and none of them is heard of again.
    pub(super) fn forget(&mut self) {
        self.hosts.clear();
    }

    pub(super) fn store_full(&self, full: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.store_full(full);
        }
    }
}

/// `None`: nothing of it began.
fn ran(task: TaskId, host: Option<HostName>, ended: &Ended) -> Option<Ran> {
    let began_ms = ended.began_ms?;
    let elapsed_ms = ended.elapsed_ms.unwrap_or_else(|| ended.ended_ms.saturating_sub(began_ms));
    let (outcome, steps) = (ended.outcome.word(), ended.steps.clone());
    Some(Ran { task, host, action: None, outcome, began_ms, elapsed_ms, steps })
}
