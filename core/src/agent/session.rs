//! Session with the controller: decides which controller the agent accepts, and from when. The agent says Hello and
//! gets the Welcome. Before the Welcome, any message but TurnedAway and Unsupported is a protocol error. Messages after
//! the Welcome wait until the epoch is on disk.
//!
//! ```text
//!   down --LinkUp--> waiting --Joined--> greeted --Welcome--> pending --EpochWritten--> open
//!                    (Hello)                 |                 (a higher epoch)
//!                                            +--Welcome, the epoch last accepted---> open
//!   any --LinkDown--> down      any --Hang--> hung (deaf until the next LinkUp)
//! ```

use std::collections::VecDeque;

use crate::defect;
use crate::ids::{ClusterId, Epoch};
use crate::mark::AcceptedEpoch;
use crate::message::{Ask, FromAgent, ToAgent};

use super::io::{Effect, Level};
use super::machine::{Cx, Machine};
use super::task::State;

/// Maximum number of messages that wait while the daemon writes an epoch, each at most a frame. If more arrive, the
/// agent ends the session. In the next session the controller repeats what its tasks need, and by then the epoch is
/// normally on disk.
pub(super) const MAX_PENDING: usize = 256;

#[derive(Debug, Default)]
enum Link {
    #[default]
    Down,
    /// The daemon has connected, but the machine does not know the host's tasks yet: the first `Joined` is still to
    /// come.
    Waiting {
        counter: u64,
    },
    Greeted,
    Pending {
        welcome: Welcome,
        messages: VecDeque<ToAgent>,
    },
    Open,
    Hung,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Welcome {
    epoch: Epoch,
    cluster: ClusterId,
    redial_window_ms: u64,
    commit: u64,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    link: Link,
    /// The cluster of the last session that opened.
    pub(super) cluster: Option<ClusterId>,
    /// The contents of `epoch.json` on disk, with the highest epoch that the agents of this host have accepted; `None`:
    /// there is no such file.
    pub(super) accepted: Option<AcceptedEpoch>,
    /// The contents of `epoch.json` that the daemon is writing now; `None`: it is writing none.
    writing: Option<AcceptedEpoch>,
    /// Whether the agent has logged, in this session, that the controller answered `Unsupported`.
    noted_unsupported: bool,
}

impl Session {
    /// Returns the newest contents of `epoch.json`, even if the daemon is still writing them; `None`: no agent of this
    /// host has accepted an epoch.
    pub(super) fn highest(&self) -> Option<AcceptedEpoch> {
        self.writing.or(self.accepted)
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.link, Link::Open)
    }

    /// Returns `true` from the Hello of this session to the session's end: the Hello cannot show later changes of a
    /// task.
    pub(super) const fn is_greeted(&self) -> bool {
        matches!(self.link, Link::Greeted | Link::Pending { .. } | Link::Open)
    }

    pub(super) const fn state_text(&self) -> &'static str {
        match self.link {
            Link::Down => "not connected",
            Link::Waiting { .. } | Link::Greeted | Link::Pending { .. } => "connecting",
            Link::Open => "connected",
            Link::Hung => "turned away",
        }
    }
}

impl Machine {
    pub(super) fn on_link_up(&mut self, counter: u64, cx: &mut Cx) {
        self.session.noted_unsupported = false;
        self.session.link = Link::Waiting { counter };
        self.greet(cx);
    }

    /// Sends the Hello, if the daemon has connected and the machine knows the host's tasks.
    pub(super) fn greet(&mut self, cx: &mut Cx) {
        let Link::Waiting { counter } = self.session.link else { return };
        if !self.joined {
            return;
        }
        self.session.link = Link::Greeted;
        for hello in self.hello(counter, cx.now) {
            cx.push(Effect::Send(FromAgent::Hello(hello)));
        }
    }

    pub(super) fn on_link_down(&mut self) {
        self.session.link = Link::Down;
    }

    fn hang(&mut self, why: impl Into<String>, cx: &mut Cx) {
        self.session.link = Link::Hung;
        cx.push(Effect::Hang { why: why.into() });
    }

