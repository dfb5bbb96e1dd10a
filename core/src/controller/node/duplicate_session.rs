//! Two sessions that claim one host: decides which session speaks for the host. A newer session of the same agent
//! replaces the older session. If machine, boot or address differ, the controller sends the older session a liveness
//! probe. An answer refuses the newer session; without an answer in time, the newer session opens. Machine id and boot
//! id alone prove nothing, because a thief of a node's key can read both on the node.

use crate::agent::io::Level;
use crate::controller::interface::io::{Effect, Now, SessionId};
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::session::{Session, Stage};
use crate::controller::state::{Node, Nodes};
use crate::defect;
use crate::ids::{BootId, MachineId};
use crate::message::{Hello, ToAgent};

/// Number of past boots remembered for each node. The network can hold a Hello back for a minute, and in that time a
/// node does not boot more often.
const BOOTS_KEPT: usize = 8;
/// Highest plausible session number. Agents number sessions by the milliseconds since boot, and this is 34 years.
const MAX_LINK: u64 = 1 << 40;
/// Longest time (ms) for which the network can delay a Hello. The listener ends a connection earlier if no complete
/// Hello arrives.
const LATE_MS: u64 = 60_000;

/// Returns the address of a peer, without its port.
pub(crate) fn address(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(address, _)| address)
}

impl Node {
    /// Returns `true` if the Hello's agent has already had an open session with the Hello's number (`Hello::link`) or a
    /// higher number: the Hello is old.
    fn is_newer_than(&self, hello: &Hello) -> bool {
        let same = self.row.machine == hello.machine && self.row.boot == hello.boot;
        same && self.link.is_some_and(|link| link >= hello.link)
    }

    /// Returns `true` if a Hello from the address `from` may be old: sent before the node's last session began, and
    /// delayed by the network. A Hello from that session's address always may be. A Hello from another address may be
    /// old only within a minute after that session has ended. So a thief who forges session numbers or boots can lock
    /// the true agent out for at most a minute.
    fn may_be_late(&self, from: &str, now: Now) -> bool {
        self.address == from || self.has_just_ended(now)
    }

    /// Returns `true` if the node's last session has ended within the longest time for which the network can delay a
    /// Hello.
    fn has_just_ended(&self, now: Now) -> bool {
        self.session.is_none() && now.mono_ms < self.since_ms.saturating_add(LATE_MS)
    }

    /// Records that the node's machine has left its last boot, if `boot` is another boot of the same machine. The
    /// controller takes a later Hello of that boot for an old one, also if a restored snapshot sent it.
    pub(crate) fn boots(&mut self, machine: &MachineId, boot: &BootId) {
        if self.row.machine == *machine && self.row.boot != *boot {
            self.over.push(self.row.boot.clone());
            let surplus = self.over.len().saturating_sub(BOOTS_KEPT);
            self.over.drain(..surplus);
        }
    }

    /// Returns `true` if the Hello is of an earlier boot of the node's machine.
    fn is_over(&self, hello: &Hello, now: Now) -> bool {
        // Agents number sessions by a clock of the kernel, which restarts of a container do not stop. Only as long as
        // the network can delay a Hello: a restored snapshot sets that clock back.
        let of_same_kernel = self.row.boot != hello.boot && self.row.boot.kernel() == hello.boot.kernel();
        let has_lower_number = self.link.is_some_and(|link| link > hello.link);
        let is_before =
            hello.boot.is_before(&self.row.boot) || of_same_kernel && has_lower_number && self.has_just_ended(now);
        self.row.machine == hello.machine && (self.over.contains(&hello.boot) || is_before)
    }
}

