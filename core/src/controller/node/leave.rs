//! End of a session, by the agent or by the controller. If the session spoke for its host, no session does so from then
//! on, and clients with an open question to the host learn that no further answer will come.

use crate::agent::io::Level;
use crate::controller::interface::io::{Effect, SessionId};
use crate::controller::state::Nodes;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::session::Stage;
use crate::ids::HostName;
use crate::message::ToAgent;

impl Nodes {
    /// Refuses a session that claims `host`, and sends the agent the reason.
    pub(crate) fn turn_away(&mut self, id: SessionId, host: &HostName, why: &str, cx: &mut Context) {
        let peer = self.sessions.get(&id).map(|s| s.peer.clone()).unwrap_or_default();
        cx.note_of_node(Level::Error, host, format!("{peer} is turned away: {why}"));
        cx.send(id, ToAgent::TurnedAway { why: why.to_owned() });
        self.end_session(id, why, cx);
    }

    /// Ends a session because the controller decided so, for the reason `why`. Late messages of the session are dropped
    /// until the transport confirms the end with `Closed`.
    pub(crate) fn end_session(&mut self, id: SessionId, why: &str, cx: &mut Context) {
        cx.effects.push(Effect::Close { session: id, why: why.to_owned() });
        self.probing.remove(&id);
        if let Some(session) = self.sessions.get_mut(&id)
            && let Stage::Open { host, .. } = std::mem::replace(&mut session.stage, Stage::Over)
        {
            self.away(&host, id, cx);
        }
    }

    /// Records that the host is no longer connected, if the session `id` spoke for it. Ends the host's part of open
    /// questions. Does nothing if another session speaks for the host.
    pub(crate) fn away(&mut self, host: &HostName, id: SessionId, cx: &mut Context) {
        let Some(node) = self.get_mut(host).filter(|node| node.session == Some(id)) else {
            return;
        };
        node.session = None;
        node.since_ms = cx.now.mono_ms;
        node.live.clear();
        node.unsettled.drop_judged();
        for (question, asked) in &mut self.questions {
            if asked.remove(host) {
                let (question, host, text) = (*question, host.clone(), String::new());
                cx.effects.push(Effect::Answer { question, host, text, last: true, lost: true });
            }
        }
        self.questions.retain(|_, asked| !asked.is_empty());
        cx.changes.push_back(Change::Away(host.clone()));
    }
}
