//! Hello: collects its pages, opens the session, and settles each of the node's tasks against the store.

use std::collections::BTreeMap;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Effect, NodeRow, Passing, Record, SessionId};
use crate::controller::machine::Machine;
use crate::controller::node::duplicate_session::address;
use crate::controller::state::Node;
use crate::controller::state::Nodes;
use crate::controller::state::RankState;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::recovery::Unsettled;
use crate::controller::state::session::Stage;
use crate::defect;
use crate::ids::{HostName, TaskId};
use crate::mark::Place;
use crate::message::{Held, HeldState, Hello, MAX_TASKS, ToAgent};

/// Maximum number of tasks in a Hello, over all its pages. An agent keeps at most 16,384 tasks and tombstones
/// (`max-tombstones`).
const MAX_HELLO_TASKS: usize = 20_000;

impl Nodes {
    /// Takes a page of a Hello. The last page makes the Hello complete: the session opens, or first probes an older
    /// session of the host. Turns the agent away if its certificate (`names`; `None`: TLS is off) is for another host,
    /// if it spells the host's name in another way than the node is known by, or if the Hello has more tasks than a
    /// node can hold.
    pub(super) fn on_hello(&mut self, id: SessionId, names: Option<&[String]>, page: Hello, cx: &mut Context) {
        // DNS names have no case, and a final dot has no meaning (RFC 4343, RFC 1034 3.1).
        let is_its = |name: &String| {
            let (name, host) = (name.trim_end_matches('.'), page.host.as_str().trim_end_matches('.'));
            name.eq_ignore_ascii_case(host)
        };
        if names.is_some_and(|names| !names.iter().any(is_its)) {
            let why = format!("the certificate is for {}, not for {}", names.unwrap_or_default().join(", "), page.host);
            self.turn_away(id, &page.host, &why, cx);
            return;
        }
        if let Some(known) = self.other_spelling(page.host.as_str()) {
            let why =
                format!("this node is known as {known}, not {}: set host = \"{known}\" in its agent.toml", page.host);
            self.turn_away(id, &page.host, &why, cx);
            return;
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let Stage::Greeting(so_far) = &mut session.stage else {
            self.end_session(id, "Hello twice in one session", cx);
            return;
        };
        let more = page.more;
        let hello = match so_far.take() {
            None => Box::new(page),
            Some(mut hello) => {
                hello.tasks.extend(page.tasks);
                hello
            }
        };
        let live = |held: &&Held| matches!(held.state, HeldState::Unclaimed | HeldState::Live { .. });
        if hello.tasks.len() > MAX_HELLO_TASKS || hello.tasks.iter().filter(live).count() > MAX_TASKS {
            let host = hello.host.clone();
            self.turn_away(id, &host, "its Hello has more tasks than a node can hold", cx);
        } else if more {
            *so_far = Some(hello);
        } else {
            self.greeted(id, hello, None, cx);
        }
    }
}

impl Machine {
    /// Opens a session: records the node and its boot, sends Welcome, and settles the node's tasks. Opens no session if
    /// [`Machine::judge_hello`] refuses the Welcome.
    pub(crate) fn open(&mut self, id: SessionId, hello: Hello, note: Option<String>) {
        if !self.judge_hello(id, &hello) {
            return;
        }
        let Hello { host, machine, boot, link, version, actions, tasks, .. } = hello;
        let known = self.nodes.get(&host).map(|node| node.row.clone());
        let boot_number = match &known {
            Some(row) if defect!(RebootUnnoticed) && row.machine == machine => row.boot_number,
            Some(row) if row.machine == machine && row.boot == boot => row.boot_number,
            // A boot id counts soft reboots, so the boot number includes soft reboots that the controller missed.
            Some(row) if row.machine == machine => {
                row.boot_number.saturating_add(row.boot.soft_reboots_until(&boot).map_or(1, |reboots| reboots.max(1)))
            }
            Some(row) => row.boot_number.saturating_add(1),
            None => 1,
        };
        let row = NodeRow {
            host: host.clone(),
            machine: machine.clone(),
            boot: boot.clone(),
            boot_number,
            version,
            seen_ms: self.cx.now.wall_ms,
        };
        self.cx.records.push(Record::Node(row.clone()));
        let address = self.nodes.sessions.get(&id).map(|session| address(&session.peer).to_owned()).unwrap_or_default();
        let node = self.nodes.learn(&host, || Node::new(row.clone(), self.cx.now.mono_ms));
        if known.is_none() {
            node.tasks = self.jobs.waiting_for(&host);
        }
        node.boots(&machine, &boot);
        node.row = row;
        node.session = Some(id);
        node.link = Some(link);
        node.address = address;
        node.actions = actions;
        node.since_ms = self.cx.now.mono_ms;
        node.live.clear();
        let before = std::mem::take(&mut node.unsettled);
        node.note = note;
        if let Some(session) = self.nodes.sessions.get_mut(&id) {
            session.stage = Stage::Open { host: host.clone(), machine, boot, link };
        }
        self.nodes.probing.remove(&id);
        let welcome = ToAgent::Welcome {
            epoch: self.epoch,
            cluster: self.cx.settings.cluster,
            redial_window_ms: self.nodes.redial_window_ms(self.cx.settings.redial_per_second),
            commit: 0,
        };
        self.cx.effects.push(Effect::Send { session: id, message: welcome });
        self.settle(id, &host, tasks, before);
        // Last, because the gate must not open before the controller knows this node's tasks.
        self.recovery.on_hello(&host);
        self.open_gate_if_due();
    }

