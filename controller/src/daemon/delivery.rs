//! Keeps the machine's peers (sessions, callers, followers), and delivers the machine's effects to them. This code
//! never waits and never decides.

use std::collections::HashMap;
use std::sync::Arc;

use perilog_core::agent::io::Level;
use perilog_core::controller::io::{AttemptsOf, Client, Refusal, Reply, Request, SessionId};
use perilog_core::controller::{Effect, Input, Record};
use perilog_core::message::ToAgent;
use perilog_core::task::Start;
use perilog_core::{BootId, Event, HostName, JobId, Rank};
use perilog_host::complaints::Each;
use perilog_host::fault;
use perilog_proto::{MAX_FORGET, StartFan, encode_to_agent};
use tokio::sync::{oneshot, watch};

use super::feed::{Changes, Feed, Replies};
use super::inlet::Entry;
use super::outlet::{End, EventQueue, Outlet, Part, PartQueue};

/// Number of followers at which the controller sweeps for disconnected ones. After a sweep, the next one waits until
/// the remaining followers have doubled, so that each registration is cheap.
const SWEEP_AT: usize = 1_024;
/// Maximum number of hosts whose journal lines the controller counts at a time: the largest cluster. Lines that further
/// hosts cause are not logged meanwhile.
const MOST_HOSTS: usize = 65_536;

pub(crate) struct Delivery {
    /// Outlets of open sessions. `None`: the controller has ended the session, but the peer is still connected.
    sessions: HashMap<SessionId, Option<Outlet>>,
    askers: HashMap<Client, Asker>,
    last_client: Client,
    /// Queues to the API calls that read the nodes' answers to a question. Key: the number of the question.
    questions: HashMap<u64, PartQueue>,
    followers: HashMap<JobId, Vec<EventQueue>>,
    /// Queues to the edges that follow all jobs: each names the jobs that have changed to its edge, and shows whether
    /// drains have.
    feeds: Vec<Feed>,
    /// Number of queues in `followers`, counted at the last sweep, plus the number added since. Disconnected followers
    /// count until the next sweep.
    following: usize,
    sweep_at: usize,
    outbox: watch::Sender<()>,
    /// Signals that a commit has written events.
    logged: watch::Sender<()>,
    /// The encoding of the last Start that was sent, without the parts that differ by rank; `None`: none was sent yet.
    /// The ranks of an action may begin one by one, and their Starts share this encoding.
    fan: Option<StartFan>,
    /// Counts the journal lines that each host causes.
    of_nodes: Each<HostName>,
}

struct Asker {
    answer: oneshot::Sender<Result<Reply, Refusal>>,
    parts: Option<PartQueue>,
}

impl Delivery {
    pub(crate) fn new(outbox: watch::Sender<()>) -> Self {
        Self {
            sessions: HashMap::new(),
            askers: HashMap::new(),
            last_client: 0,
            questions: HashMap::new(),
            followers: HashMap::new(),
            feeds: Vec::new(),
            following: 0,
            sweep_at: SWEEP_AT,
            outbox,
            logged: watch::channel(()).0,
            fan: None,
            of_nodes: Each::new(MOST_HOSTS),
        }
    }

    /// Returns a receiver that is notified when a commit has written events.
    pub(crate) fn logged(&self) -> watch::Receiver<()> {
        self.logged.subscribe()
    }

    pub(super) fn add_session(&mut self, session: SessionId, outlet: Outlet) {
        self.sessions.insert(session, Some(outlet));
    }

    /// Returns `false` for a session that a discarded machine had: this machine does not know it.
    pub(super) fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Removes a session. Returns `true` if there was one.
    pub(super) fn remove_session(&mut self, session: SessionId) -> bool {
        self.sessions.remove(&session).is_some()
    }

    /// Adds the caller of a request, and returns the number under which the machine replies to it.
    pub(super) fn add_caller(
        &mut self,
        request: &Request,
        answer: oneshot::Sender<Result<Reply, Refusal>>,
        parts: Option<PartQueue>,
    ) -> Client {
        self.last_client += 1;
        if let Request::AskEnds { question } = request {
            self.questions.remove(question);
        }
        self.askers.insert(self.last_client, Asker { answer, parts });
        self.last_client
    }

    pub(super) fn add_feed(&mut self, feed: Feed, ready: oneshot::Sender<()>) {
        if ready.send(()).is_ok() {
            self.feeds.push(feed);
        }
    }