    /// Ends a session whose Hello has been sent, after the node's configured actions changed: only the Hello of a new
    /// session can report the new actions.
    pub(super) fn greet_anew(&mut self, cx: &mut Cx) {
        if self.session.is_greeted() {
            self.hang("the configured actions of this node have changed, and a new session reports them", cx);
        }
    }

    pub(super) fn on_message(&mut self, message: ToAgent, cx: &mut Cx) {
        match (&mut self.session.link, message) {
            (Link::Down | Link::Hung, _) => {}
            (_, ToAgent::TurnedAway { why }) => {
                cx.note(Level::Warning, None, None, format!("the controller turned this host away: {why}"));
                self.hang(format!("turned away: {why}"), cx);
            }
            (_, ToAgent::Unsupported { message }) => {
                if !std::mem::replace(&mut self.session.noted_unsupported, true) {
                    let text = format!(
                        "the controller does not know a message (type {message}) that this agent sends, and ignores \
                         it. Upgrade perilog-controller"
                    );
                    cx.note(Level::Warning, None, None, text);
                }
            }
            (Link::Greeted, ToAgent::Welcome { epoch, cluster, redial_window_ms, commit }) => {
                self.on_welcome(Welcome { epoch, cluster, redial_window_ms, commit }, cx)
            }
            (Link::Waiting { .. } | Link::Greeted, _) => {
                self.hang("the controller broke the protocol: it sent a message before its Welcome", cx)
            }
            (_, ToAgent::Welcome { .. }) => self.hang("the controller broke the protocol: it sent Welcome twice", cx),
            (Link::Pending { messages, .. }, message) => {
                if messages.len() < MAX_PENDING {
                    messages.push_back(message);
                } else {
                    let why = format!(
                        "the controller sent more than {MAX_PENDING} messages before this host had its epoch on disk"
                    );
                    self.hang(why, cx);
                }
            }
            (Link::Open, message) => self.on_message_of_controller(message, cx),
        }
    }

    fn on_welcome(&mut self, welcome: Welcome, cx: &mut Cx) {
        let highest = self.session.highest().map(|accepted| accepted.epoch);
        if let Some(seen) = highest.filter(|highest| !may_accept(*highest, welcome.epoch)) {
            cx.push(Effect::Send(FromAgent::EpochRefused { seen }));
            let ours = welcome.epoch;
            let why = format!(
                "its epoch {} (nonce {:x}) is not above the epoch {} (nonce {:x}) that this host has accepted before. \
                 If no other controller runs, run on this one's host: perilog controller recover --take-over",
                ours.number, ours.nonce, seen.number, seen.nonce
            );
            cx.note(Level::Error, None, None, format!("the controller was rejected: {why}"));
            return self.hang(why, cx);
        }
        let limit = Epoch::highest_acceptable(cx.now.wall_ms);
        if defect!(AnyEpochAccepted) {
        } else if highest != Some(welcome.epoch) && welcome.epoch.number > limit {
            let why = format!(
                "its epoch {} is above {limit}, the highest that a controller can have by now. Is this host's clock \
                 right (timedatectl)? If it is, the controller's key may have been stolen",
                welcome.epoch.number
            );
            cx.note(Level::Error, None, None, format!("the controller was rejected: {why}"));
            return self.hang(why, cx);
        }
        let (epoch, cluster) = (welcome.epoch, Some(welcome.cluster));
        let is_this = |accepted: &AcceptedEpoch| accepted.epoch == epoch && accepted.cluster == cluster;
        if self.session.accepted.is_some_and(|accepted| is_this(&accepted)) && self.session.writing.is_none() {
            return self.open(welcome, cx);
        }
        if !self.session.writing.is_some_and(|writing| is_this(&writing)) {
            self.write_epoch(AcceptedEpoch { epoch, cluster, commit: welcome.commit }, cx);
        }
        self.session.link = Link::Pending { welcome, messages: VecDeque::new() };
    }

    pub(super) fn on_epoch_written(&mut self, epoch: Epoch, result: Result<(), String>, cx: &mut Cx) {
        let written = self.session.writing.take_if(|writing| writing.epoch == epoch);
        if result.is_ok() && self.session.accepted.is_none_or(|known| known.epoch.admits(epoch)) {
            self.session.accepted = Some(written.unwrap_or_else(|| epoch.into()));
        }
        let Link::Pending { welcome, messages } = &mut self.session.link else { return };
        if welcome.epoch != epoch {
            return;
        }
        if let Err(text) = result {
            return self.hang(format!("the controller's epoch cannot be recorded on this host: {text}"), cx);
        }
        let (welcome, messages) = (*welcome, std::mem::take(messages));
        self.open(welcome, cx);
        for message in messages {
            self.on_message(message, cx);
        }
    }

