//! A place in a job's event log from which to read on, across connections.

use perilog_core::{ActionId, Attempt, HostList, IdSet, JobId};
use perilog_host::varlink::Client;
use serde::Deserialize;
use serde_json::json;

use crate::door::{Answer, Door};
use crate::fault::Fault;
use crate::log::{Entry, Events};
use crate::patience::{Stop, Teller};

/// News for a follower of a log.
pub(crate) enum News {
    /// For `run` only: the action exists, begun by this or another request.
    Attached(Answer<Running>),
    Event(Entry),
    /// All events that the log had are reported.
    CaughtUp,
}

/// The reply of `Run`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Running {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) id: ActionId,
    pub(crate) ranks: IdSet,
    /// In rank order.
    pub(crate) hosts: HostList,
    /// The action existed before this request.
    pub(crate) attached: bool,
    /// The log past here has everything of this action.
    pub(crate) events_after: u64,
}

pub(crate) struct Tail {
    door: Door,
    job: JobId,
    /// Sequence of the last reported event.
    pub(crate) after: u64,
}

impl Tail {
    pub(crate) const fn new(door: Door, job: JobId, after: u64) -> Self {
        Self { door, job, after }
    }

    /// Reports the log's present events, then [`News::CaughtUp`].
    pub(crate) fn past(&mut self, client: &mut Client, teller: &mut Teller<News>) -> Result<(), Stop> {
        self.read(client, false, teller)?;
        teller.tell(News::CaughtUp)
    }

    /// Reports new events for ever.
    pub(crate) fn follow(&mut self, client: &mut Client, teller: &mut Teller<News>) -> Result<(), Stop> {
        self.door.wait_for_ever(client)?;
        self.read(client, true, teller)?;
        // The stream never ends by itself: the controller disconnects a slow reader, which then reads on from its
        // place.
        Err(Fault::WentAway { daemon: self.door.daemon, why: "the stream of events ended".to_owned() }.into())
    }

    fn read(&mut self, client: &mut Client, follow: bool, teller: &mut Teller<News>) -> Result<(), Stop> {
        let parameters = json!({"job": self.job, "after": self.after, "follow": follow});
        let after = &mut self.after;
        self.door.follow(client, "Events", &parameters, |answer: Answer<Events>| {
            for entry in answer.body.events {
                *after = (*after).max(entry.sequence);
                teller.tell(News::Event(entry))?;
            }
            Ok(())
        })
    }
}