    /// Removes callers that have disconnected, and returns the input for the machine about them; `None` if all are
    /// connected. A call mostly gets its answer in the batch that brings it, so few callers wait and the search is
    /// quick.
    pub(super) fn hung_up(&mut self) -> Option<Input> {
        let gone = self.askers.iter().filter(|(_, asker)| asker.answer.is_closed());
        let mut clients: Vec<Client> = gone.map(|(client, _)| *client).collect();
        clients.sort_unstable();
        clients.iter().for_each(|client| drop(self.askers.remove(client)));
        (!clients.is_empty()).then_some(Input::HungUp { clients })
    }

    /// Refuses an entry while the controller has no machine, because the store's disk is full.
    pub(crate) fn refuse(&mut self, entry: Entry, why: &Refusal) {
        match entry {
            Entry::Opened { outlet, .. } => outlet.end(End::Close(text(why).to_owned())),
            Entry::Request { answer, .. } => drop(answer.send(Err(why.clone()))),
            // Drops the entry: the peers disconnect, or ask again.
            Entry::Message { .. } | Entry::Closed { .. } | Entry::Follow { .. } | Entry::FollowAll { .. } => {}
            Entry::HungUp | Entry::Redials { .. } | Entry::Settings(_) | Entry::Stop => {}
        }
    }

    /// Delivers effects. Returns the time on CLOCK_MONOTONIC (ms) at which to wake the machine; `None` if the machine
    /// requested no wake-up.
    pub(crate) fn deliver(&mut self, effects: Vec<Effect>) -> Option<u64> {
        let mut wake = None;
        for effect in effects {
            match effect {
                Effect::Send { session, message } => self.send(session, &message),
                Effect::Fan { start, to } => self.fan(&start, &to),
                Effect::Close { session, why } => {
                    if let Some(outlet) = self.sessions.get_mut(&session).and_then(Option::take) {
                        outlet.end(End::Close(why));
                    }
                }
                Effect::Reply { client, reply } => self.reply(client, reply),
                Effect::Publish { job, sequence, event } => {
                    log_verdict(&job, &event);
                    if let Some(followers) = self.followers.get_mut(&job) {
                        let event = Arc::new((sequence, event));
                        followers.retain(|queue| queue.put(event.clone()).is_ok());
                        if followers.is_empty() {
                            self.followers.remove(&job);
                        }
                    }
                }
                Effect::Answer { question, host, text, last, lost } => {
                    let gone = self
                        .questions
                        .get(&question)
                        .is_some_and(|queue| queue.put(Part { host, text, last, lost }).is_err());
                    if gone {
                        self.questions.remove(&question);
                    }
                }
                Effect::OutboxGrew => self.outbox.send_replace(()),
                Effect::WakeAt { mono_ms } => wake = Some(mono_ms),
                Effect::Note { level, job, host, text, by_node } => {
                    if host.as_ref().is_none_or(|host| !by_node || self.admits(host, &text)) {
                        log(level, job.as_ref().map(JobId::as_str), host.as_ref().map(HostName::as_str), &text);
                    }
                }
            }
        }
        wake
    }

    /// Returns `true` if the controller may log this line about a node. A node can cause any number of lines, so each
    /// host has a limit.
    fn admits(&self, host: &HostName, text: &str) -> bool {
        let (is_logged, suppressed) = self.of_nodes.admit(host.clone(), text).unwrap_or_default();
        if suppressed > 0 {
            tracing::warn!(host = host.as_str(), "{host}: {suppressed} more lines about it were not logged");
        }
        is_logged
    }

    /// Wakes the followers of all jobs' events if `records` has an event, and adds the changes in `records` to the
    /// feeds of the edges. Drops the feed of an edge that is gone or too slow. `replies_of`: returns the state of
    /// changed jobs ([`Feed::put`]).
    pub(crate) fn changed(
        &mut self,
        records: &[Record],
        replies_of: impl Fn(&AttemptsOf, Option<u64>) -> Option<Replies>,
    ) {
        if records.iter().any(|record| matches!(record, Record::Event { .. })) {
            self.logged.send_replace(());
        }
        if !self.feeds.is_empty() {
            let changes = Changes::of(records);
            self.feeds.retain_mut(|feed| feed.put(&changes, &replies_of));
        }
    }

