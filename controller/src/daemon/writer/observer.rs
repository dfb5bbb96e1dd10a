//! Observer beside the machine: collects details of scripts that the machine does not use, and figures for Prometheus.
//! The observer changes no input and no effect.
//!
//! A Finished message counts only if the machine acknowledged it in the same batch, and if its host is the host of the
//! task's rank (the store checks the host).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use perilog_core::controller::io::{Output, SessionId};
use perilog_core::controller::{Effect, Input, Record, Snapshot};
use perilog_core::message::{FromAgent, ToAgent};
use perilog_core::task::{Ended, Reboot};
use perilog_core::{HostName, TaskId};

use crate::metrics::Metrics;
use crate::store::Ran;

#[derive(Debug)]
pub(super) struct Observer {
    /// The host that each session named in its first Hello.
    hosts: HashMap<SessionId, HostName>,
    metrics: Option<Metrics>,
}

/// A session's report of the end of a task.
#[derive(Debug)]
pub(super) struct Received {
    session: SessionId,
    ran: Ran,
}

impl Observer {
    pub(super) fn new(metrics: Option<Metrics>) -> Self {
        Self { hosts: HashMap::new(), metrics }
    }

    /// Creates the counters of the actions in the store that have no verdict yet.
    pub(super) fn loaded(&self, store: &Snapshot) {
        if let Some(metrics) = &self.metrics {
            let open = store.actions.iter().filter(|action| action.verdict.is_none());
            metrics.open(open.map(|action| action.name.as_str()));
        }
    }

    /// Collects the sessions' reports of ended tasks, before the machine handles the inputs.
    pub(super) fn listen(&mut self, inputs: &[Input]) -> Vec<Received> {
        inputs.iter().filter_map(|input| self.receive(input)).collect()
    }

    fn receive(&mut self, input: &Input) -> Option<Received> {
        match input {
            Input::Message { session, message: FromAgent::Hello(hello), .. } => {
                self.hosts.entry(*session).or_insert_with(|| hello.host.clone());
                None
            }
            Input::Message { session, message: FromAgent::Finished { task, ended }, .. } => {
                let host = self.hosts.get(session)?.clone();
                Some(Received { session: *session, ran: ran(*task, Some(host), ended)? })
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

    /// Returns the durations to store for this batch: the reports in `received` that the machine acknowledged, and one
    /// duration for each task that an announced reboot ended. The machine completes such a task itself, so no agent
    /// reports the duration.
    pub(super) fn acknowledged(&self, received: Vec<Received>, output: &Output) -> Vec<Ran> {
        let booted = output.records.iter().filter_map(|record| match record {
            // If the scripts ended by themselves, the node has reported the duration.
            Record::Rank(row) if row.expects.is_none() && row.ended.reboot() == Reboot::Come => {
                ran(row.task, None, &row.ended).filter(|_| row.ended.elapsed_ms.is_none())
            }
            _ => None,
        });
        if received.is_empty() {
            return booted.collect();
        }
        let acknowledged: HashSet<(SessionId, TaskId)> = output
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { session, message: ToAgent::Ack { task, .. } } => Some((*session, *task)),
                _ => None,
            })
            .collect();
        let is_acknowledged = |received: &Received| acknowledged.contains(&(received.session, received.ran.task));
        received.into_iter().filter(is_acknowledged).map(|received| received.ran).chain(booted).collect()
    }

    /// Counts a committed batch in the metrics. `elapsed`: the duration of its commit, `None` if the batch had no
    /// records. `ran`: the durations that the commit has stored.
    pub(super) fn committed(&self, elapsed: Option<Duration>, ran: &[Ran], effects: &[Effect]) {
        if let Some(metrics) = &self.metrics {
            metrics.committed(elapsed, ran, effects);
        }
    }

    pub(super) fn not_committed(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.not_committed();
        }
    }

    /// Forgets all sessions, because the controller has ended them.
    pub(super) fn forget(&mut self) {
        self.hosts.clear();
    }

    pub(super) fn store_full(&self, full: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.store_full(full);
        }
    }
}

/// Makes the report of a task's end; `None` if the task, as far as known, did not begin.
fn ran(task: TaskId, host: Option<HostName>, ended: &Ended) -> Option<Ran> {
    let began_ms = ended.began_ms?;
    let elapsed_ms = ended.elapsed_ms.unwrap_or_else(|| ended.ended_ms.saturating_sub(began_ms));
    let (outcome, steps) = (ended.outcome.as_str(), ended.steps.clone());
    let (skipped, empty) = (ended.skipped.len() as u64, ended.empty);
    Some(Ran { task, host, action: None, outcome, began_ms, elapsed_ms, steps, skipped, empty })
}

#[cfg(test)]
mod tests {
    use perilog_core::controller::io::{Expects, RankRow};
    use perilog_core::message::Hello;
    use perilog_core::outcome::Outcome;
    use perilog_core::{ActionId, BootId, MachineId, Rank};

    use super::*;

    const ONE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    fn task(rank: u32) -> TaskId {
        TaskId { action: ActionId(uuid::Uuid::from_u128(1)), rank: Rank(rank) }
    }

    fn from(session: SessionId, message: FromAgent) -> Input {
        Input::Message { session, names: None, peer: "192.0.2.1:1".to_owned(), message }
    }

