//! Two sessions that claim one host. A newer session of the same agent replaces the older session. An agent of another
//! machine or boot waits until the older session has answered a probe, or failed to answer.

use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::machine::{Machine, Node};
use crate::controller::session::{Session, Stage};
use crate::defect;
use crate::ids::{BootId, MachineId};
use crate::message::{Hello, ToAgent};

/// Boots of a node that are known to be over. A Hello is late by what a connection can hold back, not by days of
/// reboots.
const BOOTS_KEPT: usize = 8;

impl Node {
    /// Returns `true` if the controller has heard this agent in a session that the agent began later.
    fn has_heard_after(&self, hello: &Hello) -> bool {
        let same = self.row.machine == hello.machine && self.row.boot == hello.boot;
        same && self.link.is_some_and(|link| link >= hello.link)
    }

    /// Notes a new boot of the machine that the controller knows: the boot before never returns.
    pub(super) fn boots(&mut self, machine: &MachineId, boot: &BootId) {
        if self.row.machine == *machine && self.row.boot != *boot {
            self.over.push(self.row.boot.clone());
            let surplus = self.over.len().saturating_sub(BOOTS_KEPT);
            self.over.drain(..surplus);
        }
    }

    fn is_over(&self, hello: &Hello) -> bool {
        self.row.machine == hello.machine && (self.over.contains(&hello.boot) || hello.boot.is_before(&self.row.boot))
    }
}

impl Machine {
    /// Handles a complete Hello: looks for another session that speaks for this host.
    pub(super) fn greeted(&mut self, id: SessionId, hello: Box<Hello>, now: Now) {
        if self.nodes.get(&hello.host).is_some_and(|node| node.is_over(&hello)) {
            return self.end_session(id, "of a boot of its node that is over", now);
        }
        let older = self.nodes.get(&hello.host).and_then(|node| node.session).filter(|older| *older != id);
        let Some(older) = older else {
            // The last frames of a dead agent may arrive after its successor's session has also ended.
            if self.nodes.get(&hello.host).is_some_and(|node| node.has_heard_after(&hello)) {
                return self.end_session(id, "an older session of this agent than the last one that stood", now);
            }
            return self.open(id, *hello, now);
        };
        let same_agent = match self.sessions.get(&older).map(|s| &s.stage) {
            Some(Stage::Open { machine, boot, link, .. }) if *machine == hello.machine && *boot == hello.boot => {
                Some(*link)
            }
            _ => None,
        };
        match same_agent {
            Some(link) if link >= hello.link => {
                self.end_session(id, "an older session of this agent than the one that stands", now)
            }
            Some(_) => {
                self.end_session(older, "replaced by a newer session of the same agent", now);
                self.open(id, *hello, now);
            }
            None if defect!(CloneReplaces) => {
                self.end_session(older, "replaced", now);
                self.open(id, *hello, now);
            }
            None => {
                self.probe_last += 1;
                let nonce = self.probe_last;
                let until_ms = now.mono_ms.saturating_add(self.settings.probe_ms);
                // A third claimant waits for nobody: only the latest Hello remains a claim.
                let rivals: Vec<SessionId> = self.probing_of(older);
                for rival in rivals {
                    self.end_session(rival, "another agent claims this host", now);
                }
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.stage = Stage::Probing { hello, older, nonce, until_ms };
                    self.probing.insert(id);
                }
                self.batch.effects.push(Effect::Send { session: older, message: ToAgent::Probe { nonce } });
            }
        }
    }

    /// Few, among the sessions of all nodes.
    fn probing(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.probing.iter().filter_map(|id| Some((*id, self.sessions.get(id)?)))
    }

    pub(super) fn probing_of(&self, of: SessionId) -> Vec<SessionId> {
        let probes = |s: &Session| matches!(&s.stage, Stage::Probing { older, .. } if *older == of);
        self.probing().filter(|(_, s)| probes(s)).map(|(id, _)| id).collect()
    }

    /// Refuses the newer session, because the older session answered and is alive: the newer one is another machine of
    /// the same name.
    pub(super) fn on_probed(&mut self, older: SessionId, answer: u64, now: Now) {
        for id in self.probing_of(older) {
            let Some(Session { peer, stage: Stage::Probing { hello, nonce, .. } }) = self.sessions.get(&id) else {
                continue;
            };
            if *nonce != answer {
                continue;
            }
            let (host, peer) = (hello.host.clone(), peer.clone());
            let stands = self.sessions.get(&older).map(|s| s.peer.clone()).unwrap_or_default();
            let note = format!(
                "two machines claim {host}: {stands} stands, {peer} (machine {}, boot {}) was refused; is a certificate cloned?",
                hello.machine, hello.boot
            );
            self.turn_away(id, &host, &note, now);
            if let Some(node) = self.nodes.get_mut(&host) {
                node.note = Some(note);
            }
        }
    }

    /// Probes whose time is over: the older session is dead.
    pub(super) fn probes_due(&mut self, now: Now) {
        let due: Vec<(SessionId, SessionId)> = self
            .probing()
            .filter_map(|(id, s)| match &s.stage {
                Stage::Probing { older, until_ms, .. } if *until_ms <= now.mono_ms => Some((id, *older)),
                _ => None,
            })
            .collect();
        for (id, older) in due {
            self.end_session(older, "did not answer a probe while another session of its host was waiting", now);
            self.open_waiting(&[id], now);
        }
    }

    pub(super) fn next_probe(&self) -> Option<u64> {
        let until = |s: &Session| match &s.stage {
            Stage::Probing { until_ms, .. } => Some(*until_ms),
            _ => None,
        };
        self.probing().filter_map(|(_, session)| until(session)).min()
    }

    /// Returns `true` while the controller probes this node's session because another session claims the host.
    pub(super) fn is_probed(&self, node: &Node) -> bool {
        node.session.is_some_and(|id| !self.probing_of(id).is_empty())
    }

    /// Opens the sessions that waited for an answer of the older session, which is gone. A session does not open if its
    /// agent has meanwhile returned with another one.
    pub(super) fn open_waiting(&mut self, waiting: &[SessionId], now: Now) {
        for id in waiting {
            if let Some(Session { stage: Stage::Probing { hello, .. }, .. }) = self.sessions.get(id) {
                let hello = hello.clone();
                self.greeted(*id, hello, now);
            }
        }
    }
}
