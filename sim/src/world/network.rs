//! A model of TCP: frames arrive in order and late; a connection ends for one side or for both; a side notices silence
//! after a while.

use std::collections::VecDeque;

use perilog_core::Commit;
use perilog_core::controller::Input as ControllerInput;
use perilog_core::controller::io::SessionId;
use perilog_core::message::{FromAgent, ToAgent};
use perilog_proto::{Decoded, decode_from_agent, encode_from_agent, encode_to_agent};

use super::World;
use super::event::{AgentEvent, Event};
use super::site;
use crate::plan::Side;

/// The largest time (ms) to which an agent on its own extends its redial window (`agent/src/link/window.rs`).
const WINDOW_CEILING_MS: u64 = 30_000;
/// Time (ms) after which a side gives up a silent peer: TCP_USER_TIMEOUT and keepalive.
const SILENCE_MS: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) node: usize,
    agent_incarnation: u64,
    pub(crate) which: usize,
    controller_incarnation: u64,
    pub(crate) session: SessionId,
    /// Whether the agent considers the connection open.
    agent_open: bool,
    /// Whether the controller considers the connection open.
    controller_open: bool,
    /// The newest commit on the node's disk at its Hello; `None`: the disk has none, or the Hello was forged.
    newest: Option<Commit>,
    /// Whether the controller has sent its Welcome: the connection then speaks for its host.
    welcomed: bool,
    to_agent: VecDeque<Frame>,
    to_controller: VecDeque<Frame>,
    /// World time (ms) at which the last frame to the agent arrives. No frame overtakes another.
    agent_at: u64,
    /// World time (ms) at which the last frame to the controller arrives.
    controller_at: u64,
    /// Whether the connection carries no frame, not even a FIN: the agent's kernel died, or the world dropped the
    /// connection.
    dead: bool,
    /// World time (ms) at which the agent made the connection.
    opened_at: u64,
    /// World times (ms) at which the controller sent a liveness probe on this connection.
    pub(crate) probed_at: Vec<u64>,
    /// World time (ms) at which the controller closed the connection; `None`: not closed, or closed for a newer session
    /// of the same agent.
    closed_at: Option<u64>,
}

#[derive(Debug)]
enum Frame {
    Bytes(Vec<u8>),
    Fin,
}