    fn hello(session: SessionId, host: &str) -> Input {
        let hello = Hello {
            host: HostName::new(host).unwrap(),
            machine: MachineId::new("0123456789abcdef0123456789abcdef").unwrap(),
            boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a").unwrap(),
            link: 1,
            version: "0.1.0".to_owned(),
            actions: None,
            newest: None,
            tasks: Vec::new(),
            more: false,
        };
        from(session, FromAgent::Hello(hello))
    }

    /// Makes the end of a task that began at 1,000 ms and ended at 1,250 ms.
    fn ended() -> Ended {
        Ended { began_ms: Some(1_000), ..Ended::bare(Outcome::Ok, 1_250) }
    }

    fn finished(session: SessionId, rank: u32) -> Input {
        from(session, FromAgent::Finished { task: task(rank), ended: Box::new(ended()) })
    }

    fn acks(of: &[(SessionId, u32)]) -> Output {
        let ack = |(session, rank): &(SessionId, u32)| Effect::Send {
            session: *session,
            message: ToAgent::Ack { task: task(*rank), commit: 1 },
        };
        Output { records: Vec::new(), effects: of.iter().map(ack).collect() }
    }

    /// Gives the observer a batch's inputs and the machine's output. Returns the durations to store, each as host
    /// (`None`: no node reported it), rank, and the task's duration in milliseconds.
    fn stored(observer: &mut Observer, inputs: &[Input], output: &Output) -> Vec<(Option<String>, u32, u64)> {
        let received = observer.listen(inputs);
        let reported = |ran: Ran| (ran.host.map(|host| host.as_str().to_owned()), ran.task.rank.0, ran.elapsed_ms);
        observer.acknowledged(received, output).into_iter().map(reported).collect()
    }

    #[test]
    fn what_a_session_reported_counts_if_it_was_acknowledged_there() {
        let n0 = |rank| (Some("n0".to_owned()), rank, 250);
        for (name, inputs, output, expected) in [
            ("acknowledged", vec![hello(ONE, "n0"), finished(ONE, 0)], acks(&[(ONE, 0)]), vec![n0(0)]),
            ("not acknowledged", vec![hello(ONE, "n0"), finished(ONE, 0)], acks(&[]), vec![]),
            ("another task is", vec![hello(ONE, "n0"), finished(ONE, 0)], acks(&[(ONE, 1)]), vec![]),
            ("to another session", vec![hello(ONE, "n0"), finished(ONE, 0)], acks(&[(OTHER, 0)]), vec![]),
            ("no session said Hello", vec![finished(ONE, 0)], acks(&[(ONE, 0)]), vec![]),
            ("two names", vec![hello(ONE, "n0"), hello(ONE, "n1"), finished(ONE, 0)], acks(&[(ONE, 0)]), vec![n0(0)]),
            (
                "closed meanwhile",
                vec![hello(ONE, "n0"), Input::Closed { session: ONE, why: "away".to_owned() }, finished(ONE, 0)],
                acks(&[(ONE, 0)]),
                vec![],
            ),
        ] {
            assert_eq!(stored(&mut Observer::new(None), &inputs, &output), expected, "{name}");
        }
        // A Hello counts for reports in later batches, until the observer forgets its sessions.
        let mut observer = Observer::new(None);
        assert_eq!(stored(&mut observer, &[hello(ONE, "n0")], &acks(&[])), []);
        assert_eq!(stored(&mut observer, &[finished(ONE, 3)], &acks(&[(ONE, 3)])), [n0(3)]);
        observer.forget();
        assert_eq!(stored(&mut observer, &[finished(ONE, 4)], &acks(&[(ONE, 4)])), []);
    }

    #[test]
    fn a_task_of_which_nothing_began_has_no_duration() {
        let bare = Box::new(Ended::bare(Outcome::Ok, 1_250));
        let inputs = [hello(ONE, "n0"), from(ONE, FromAgent::Finished { task: task(0), ended: bare })];
        assert_eq!(stored(&mut Observer::new(None), &inputs, &acks(&[(ONE, 0)])), []);
    }

    /// The observer also counts a task that an announced reboot ended, although no agent reports its end: the machine
    /// completes the task.
    #[test]
    fn a_boot_that_was_announced_ends_its_task_here_too() {
        let row = |rank, booted, open: bool| {
            let machine = MachineId::new("0123456789abcdef0123456789abcdef").unwrap();
            let expects = open.then_some(Expects { machine, within_ms: None });
            let ended = Ended { booted, expect_reboot: true, ..ended() };
            Record::Rank(Box::new(RankRow { task: task(rank), ended, late: Vec::new(), expects }))
        };
        let mut reported = row(3, true, false);
        if let Record::Rank(row) = &mut reported {
            // The task ended by itself, and its node reported the end.
            row.ended.elapsed_ms = Some(250);
        }
        let records = vec![row(0, true, false), row(1, true, true), row(2, false, false), reported];
        let output = Output { records, ..acks(&[(ONE, 5)]) };
        assert_eq!(stored(&mut Observer::new(None), &[], &output), [(None, 0, 250)]);
        // Reports of sessions count beside these.
        let inputs = [hello(ONE, "n0"), finished(ONE, 5)];
        let both = stored(&mut Observer::new(None), &inputs, &output);
        assert_eq!(both, [(Some("n0".to_owned()), 5, 250), (None, 0, 250)]);
    }
}