    /// Settles the tasks of a Hello (`held`) against the store. `before`: the tasks of the node's earlier Hello about
    /// which the controller had not decided yet.
    pub(crate) fn settle(&mut self, id: SessionId, host: &HostName, held: Vec<Held>, before: Unsettled) {
        let Some(node) = self.nodes.get(host) else { return };
        let NodeRow { boot, boot_number, machine, .. } = node.row.clone();
        // Nodes know nothing of external actions.
        let tasks: Vec<TaskId> =
            node.tasks.iter().filter(|task| !self.jobs.is_external(task.action)).copied().collect();
        // The controller ignores tasks that the host runs for itself.
        let held: BTreeMap<TaskId, Held> = held.into_iter().filter(|h| !h.local).map(|h| (h.task, h)).collect();
        for task in &tasks {
            let suspended = self.jobs.is_suspended_action(task.action);
            if !suspended && !self.jobs.booted(*task, boot_number, &machine, &mut self.cx) {
                self.jobs.undo(*task, boot_number, &mut self.cx);
            }
        }
        let mut forget = Vec::new();
        // Unknown tasks come first: they keep other tasks from beginning.
        let (mut known, unknown): (Vec<&Held>, Vec<&Held>) = held
            .values()
            .partition(|held| self.facts().is_known(host, held) && !self.facts().is_of_lost_epoch(host, held));
        for held in unknown {
            let is_past = held.commit.is_some_and(|commit| self.history.place(commit) == Place::Past);
            if self.nodes.on_unknown(id, host, held, (is_past, self.recovery.is_on()), &mut self.cx) {
                forget.push(held.task);
            }
        }
        // At once: an after-action that is among the known tasks withdraws what has not begun.
        for (action, ranks) in self.jobs.adopt_reported(host, &self.nodes, &mut self.cx) {
            self.adopt(action, &ranks);
        }
        // In the order in which they ran: a node's after-action withdraws the setup tasks that have not begun there.
        known.sort_by_key(|held| self.cx.settings.after.contains(&held.action));
        for held in known {
            self.settle_held(id, host, held.task, &held.state, held.limit_ms);
        }
        for task in tasks.into_iter().filter(|task| !held.contains_key(task)) {
            if self.jobs.is_suspended_action(task.action) {
                self.nodes.leave_absent(&self.jobs, task);
            } else {
                self.settle_absent(id, task, boot_number, &boot);
            }
        }
        if !forget.is_empty() {
            self.cx.send(id, ToAgent::Forget { tasks: forget });
        }
        self.nodes.unknown_reported(host, before, &mut self.cx);
        if !self.nodes.unknown_hosts.contains(host) {
            self.drains.lift_passing(host, &Passing::Unknown, &mut self.cx);
        }
        self.judge_hosts(Some(host));
        self.cx.changes.push_back(Change::ScriptsEnded(host.clone()));
    }
}

impl Facts<'_> {
    /// Returns `true` if the store knows the task `held`, on this host or another. A tombstone is known only if the
    /// store has its task on `host`, and no service carries the task out.
    pub(crate) fn is_known(&self, host: &HostName, held: &Held) -> bool {
        let task = held.task;
        let is_tombstone = matches!(held.state, HeldState::Tombstone { .. });
        let anothers = self.jobs.is_external(task.action) || self.jobs.host_of(task).is_none_or(|of| of != *host);
        let action = self.jobs.action(task.action);
        action.is_some_and(|action| action.rank_state(task.rank) != RankState::NotInAction)
            && !(is_tombstone && anothers)
    }
}
