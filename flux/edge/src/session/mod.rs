//! A session with a broker, from the connect to the loss of the connection. The loop takes events, folds them into the
//! [`View`], plans, and sends the due actions. The loop waits only for events, so it always reads the streams.
//!
//! ```text
//!   connect: rank 0 of the system instance? no other edge? the plugin loaded?
//!   journal's backlog ──> Sync ──> the controller's feed ──> plan, send, fold ...
//!                           ^                                     │
//!                           └───── the controller was away ───────┘
//! ```

mod fold;
mod housekeeping;
mod inspect;
mod link;
mod open;
mod send;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use perilog_host::{clock, notify};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::broker::{Broker, RpcError};
use crate::config::Config;
use crate::plan::{Action, View, follower, plan};

pub use open::{Fault, open_references};
use send::Outcome;

/// Maximum number of events in the queue of a session. The number is small, so that a full queue slows down the async
/// tasks that read from Flux and the controller.
const EVENTS: usize = 256;
/// Maximum number of actions that wait for an answer at the same time. An action and the follower that the edge sends
/// right behind it count as one.
const AT_ONCE: usize = 32;
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LAST_BACKOFF: Duration = Duration::from_secs(30);
/// Time between two requests for a prolog to a quiesced controller; the edge sends one such request at a time.
const QUIET: Duration = Duration::from_secs(1);

/// An event that the session's loop handles, such as a change in Flux or an answer of the controller.
#[derive(Debug)]
enum Event {
    Journal(Value),
    /// The jobs of Flux's housekeeping, once after the journal's backlog.
    Housekeeping(housekeeping::HousekeepingState),
    /// A drain or a node changed in Flux.
    Resource(Value),
    /// The answer to `resource.status`, which the edge requests after an [`Event::Resource`].
    Status(Value),
    Online(Value),
    /// A stream of Flux ended: the session ends too.
    Lost(RpcError),
    /// The controller has accepted a page of the list; the reply names the refused attempts.
    Synced {
        is_first: bool,
        reported: Value,
    },
    Feed(Value),
    /// The connection to the controller has ended, or cannot be made; with the reason.
    Away(String),
    /// The answers to actions that the edge sent in one go. The list ends with the first answer that is not
    /// [`Outcome::Done`].
    Done(Vec<(Action, Outcome)>),
}

pub struct Session {
    config: Config,
    broker: Broker,
    view: View,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    /// Whether the site runs epilogs as Flux's housekeeping.
    epilogs_in_housekeeping: bool,
    /// Whether the edge has read the journal's backlog, and the jobs of Flux's housekeeping.
    is_caught_up: bool,
    link: Option<tokio::task::AbortHandle>,
    link_backoff: Duration,
    link_at: Option<Instant>,
    /// The subject of each action without an answer, such as `f2mKAgF7 on n[0-3]`, by the action's key. The job may
    /// have left the view when the answer comes.
    in_flight: HashMap<String, String>,
    delayed: HashMap<String, (Instant, Duration)>,
    /// Time at which the edge next requests a prolog from the quiesced controller; `None`: the controller is not
    /// quiesced.
    quiet: Option<Instant>,
    room: Arc<Semaphore>,
    status_asked: bool,
    /// Whether a resource changed in Flux while an answer to `resource.status` was outstanding: that may be older.
    status_outdated: bool,
    /// The reason why the edge waits for the controller, appended to the status line (`systemctl status`).
    why: String,
    shown: String,
}

impl Session {
    /// Runs the session until it has to end, for example because Flux is gone; returns the reason.
    pub async fn run(mut self) -> Fault {
        loop {
            let wake = self.turn();
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = sleep_until(wake) => None,
            };
            let mut next = event;
            // Folds all waiting events before the next plan.
            while let Some(event) = next {
                if let Some(fault) = self.fold(event) {
                    return fault;
                }
                next = self.events.try_recv().ok();
            }
        }
    }

    /// Plans the next actions, and sends those that are due. Returns the time at which to plan again; `None`: only
    /// after the next event.
    fn turn(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut wake = self.link_at;
        if self.is_caught_up && self.link.is_none() && self.link_at.is_none_or(|at| at <= now) {
            self.link_at = None;
            wake = None;
            self.link();
        }
        let now_ms = clock::wall_ms();
        let due = plan(&self.view, now_ms);
        let mut earlier = |at: Instant| wake = Some(wake.map_or(at, |before: Instant| before.min(at)));
        if let Some(at) = due.wake_at_ms {
            earlier(now + Duration::from_millis(at.saturating_sub(now_ms).max(1)));
        }
        let mut begin = Vec::new();
        for action in due.actions {
            let key = send::key(&action);
            match self.delayed.get(&key) {
                Some((at, _)) if *at > now => earlier(*at),
                _ if self.in_flight.contains_key(&key) => {}
                _ => match self.quiet.filter(|_| send::begins_anew(&action)) {
                    Some(at) if at > now => earlier(at),
                    Some(_) => {
                        self.quiet = Some(now + QUIET);
                        begin.push((key, action));
                    }
                    None => begin.push((key, action)),
                },
            }
        }
        for (key, action) in begin {
            self.in_flight.insert(key, send::subject(&self.view, &action));
            // A quiesced controller gets one prolog at a time.
            let then = follower(&self.view, &action).filter(|then| !(send::begins_anew(then) && self.quiet.is_some()));
            self.send(action, then);
        }
        self.show();
        wake
    }

    /// Sets the status line of `systemctl status`.
    fn show(&mut self) {
        let open = self.view.jobs.values().filter(|job| job.prolog.is_open() || job.epilog.is_open()).count();
        let line = match self.view.is_current {
            true => format!(
                "jobs of Flux with resources: {}, held: {open}{}",
                self.view.jobs.values().filter(|job| job.alloc.is_some()).count(),
                inspect::waits(&self.view, clock::wall_ms())
            ),
            false => format!("waits for perilog's controller{}; jobs held: {open}", self.why),
        };
        if line != self.shown {
            notify::status(&line);
            self.shown = line;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