    pub(super) fn write_epoch(&mut self, accepted: AcceptedEpoch, cx: &mut Cx) {
        self.session.writing = Some(accepted);
        cx.push(Effect::WriteEpoch { accepted });
    }

    fn open(&mut self, welcome: Welcome, cx: &mut Cx) {
        self.session.link = Link::Open;
        self.session.cluster = Some(welcome.cluster);
        cx.push(Effect::RedialWindow { ms: welcome.redial_window_ms });
        self.report_changes_since_hello(cx);
    }

    /// Reports, after the Welcome, the facts that Hello omits: unacknowledged ends, milestones, announced reboots, and
    /// changes since the Hello.
    fn report_changes_since_hello(&mut self, cx: &mut Cx) {
        for id in self.in_order() {
            let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.intent.local) else { continue };
            let changed_since_hello = std::mem::take(&mut task.changed_since_hello);
            match &task.state {
                State::Ended { .. } if defect!(DropFinishedOnReconnect) => {}
                State::Ended { .. } => self.send_end(id, cx),
                State::WritingTombstone { .. } | State::Recording => {}
                _ => {
                    if changed_since_hello {
                        let age_ms = task.phase_age_ms(cx.now);
                        let (phase, limit_ms) = (task.phase.clone(), task.intent.limit_ms());
                        self.send(cx, FromAgent::Accepted { task: id, limit_ms });
                        if let Some(phase) = phase {
                            self.send(cx, FromAgent::PhaseChanged { task: id, phase, age_ms });
                        }
                    }
                    self.send_milestones(id, cx);
                    self.send_expected_boot(id, cx);
                }
            }
        }
        for entry in self.tombstones.unacknowledged() {
            self.send_tombstone(cx, &entry.tombstone);
        }
    }

    fn on_message_of_controller(&mut self, message: ToAgent, cx: &mut Cx) {
        match message {
            ToAgent::Start(start) => self.on_start(start, cx),
            ToAgent::Begin { task } => self.on_begin(task, cx),
            ToAgent::Cancel { task, job, attempt, action, why: _, commit } => {
                let key = (&job, attempt, &action);
                self.on_cancel(task, key, commit, cx)
            }
            ToAgent::Signal { task, signal } => self.on_signal(task, signal, cx),
            ToAgent::Ack { task, commit } => self.on_ack(task, commit, cx),
            ToAgent::BootExpected { task } => self.on_boot_expected(task, cx),
            ToAgent::Forget { tasks } => self.on_forget(&tasks),
            ToAgent::Probe { nonce } => self.send(cx, FromAgent::Probed { nonce }),
            ToAgent::Ask { question, ask } => {
                let tasks = match &ask {
                    Ask::Logs { job, .. } => self.statuses(cx.now, |task| task.intent.start.job == *job),
                    Ask::Status => self.statuses(cx.now, |_| true),
                };
                cx.push(Effect::Answer { question, ask, tasks });
            }
            // `on_message` has handled these.
            ToAgent::Welcome { .. } | ToAgent::TurnedAway { .. } | ToAgent::Unsupported { .. } => {}
        }
    }

    /// Handles a Begin: confirms a task that Hello showed as unclaimed.
    fn on_begin(&mut self, id: crate::ids::TaskId, cx: &mut Cx) {
        match self.tasks.get_mut(&id) {
            Some(task) if task.intent.local => {}
            Some(task) => task.confirm(),
            None => match self.tombstones.get(id) {
                Some(entry) => self.send_tombstone(cx, &entry.tombstone),
                None => {
                    cx.note(Level::Warning, Some(id), None, "the controller began a task that this node does not have")
                }
            },
        }
    }
}

fn may_accept(highest: Epoch, other: Epoch) -> bool {
    if defect!(IgnoreEpoch) {
        return true;
    }
    if defect!(IgnoreNonce) { other.number >= highest.number } else { highest.admits(other) }
}