    /// Drops the followers of jobs whose logs were pruned.
    pub(crate) fn forget<'a>(&mut self, jobs: impl Iterator<Item = &'a JobId>) {
        for job in jobs {
            self.followers.remove(job);
        }
    }

    /// Fails all callers and sessions after a failed commit: no peer may go on as if the commit had succeeded.
    pub(crate) fn drop_all(&mut self, why: &Refusal) {
        for (_, asker) in self.askers.drain() {
            let _ = asker.answer.send(Err(why.clone()));
        }
        self.end_all(text(why));
    }

    /// Ends every session and stream in an orderly way.
    pub(crate) fn end_all(&mut self, why: &str) {
        for (_, outlet) in self.sessions.drain() {
            if let Some(outlet) = outlet {
                outlet.end(End::Close(why.to_owned()));
            }
        }
        self.questions.clear();
        self.followers.clear();
        self.feeds.clear();
    }

    pub(super) fn follow(&mut self, job: JobId, events: EventQueue, ready: oneshot::Sender<()>) {
        // Without the sweep, the controller would notice a disconnected follower only at the job's next event, which
        // may never come.
        if self.following >= self.sweep_at {
            for queues in self.followers.values_mut() {
                queues.retain(|queue| !queue.is_closed());
            }
            self.followers.retain(|_, queues| !queues.is_empty());
            self.following = self.followers.values().map(Vec::len).sum();
            self.sweep_at = (2 * self.following).max(SWEEP_AT);
        }
        if ready.send(()).is_ok() {
            self.followers.entry(job).or_default().push(events);
            self.following += 1;
        }
    }

    fn send(&mut self, session: SessionId, message: &ToAgent) {
        match message {
            // A list too long for one frame goes out in several frames.
            ToAgent::Forget { tasks } if tasks.len() > MAX_FORGET => {
                for tasks in tasks.chunks(MAX_FORGET) {
                    self.put(session, encode_to_agent(&ToAgent::Forget { tasks: tasks.to_vec() }));
                }
            }
            message => self.put(session, encode_to_agent(message)),
        }
    }

    fn fan(&mut self, start: &Start, to: &[(SessionId, Rank, BootId)]) {
        let fan = self.fan.take().filter(|fan| fan.is_for(start)).unwrap_or_else(|| StartFan::new(start));
        for (already, (session, rank, boot)) in to.iter().enumerate() {
            fault::point_if("mid-fan", || already > 0);
            self.put(*session, fan.for_rank(*rank, boot, start.commit));
        }
        self.fan = Some(fan);
    }

    fn put(&mut self, session: SessionId, frame: bytes::Bytes) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        if slot.as_ref().is_some_and(|outlet| outlet.send(frame).is_err())
            && let Some(outlet) = slot.take()
        {
            outlet.end(End::Overflow);
        }
    }

    fn reply(&mut self, client: Client, reply: Result<Reply, Refusal>) {
        let Some(Asker { answer, parts }) = self.askers.remove(&client) else { return };
        if let (Ok(Reply::Asked { question, asked, .. }), Some(parts)) = (&reply, parts)
            && !asked.is_empty()
        {
            self.questions.insert(*question, parts);
        }
        // The caller may have disconnected.
        let _ = answer.send(reply);
    }
}

/// Returns the text of a refusal.
fn text(refusal: &Refusal) -> &str {
    use Refusal as R;
    let (R::NoSuchJob(text)
    | R::NoSuchAttempt(text)
    | R::NoSuchAction(text)
    | R::AttemptClosed(text)
    | R::NoSuchNode(text)
    | R::Conflict(text)
    | R::Invalid(text)
    | R::Unavailable(text)) = refusal;
    text
}

/// Logs the verdict if `event` is one, so that `journalctl PERILOG_JOB=` shows the verdict; the event log has the
/// details.
fn log_verdict(job: &JobId, event: &Event) {
    let word = |name: &str| event.context().and_then(|context| context.get(name)).and_then(|value| value.as_str());
    if event.name() == "verdict"
        && let (Some(action), Some(verdict)) = (word("action"), word("verdict"))
    {
        let bad = word("hosts").map(|hosts| format!("; not ok on {hosts}")).unwrap_or_default();
        tracing::info!(job = %job, action, "{action} of {job}: {verdict}{bad}");
    }
}

fn log(level: Level, job: Option<&str>, host: Option<&str>, text: &str) {
    // Fields are for programs; a person reads the line.
    let text = host.map_or_else(|| text.to_owned(), |host| format!("{host}: {text}"));
    match level {
        Level::Info => tracing::info!(job, host, "{text}"),
        Level::Warning => tracing::warn!(job, host, "{text}"),
        Level::Error => tracing::error!(job, host, "{text}"),
    }
}
