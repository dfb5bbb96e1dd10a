//! Sessions: decides how a connection becomes the session that speaks for a host, and handles its messages.
//!
//! ```text
//!   greeting --last page of Hello--> open      no other session of this host, or an older one of the same agent
//!                                 \-> probing ----> open      the older session, of another agent, did not answer
//!                                              \--> refused   the older session answered: the controller shows both
//! ```
//! An agent may speak only for the host that its certificate names.

use crate::agent::io::Level;
use crate::controller::interface::io::{Effect, SessionId};
use crate::controller::machine::Machine;
use crate::controller::state::Nodes;
use crate::controller::state::context::Context;
use crate::controller::state::session::{Session, Stage};
use crate::defect;
use crate::ids::Epoch;
use crate::message::FromAgent;

impl Nodes {
    /// Records the end of a connection. Sessions that waited for this one may open now.
    pub(crate) fn on_closed(&mut self, id: SessionId, why: &str, cx: &mut Context) {
        let waiting = self.probing_of(id);
        self.probing.remove(&id);
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        if let Stage::Open { host, .. } = session.stage {
            cx.note_of_node(Level::Info, &host, format!("offline: {why} ({})", session.peer));
            self.away(&host, id, cx);
        }
        self.open_waiting(&waiting, cx);
    }
}

impl Machine {
    /// Handles a message of an agent. Before the agent's session is open, only a Hello counts. `names`: the hosts for
    /// which the agent's certificate may speak; `None`: TLS is off.
    pub(crate) fn on_message(&mut self, id: SessionId, names: Option<&[String]>, peer: &str, message: FromAgent) {
        let session = self
            .nodes
            .sessions
            .entry(id)
            .or_insert_with(|| Session { peer: peer.to_owned(), stage: Stage::Greeting(None) });
        let host = match &session.stage {
            Stage::Over => return,
            Stage::Open { host, .. } => Some(host.clone()),
            Stage::Greeting(_) | Stage::Probing { .. } => None,
        };
        match (host, message) {
            (None, FromAgent::Hello(page)) => self.nodes.on_hello(id, names, page, &mut self.cx),
            (Some(_), FromAgent::Hello(_)) => self.nodes.end_session(id, "Hello twice in one session", &mut self.cx),
            // Before the Welcome an agent has nothing to report. A result in an early frame comes again as `Finished`.
            (None, _) => {}
            (Some(host), FromAgent::EpochRefused { seen }) => {
                let is_reachable = seen.number <= Epoch::highest_reachable(self.cx.now.wall_ms);
                let is_highest = self.highest_seen.as_ref().is_none_or(|(_, highest)| highest.number < seen.number);
                if is_reachable && is_highest {
                    self.highest_seen = Some((host.clone(), seen));
                }
                let cure = if !is_reachable {
                    "no take-over can reach that epoch yet; on that host: rm /run/perilog/epoch.json; systemctl \
                     restart perilog-agent"
                } else {
                    "if no other controller runs, take over with `perilog controller recover --take-over`"
                };
                let text = format!(
                    "the agent has accepted a controller of epoch {}, and this controller has epoch {}: {cure}",
                    seen.number, self.epoch.number
                );
                if let Some(node) = self.nodes.get_mut(&host) {
                    node.note = Some(text.clone());
                }
                self.cx.note_of_node(Level::Error, &host, text);
            }
            (Some(host), FromAgent::Accepted { task, limit_ms }) => self.on_accepted(id, &host, task, limit_ms),
            (Some(host), FromAgent::PhaseChanged { task, phase, age_ms }) => {
                if !self.nodes.unknown_phase_changed(&host, task, &phase, self.cx.now)
                    && self.nodes.speaks_for(&host, task, &self.jobs, &mut self.cx)
                {
                    self.on_phase_changed(&host, task, phase, age_ms);
                }
            }
            (Some(host), FromAgent::Milestone { task, name }) => {
                let is_unknown = self.nodes.get(&host).is_some_and(|node| node.unsettled.unknown.contains_key(&task));
                if !is_unknown && self.nodes.speaks_for(&host, task, &self.jobs, &mut self.cx) {
                    self.jobs.on_task_milestone(task, &name, &mut self.cx);
                }
            }
            (Some(host), FromAgent::Finished { task, ended }) => self.on_finished(id, &host, task, *ended),
            (Some(host), FromAgent::ExpectsBoot { task, within_ms, ended }) => {
                self.on_expects_boot(id, &host, task, within_ms, *ended)
            }
            (Some(_), FromAgent::Probed { nonce }) => self.nodes.on_probed(id, nonce, &mut self.cx),
            (Some(host), FromAgent::Answer { question, text, last }) => {
                let Some(asked) = self.nodes.questions.get_mut(&question).filter(|asked| asked.contains(&host)) else {
                    return;
                };
                if last {
                    asked.remove(&host);
                    if asked.is_empty() {
                        self.nodes.questions.remove(&question);
                    }
                }
                self.cx.effects.push(Effect::Answer { question, host, text, last, lost: false });
            }
            (Some(host), FromAgent::Unsupported { message }) => {
                let text = format!(
                    "the agent does not know messages of type {message}, and ignores them. Upgrade perilog-agent there"
                );
                self.cx.note_of_node(Level::Warning, &host, text);
            }
        }
    }
}

impl Nodes {
    /// Returns the redial window (ms) for a Welcome. The window is as long as this controller needs to welcome all
    /// nodes, by its measured rate. `per_second`: the rate that counts if it is higher, or if none was measured. So no
    /// agent gets a longer window than the gate of a later controller expects ([`redial_window_ms`]).
    pub(super) fn redial_window_ms(&self, per_second: u64) -> u64 {
        let measured = if defect!(RateIgnored) { 0 } else { self.measured_per_second };
        redial_window_ms(self.len() as u64, measured.max(per_second))
    }
}

/// Returns the redial window (ms), over which agents spread their redials: the number of agents divided by the
/// connections that the controller accepts in a second, and at least a second.
pub(crate) fn redial_window_ms(agents: u64, per_second: u64) -> u64 {
    (agents.saturating_mul(1000) / per_second.max(1)).max(1000)
}
