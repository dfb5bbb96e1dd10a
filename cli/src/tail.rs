//! A tail reads a job's event log and keeps its place there. On a new connection the tail continues from that place,
//! unless the log is another one.

use perilog_core::controller::view::JobView;
use perilog_core::{ActionId, Attempt, HostList, IdSet, JobId};
use perilog_host::varlink::Client;
use serde::Deserialize;
use serde_json::json;

use crate::endpoint::{Answer, Endpoint};
use crate::fault::Fault;
use crate::log::{Entry, Events};
use crate::session::{SessionSender, Stop};

/// A message of a tail to the verb that follows the log.
pub(crate) enum News {
    /// The controller's reply that the action exists, begun by this request or an earlier one. Only `run` and the
    /// prolog hook send this message.
    Attached(Answer<Running>),
    /// The reason, for people, why this attempt waits since a restore or a start of the controller.
    Waits(Attempt, String),
    /// The job's log is no longer the one read so far, for example because an operator restored an older store. The
    /// verb forgets the events so far: the tail reports the log again, from the place where the tail began.
    Anew,
    Event(Entry),
    /// The tail has reported all existing events.
    CaughtUp,
}

/// The reply of the method `Run`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Running {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) id: ActionId,
    pub(crate) ranks: IdSet,
    /// The hosts in rank order.
    pub(crate) hosts: HostList,
    /// Whether the action existed before this request.
    pub(crate) attached: bool,
    /// Sequence number in the job's log after which all events of this action come.
    pub(crate) events_after: u64,
    /// The reason why the attempt waits since a restore or a start of the controller; `None` if it does not wait.
    #[serde(default)]
    pub(crate) waits: Option<String>,
}

/// The reply of the method `Show`.
#[derive(Debug, Deserialize)]
pub(crate) struct Shown {
    pub(crate) job: JobView,
}

pub(crate) struct Tail {
    endpoint: Endpoint,
    job: JobId,
    /// Sequence number in the job's log: the tail first reads the events after it.
    start: u64,
    /// Sequence number and time stamp (seconds since 1970) of the last reported event; `None`: no event was reported
    /// since the tail began, or began anew.
    last: Option<(u64, f64)>,
    /// Whether the tail ends with [`Stop::Again`] when the attempt is abandoned.
    asks_again: bool,
}

impl From<Entry> for News {
    fn from(entry: Entry) -> Self {
        Self::Event(entry)
    }
}

impl Tail {
    pub(crate) const fn new(endpoint: Endpoint, job: JobId, start: u64) -> Self {
        Self { endpoint, job, start, last: None, asks_again: false }
    }

    /// Makes the tail end with [`Stop::Again`] when the attempt is abandoned: the verb then repeats its request, which
    /// takes the attempt up.
    pub(crate) fn asking_again(self) -> Self {
        Self { asks_again: true, ..self }
    }

    /// Sets the tail's place in the log: it next reports the event after the sequence number `start`.
    pub(crate) const fn set(&mut self, start: u64) {
        (self.start, self.last) = (start, None);
    }

    /// Reports all events that the log has now, then [`News::CaughtUp`].
    pub(crate) fn past(&mut self, client: &mut Client, sender: &mut SessionSender<News>) -> Result<(), Stop> {
        self.read(client, false, sender)?;
        sender.send_message(News::CaughtUp)
    }

    /// Reports each attempt of the job that waits since a restore or a start of the controller, with the reason.
    pub(crate) fn waits(&self, client: &mut Client, sender: &mut SessionSender<News>) -> Result<(), Stop> {
        match self.endpoint.ask_on::<Shown>(client, "Show", &json!({"job": self.job})) {
            Ok(shown) => {
                for of in shown.body.job.attempts {
                    if let Some(waits) = of.waits {
                        sender.send_message(News::Waits(of.attempt, waits))?;
                    }
                }
                Ok(())
            }
            // The log outlives the job in the controller's memory.
            Err(fault) if fault.is_unknown() => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Reports the events after the tail's place, and each new event as it comes; never returns `Ok`.
    pub(crate) fn follow<T: From<Entry>>(
        &mut self,
        client: &mut Client,
        sender: &mut SessionSender<T>,
    ) -> Result<(), Stop> {
        self.endpoint.wait_for_ever(client)?;
        self.read(client, true, sender)?;
        // The stream never ends by itself. The controller disconnects a slow reader, which then continues from its
        // place.
        Err(Fault::WentAway { daemon: self.endpoint.daemon, why: "the stream of events ended".to_owned() }.into())
    }

    /// Checks on a new connection whether the log is still the same. A restored store has an older log, and the tail
    /// begins anew. Returns `true` if the tail begins anew.
    pub(crate) fn resume(&mut self, client: &mut Client) -> Result<bool, Fault> {
        let Some(last) = self.last else { return Ok(false) };
        let parameters = json!({"job": self.job, "after": last.0 - 1, "follow": false});
        let events = match self.endpoint.ask_on::<Events>(client, "Events", &parameters) {
            Ok(answer) => answer.body.events,
            Err(fault) if fault.is_unknown() => return Err(Fault::Vanished { job: self.job.clone() }),
            Err(fault) => return Err(fault),
        };
        let same = events.first().is_some_and(|entry| (entry.sequence, entry.timestamp) == last);
        if !same {
            self.last = None;
        }
        Ok(!same)
    }

    fn read<T: From<Entry>>(
        &mut self,
        client: &mut Client,
        follow: bool,
        sender: &mut SessionSender<T>,
    ) -> Result<(), Stop> {
        let after = self.last.map_or(self.start, |(sequence, _)| sequence);
        let parameters = json!({"job": self.job, "after": after, "follow": follow});
        let (last, asks_again) = (&mut self.last, self.asks_again);
        self.endpoint.follow(client, "Events", &parameters, |answer: Answer<Events>| {
            for entry in answer.body.events {
                *last = Some((entry.sequence, entry.timestamp));
                let again = asks_again && entry.name == ABANDONED;
                sender.send_message(T::from(entry))?;
                if again {
                    return Err(Stop::Again);
                }
            }
            Ok(())
        })
    }
}

/// Name of the event that an attempt was abandoned: it waits until an edge, a request or an operator asks for it.
pub(crate) const ABANDONED: &str = "attempt-abandoned";
/// Name of the event that an abandoned attempt was asked for again.
pub(crate) const TAKEN_UP: &str = "attempt-taken-up";