impl Nodes {
    /// Decides about a session whose Hello is complete: opens it, refuses it, or makes it wait until an older session
    /// of the host has been probed. `note`: a text for operators, shown once the session is open.
    pub(crate) fn greeted(&mut self, id: SessionId, hello: Box<Hello>, note: Option<String>, cx: &mut Context) {
        if hello.link > MAX_LINK {
            let why = format!("its session number {} is higher than that of any agent", hello.link);
            return self.turn_away(id, &hello.host, &why, cx);
        }
        let peer = self.sessions.get(&id).map(|session| session.peer.clone()).unwrap_or_default();
        let from = address(&peer);
        let late = self.get(&hello.host).filter(|node| node.may_be_late(from, cx.now));
        if late.is_some_and(|node| node.is_over(&hello, cx.now)) {
            return self.turn_away(id, &hello.host, "the session is of an earlier boot of its node", cx);
        }
        let is_answered = late.is_some_and(|node| node.is_newer_than(&hello));
        let older = self.get(&hello.host).and_then(|node| node.session).filter(|older| *older != id);
        let Some(older) = older else {
            // The Hello of an agent that has died since may arrive after its successor's session has ended.
            if is_answered {
                let why = "the session is older than the last open session of this agent";
                return self.turn_away(id, &hello.host, why, cx);
            }
            return cx.changes.push_back(Change::Greeted(id, hello, note));
        };
        let same_agent = match self.sessions.get(&older) {
            Some(Session { stage: Stage::Open { machine, boot, link, .. }, peer: of })
                if *machine == hello.machine && *boot == hello.boot && address(of) == from =>
            {
                Some((*link, of.clone()))
            }
            _ => None,
        };
        match same_agent {
            Some((link, _)) if link >= hello.link => {
                self.turn_away(id, &hello.host, "the session is older than the open session of this agent", cx)
            }
            Some((_, of)) => {
                let text = format!("its session from {of} was replaced by a newer one from the same address, {peer}");
                cx.note_of_node(Level::Info, &hello.host, text);
                self.end_session(older, "replaced by a newer session of the same agent", cx);
                cx.changes.push_back(Change::Greeted(id, hello, note));
            }
            None if defect!(CloneReplaces) => {
                self.end_session(older, "replaced", cx);
                cx.changes.push_back(Change::Greeted(id, hello, note));
            }
            None => {
                self.probe_last += 1;
                let nonce = self.probe_last;
                let until_ms = cx.now.mono_ms.saturating_add(cx.settings.probe_ms);
                // Only the latest Hello remains a claim: the claims before it are refused.
                let rivals: Vec<SessionId> = self.probing_of(older);
                for rival in rivals {
                    self.turn_away(rival, &hello.host, "another agent claims this host", cx);
                }
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.stage = Stage::Probing { hello, older, nonce, until_ms };
                    self.probing.insert(id);
                }
                cx.effects.push(Effect::Send { session: older, message: ToAgent::Probe { nonce } });
            }
        }
    }

    /// Refuses the newer session that claims the host, because the older session has answered the liveness probe: two
    /// machines claim the same host. `answer`: the nonce in the answer; a wrong nonce changes nothing.
    pub(crate) fn on_probed(&mut self, older: SessionId, answer: u64, cx: &mut Context) {
        for id in self.probing_of(older) {
            let Some(Session { peer, stage: Stage::Probing { hello, nonce, .. } }) = self.sessions.get(&id) else {
                continue;
            };
            if *nonce != answer {
                continue;
            }
            let (host, peer) = (hello.host.clone(), peer.clone());
            let holder = self.sessions.get(&older).map(|s| s.peer.clone()).unwrap_or_default();
            let note = format!(
                "two machines claim {host}: {holder} keeps the name, and {peer} (machine {}, boot {}) was refused; was \
                 a certificate copied to a second machine?",
                hello.machine, hello.boot
            );
            self.turn_away(id, &host, &note, cx);
            if let Some(node) = self.get_mut(&host) {
                node.note = Some(note);
            }
        }
    }

    /// Replaces each older session that has not answered its liveness probe in time by the newer session that waited.
    pub(crate) fn probes_due(&mut self, cx: &mut Context) {
        let due: Vec<(SessionId, SessionId)> = self
            .probing()
            .filter_map(|(id, s)| match &s.stage {
                Stage::Probing { older, until_ms, .. } if *until_ms <= cx.now.mono_ms => Some((id, *older)),
                _ => None,
            })
            .collect();
        for (id, older) in due {
            let peer = |id: SessionId| self.sessions.get(&id).map(|session| session.peer.clone()).unwrap_or_default();
            let text =
                format!("its session from {} did not answer, and a new one from {} replaced it", peer(older), peer(id));
            let moved = address(&peer(older)) != address(&peer(id));
            self.end_session(older, "did not answer a probe while another session of its host was waiting", cx);
            if let Some(Session { stage: Stage::Probing { hello, .. }, .. }) = self.sessions.get(&id) {
                let hello = hello.clone();
                cx.note_of_node(Level::Warning, &hello.host, text.clone());
                self.greeted(id, hello, moved.then_some(text), cx);
            }
        }
    }

    /// Decides anew about the sessions in `waiting` ([`Self::greeted`]), because the older session for which they
    /// waited has ended.
    pub(crate) fn open_waiting(&mut self, waiting: &[SessionId], cx: &mut Context) {
        for id in waiting {
            if let Some(Session { stage: Stage::Probing { hello, .. }, .. }) = self.sessions.get(id) {
                let hello = hello.clone();
                self.greeted(*id, hello, None, cx);
            }
        }
    }

    /// Returns the sessions that wait for the result of a liveness probe of their host's older session.
    fn probing(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.probing.iter().filter_map(|id| Some((*id, self.sessions.get(id)?)))
    }

    /// Returns the sessions that wait for a probe of the older session `of`.
    pub(crate) fn probing_of(&self, of: SessionId) -> Vec<SessionId> {
        let probes = |s: &Session| matches!(&s.stage, Stage::Probing { older, .. } if *older == of);
        self.probing().filter(|(_, s)| probes(s)).map(|(id, _)| id).collect()
    }

    /// Returns the time (monotonic) at which the next probe runs out; `None`: no probe is open.
    pub(crate) fn next_probe(&self) -> Option<u64> {
        let until = |s: &Session| match &s.stage {
            Stage::Probing { until_ms, .. } => Some(*until_ms),
            _ => None,
        };
        self.probing().filter_map(|(_, session)| until(session)).min()
    }

    /// Returns `true` while a probe of this node's session is open, because another session claims the host.
    pub(crate) fn is_probed(&self, node: &Node) -> bool {
        node.session.is_some_and(|id| !self.probing_of(id).is_empty())
    }
}