impl World {
    pub(crate) fn dial(&mut self, at: usize, incarnation: u64) {
        let (t, node) = (self.t, &self.nodes[at]);
        let Some(agent) = node.agent.as_ref().filter(|agent| agent.incarnation == incarnation) else { return };
        if agent.conn.is_some() {
            return;
        }
        let up: Vec<usize> = (0..self.controllers.len()).filter(|which| self.controllers[*which].is_up()).collect();
        if t < node.cut_until || up.is_empty() || agent.stopped {
            let pause = self.dice.skewed(500, 5_000);
            return self.after(pause, Event::Dial { node: at, incarnation });
        }
        let which = up[self.dice.below(up.len())];
        self.conns_ever += 1;
        let conn = self.conns_ever;
        let session = SessionId(conn);
        let controller_incarnation = self.controllers[which].incarnation;
        self.controllers[which].sessions.insert(session, conn);
        let new = Conn {
            node: at,
            agent_incarnation: incarnation,
            which,
            controller_incarnation,
            session,
            agent_open: true,
            controller_open: true,
            newest: None,
            welcomed: false,
            to_agent: VecDeque::new(),
            to_controller: VecDeque::new(),
            agent_at: 0,
            controller_at: 0,
            dead: false,
            opened_at: self.t,
            probed_at: Vec::new(),
            closed_at: None,
        };
        self.conns.insert(conn, new);
        if let Some(agent) = self.nodes[at].agent.as_mut() {
            agent.conn = Some(conn);
        }
        let delay = self.dice.skewed(1, 50);
        self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::LinkUp { conn } });
    }

    /// Closes the connection of the node's agent, and schedules its next dial at a random moment within the agent's
    /// window. Returns `true` if there was a connection, so that the agent's machine must learn of its end.
    pub(crate) fn hang_up(&mut self, at: usize) -> bool {
        let Some(agent) = self.nodes[at].agent.as_mut() else { return false };
        let Some(conn) = agent.conn.take() else { return false };
        if !std::mem::take(&mut agent.welcomed) {
            agent.window_ms = (agent.window_ms * 2).min(WINDOW_CEILING_MS.max(agent.window_ms));
        }
        let (incarnation, window) = (agent.incarnation, agent.window_ms);
        self.agent_leaves(conn, true);
        let delay = self.dice.range(0, window.max(1));
        self.after(delay, Event::Dial { node: at, incarnation });
        true
    }

    /// Closes the agent's side of a connection. `fin`: whether the agent's kernel lives, and sends a FIN.
    pub(crate) fn agent_leaves(&mut self, conn: u64, fin: bool) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.agent_open = false;
        c.to_agent.clear();
        if fin {
            self.transmit(conn, Side::Controller, Frame::Fin);
        } else {
            c.dead = true;
            self.fall_silent(conn, Side::Controller);
        }
    }

    /// Returns `true` if the agent of this session still reads it.
    pub(crate) fn agent_reads(&self, which: usize, session: SessionId) -> bool {
        let conn = self.controllers[which].sessions.get(&session).and_then(|conn| self.conns.get(conn));
        conn.is_some_and(|conn| conn.agent_open && !conn.dead)
    }

    /// Closes the controller's side of a connection with a FIN.
    pub(crate) fn controller_leaves(&mut self, conn: u64) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.controller_open = false;
        c.to_controller.clear();
        self.transmit(conn, Side::Agent, Frame::Fin);
    }

    /// Closes a connection because the controller decided so, after all frames on their way.
    pub(crate) fn controller_closes(&mut self, conn: u64) {
        let t = self.t;
        if let Some(c) = self.conns.get_mut(&conn)
            && c.controller_open
        {
            c.closed_at = Some(t);
            let is_refused = !c.welcomed;
            self.controller_leaves(conn);
            if is_refused {
                self.came_again(conn);
            }
        }
    }

    /// Records that the controller has welcomed or refused this connection. If the controller closed an older
    /// connection of the same machine for it, that one made no room for other machines: their sessions may arrive in
    /// the same millisecond.
    fn came_again(&mut self, conn: u64) {
        let Some(newer) = self.conns.get(&conn) else { return };
        let (node, which, incarnation) = (newer.node, newer.which, newer.controller_incarnation);
        let is_of_it = |c: &Conn| c.node == node && c.which == which && c.controller_incarnation == incarnation;
        for (_, c) in self.conns.range_mut(..conn).filter(|(_, c)| is_of_it(c)) {
            c.closed_at = None;
        }
    }

    /// Breaks the connection of the node's agent. `side`: the side, or both sides, that learns of it at once. With one
    /// side only, the other side finds out after a long silence.
    pub(crate) fn drop_conn(&mut self, at: usize, side: Side) {
        let Some(conn) = self.nodes[at].agent.as_ref().and_then(|agent| agent.conn) else { return };
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.dead = true;
        match side {
            Side::Both => {
                self.close_side(conn, Side::Agent);
                self.close_side(conn, Side::Controller);
            }
            Side::Agent => {
                self.close_side(conn, Side::Agent);
                self.fall_silent(conn, Side::Controller);
            }
            Side::Controller => {
                self.close_side(conn, Side::Controller);
                self.fall_silent(conn, Side::Agent);
            }
        }
    }

    /// Cuts a node off: frames on their way wait, and each side gives up after a while.
    pub(crate) fn partition(&mut self, at: usize, ms: u64) {
        let node = &mut self.nodes[at];
        node.cut_until = node.cut_until.max(self.t + ms);
        let of_node: Vec<u64> = self.conns.iter().filter(|(_, c)| c.node == at).map(|(id, _)| *id).collect();
        for conn in of_node {
            self.fall_silent(conn, Side::Agent);
            self.fall_silent(conn, Side::Controller);
        }
    }

    /// Returns `true` if neither side considers the connection open.
    fn is_over(&self, conn: u64) -> bool {
        self.conns.get(&conn).is_none_or(|c| !c.agent_open && !c.controller_open)
    }

    fn fall_silent(&mut self, conn: u64, side: Side) {
        let delay = SILENCE_MS + self.dice.range(0, 3_000);
        self.after(delay, Event::Silence { conn, side });
    }

    pub(crate) fn silence(&mut self, conn: u64, side: Side) {
        if self.is_over(conn) {
            self.conns.remove(&conn);
        }
        let Some(c) = self.conns.get(&conn) else { return };
        let (cut, dead) = (self.t < self.nodes[c.node].cut_until, c.dead);
        let (other, other_gone) = match side {
            Side::Agent => (Side::Controller, !c.controller_open),
            _ => (Side::Agent, !c.agent_open),
        };
        // A kernel without the connection answers a keepalive with RST.
        if dead || cut || other_gone {
            self.close_side(conn, side);
            if !other_gone {
                self.fall_silent(conn, other);
            }
        }
    }

    /// Ends a connection for one side: the daemon there learns that the connection is lost.
    fn close_side(&mut self, conn: u64, side: Side) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if side == Side::Agent {
            if !std::mem::replace(&mut c.agent_open, false) {
                return;
            }
            let (node, incarnation) = (c.node, c.agent_incarnation);
            let delay = self.dice.range(0, 5);
            self.after(delay, Event::Agent { node, incarnation, event: AgentEvent::LinkDown { conn } });
        } else {
            if !std::mem::replace(&mut c.controller_open, false) {
                return;
            }
            let (which, incarnation, session) = (c.which, c.controller_incarnation, c.session);
            self.session_closed(which, incarnation, session, "the connection was lost");
        }
    }

    pub(crate) fn send_to_controller(&mut self, at: usize, mut message: FromAgent) {
        let is_forged = self.forge(at, &mut message);
        let Some(conn) = self.nodes[at].agent.as_ref().and_then(|agent| agent.conn) else { return };
        if matches!(message, FromAgent::Hello(_))
            && let Some(conn) = self.conns.get_mut(&conn)
        {
            conn.newest = self.nodes[at].spool.newest().filter(|_| !is_forged);
        }
        let bytes = encode_from_agent(&message);
        match decode_from_agent(&bytes) {
            Ok(Decoded::Known(read)) if read == message => {}
            other => {
                let text = format!("{message:?} is read as {other:?}");
                return self.violate("wire", &text);
            }
        }
        if self.conns.get(&conn).is_some_and(|c| c.agent_open) {
            self.transmit(conn, Side::Controller, Frame::Bytes(bytes.to_vec()));
        }
    }

    /// Records a Welcome: from now on this connection alone speaks for its host.
    pub(crate) fn welcome(&mut self, SessionId(conn): SessionId) {
        let Some(new) = self.conns.get_mut(&conn) else { return };
        new.welcomed = true;
        let (which, incarnation, node, since) = (new.which, new.controller_incarnation, new.node, new.opened_at);
        let newest = new.newest;
        // A connection from before the rollback carries the Welcome nowhere.
        if incarnation == self.controllers[which].incarnation {
            self.check_welcome(which, node, newest);
        }
        let host = &self.nodes[node].host;
        let is_gone =
            |c: &&Conn| c.closed_at == Some(self.t) && c.which == which && c.controller_incarnation == incarnation;
        let made_room = |c: &&Conn| c.welcomed && is_gone(c);
        // An earlier session may have taken the place, and given it to this one at once: a session of this machine, or
        // one that was turned away when its turn came.
        let gave = |c: &&Conn| c.node == node || !c.welcomed && self.nodes[c.node].host == *host;
        let earlier = self.conns.values().filter(is_gone).filter(gave).map(|c| c.opened_at).min();
        let since = earlier.map_or(since, |earlier| earlier.min(since));
        // Another machine's session makes room only after an unanswered probe, and after the shortest probe time of any
        // settings.
        let unasked = self.conns.values().filter(made_room).find(|c| {
            // Only a probe for this connection counts; earlier probes do not.
            let long_ago = |at: &u64| *at >= since && *at + site::settings(1).probe_ms <= self.t;
            let asked = c.probed_at.iter().any(long_ago);
            c.node != node && self.nodes[c.node].host == *host && !asked
        });
        if let Some(c) = unasked.filter(|_| self.controllers[which].epoch_begun_at != Some(self.t)) {
            let text =
                format!("n{node} takes the place of n{} at c{which}, which was not asked whether it lives", c.node);
            return self.violate("one host, one session", &text);
        }
        self.came_again(conn);
        let host = &self.nodes[node].host;
        let other = self.conns.iter().find(|(id, c)| {
            let delta = c.welcomed && c.controller_open && c.which == which && c.controller_incarnation == incarnation;
            **id != conn && delta && self.nodes[c.node].host == *host
        });
        if let Some((other, _)) = other {
            let text = format!("c{which} lets conn {conn} speak for {host} beside conn {other}");
            self.violate("one session", &text);
        }
    }

    pub(crate) fn send_to_agent(&mut self, conn: u64, message: &ToAgent) {
        let bytes = encode_to_agent(message);
        self.transmit_bytes(conn, bytes.to_vec());
    }

    pub(crate) fn transmit_bytes(&mut self, conn: u64, bytes: Vec<u8>) {
        if self.conns.get(&conn).is_some_and(|c| c.controller_open) {
            self.transmit(conn, Side::Agent, Frame::Bytes(bytes));
        }
    }

    fn transmit(&mut self, conn: u64, to: Side, frame: Frame) {
        let latency = if self.dice.one_in(40) { self.dice.range(0, 3_000) } else { self.dice.skewed(1, 20) };
        let Some(c) = self.conns.get_mut(&conn) else { return };
        let (queue, last) = match to {
            Side::Agent => (&mut c.to_agent, &mut c.agent_at),
            _ => (&mut c.to_controller, &mut c.controller_at),
        };
        queue.push_back(frame);
        *last = (*last).max(self.t + latency);
        let delay = *last - self.t;
        self.after(delay, Event::Deliver { conn, to });
    }

    pub(crate) fn deliver(&mut self, conn: u64, to: Side) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        let cut_until = self.nodes[c.node].cut_until;
        if self.t < cut_until {
            // All later frames wait at least as long and leave from the front: no frame overtakes another.
            let delay = cut_until - self.t + 1;
            return self.after(delay, Event::Deliver { conn, to });
        }
        let queue = if to == Side::Agent { &mut c.to_agent } else { &mut c.to_controller };
        let Some(frame) = queue.pop_front() else { return };
        if !c.agent_open && !c.controller_open && c.to_agent.is_empty() && c.to_controller.is_empty() {
            self.conns.remove(&conn);
            return;
        }
        if c.dead {
            return;
        }
        match (to, frame) {
            (Side::Agent, Frame::Bytes(frame)) if c.agent_open => {
                let (node, incarnation) = (c.node, c.agent_incarnation);
                self.after(0, Event::Agent { node, incarnation, event: AgentEvent::Message { conn, frame } });
            }
            (Side::Agent, Frame::Fin) => self.close_side(conn, Side::Agent),
            (Side::Controller, Frame::Bytes(frame)) if c.controller_open => self.receive(conn, &frame),
            (Side::Controller, Frame::Fin) => self.close_side(conn, Side::Controller),
            // The kernel of a closed side answers a frame with RST.
            (Side::Agent, Frame::Bytes(_)) => self.close_side(conn, Side::Controller),
            (_, Frame::Bytes(_)) => self.close_side(conn, Side::Agent),
            (Side::Both, Frame::Fin) => {}
        }
    }

    /// Delivers all frames that network cuts have held back, because the cuts end early.
    pub(crate) fn flush(&mut self) {
        let held: Vec<(u64, Side, usize)> = self
            .conns
            .iter()
            .flat_map(|(id, c)| [(*id, Side::Agent, c.to_agent.len()), (*id, Side::Controller, c.to_controller.len())])
            .collect();
        for (conn, to, frames) in held {
            for _ in 0..frames {
                self.after(1, Event::Deliver { conn, to });
            }
        }
    }

    fn receive(&mut self, conn: u64, frame: &[u8]) {
        let Some(c) = self.conns.get(&conn) else { return };
        let host = self.nodes[c.node].host.as_str().to_owned();
        let peer = format!("node{}:{conn}", c.node);
        let (which, incarnation, session) = (c.which, c.controller_incarnation, c.session);
        let Ok(Decoded::Known(message)) = decode_from_agent(frame) else { return };
        let input = ControllerInput::Message { session, names: Some(vec![host]), peer, message };
        self.controller_receives(which, incarnation, input);
    }
}
