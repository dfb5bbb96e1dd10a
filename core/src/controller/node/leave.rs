//! End of a session, from either side: no session speaks for the host any more.

use crate::agent::io::Level;
use crate::controller::io::{Effect, SessionId};
use crate::controller::machine::Machine;
use crate::controller::node::session::Stage;
use crate::ids::HostName;
use crate::message::ToAgent;

impl Machine {
    pub(crate) fn turn_away(&mut self, id: SessionId, host: &HostName, why: &str) {
        let peer = self.sessions.get(&id).map(|s| s.peer.clone()).unwrap_or_default();
        self.cx.note_of_node(Level::Error, host, format!("{peer} is turned away: {why}"));
        self.cx.send(id, ToAgent::TurnedAway { why: why.to_owned() });
        self.end_session(id, why);
    }

    /// Ends a session from the controller's side. The controller drops late frames of the session; the transport
    /// confirms with `Closed`.
    pub(crate) fn end_session(&mut self, id: SessionId, why: &str) {
        self.cx.effects.push(Effect::Close { session: id, why: why.to_owned() });
        self.probing.remove(&id);
        if let Some(session) = self.sessions.get_mut(&id)
            && let Stage::Open { host, .. } = std::mem::replace(&mut session.stage, Stage::Over)
        {
            self.away(&host, id);
        }
    }

    /// Records that no session speaks for this host any more.
    pub(crate) fn away(&mut self, host: &HostName, id: SessionId) {
        let Some(node) = self.nodes.get_mut(host).filter(|node| node.session == Some(id)) else {
            return;
        };
        node.session = None;
        node.since_ms = self.cx.now.mono_ms;
        node.live.clear();
        for (question, asked) in &mut self.questions {
            if asked.remove(host) {
                let (question, host, text) = (*question, host.clone(), String::new());
                self.cx.effects.push(Effect::Answer { question, host, text, last: true, lost: true });
            }
        }
        self.questions.retain(|_, asked| !asked.is_empty());
        if let Some(node) = self.nodes.get(host) {
            // Accepted tasks of the node may become unreachable.
            self.jobs.check_all(&node.tasks, self.cx.now.mono_ms.saturating_add(self.cx.settings.unreachable_grace_ms));
        }
        if self.recovery.orphan_hosts.contains(host) {
            self.reordered_on(host);
        }
    }
}
