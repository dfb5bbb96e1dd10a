//! `node forget`: decides whether an operator may remove a dismantled node from the list of nodes. A node that is
//! connected, holds unknown tasks, or has open tasks or unreleased ranks stays. While the gate is shut after a start,
//! every node stays. With `--reports` the node stays, and the controller drops what it reported.

use crate::agent::io::Level;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{Record, Refusal, Reply};
use crate::controller::machine::Machine;
use crate::controller::state::Nodes;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::duration::age;
use crate::hostlist::HostList;
use crate::ids::HostName;

impl Machine {
    /// Removes all of `hosts` from the list of nodes, or no host. A host's drain stays. A removed node that says Hello
    /// later is a new node.
    ///
    /// # Errors
    /// The first node that is unknown or must stay.
    pub(crate) fn node_forget(&mut self, hosts: &HostList, uid: u32) -> Result<Reply, Refusal> {
        let mut dismantled = Vec::new();
        for name in hosts.iter() {
            let host = self.nodes.get(name).map(|node| node.row.host.clone());
            let host = host.ok_or_else(|| self.nodes.never_seen(name))?;
            if let Some(why) = self.facts().in_use(&host) {
                return Err(Refusal::Conflict(format!("{host} {why}; no node was forgotten")));
            }
            dismantled.push(host);
        }
        for host in &dismantled {
            let age_ms =
                self.nodes.unlearn(host).map_or(0, |node| self.cx.now.wall_ms.saturating_sub(node.row.seen_ms));
            self.cx.records.push(Record::NodeForgotten { host: host.clone() });
            let text = format!(
                "uid {uid} removed this node from the controller (perilog node forget); it last connected {} ago",
                age(age_ms)
            );
            self.cx.note(Level::Info, None, Some(host), text);
        }
        Ok(Reply::Reached { tasks: dismantled.len() as u64 })
    }
}

impl Machine {
    /// Forgets what the agents of these hosts have reported and the store does not know. That is the unknown tasks of
    /// each host, its suspect commit and earlier boots, the number of its last session, and the epoch for which its
    /// agent refused this controller. Ends the sessions; the agents then connect and report again.
    ///
    /// # Errors
    /// A host never said Hello, and is no suspect. Then nothing is forgotten.
    pub(crate) fn forget_reports(&mut self, hosts: &HostList, uid: u32) -> Result<Reply, Refusal> {
        let suspects = &self.recovery.suspects;
        let is_known = |name: &str| self.nodes.get(name).is_some() || suspects.keys().any(|of| of.as_str() == name);
        if let Some(name) = hosts.iter().find(|name| !is_known(name)) {
            return Err(self.nodes.never_seen(name));
        }
        let hosts: Vec<HostName> = hosts.iter().filter_map(|name| HostName::new(name).ok()).collect();
        let mut all = 0;
        for host in &hosts {
            self.recovery.suspects.remove(host);
            self.highest_seen.take_if(|(of, _)| of == host);
            let tasks = self.nodes.forget_reports(host, &mut self.cx);
            if let Some(passing) = self.drains.get(host).and_then(|drain| drain.passing.clone()) {
                self.drains.lift_passing(host, &passing, &mut self.cx);
            }
            let dropped = if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") };
            let text = format!(
                "uid {uid} had the controller forget what this node reported, with {dropped} that the store does \
                 not know"
            );
            self.cx.note(Level::Warning, None, Some(host), text);
            all += tasks;
        }
        self.jobs.reordered(&mut self.cx);
        Ok(Reply::Reached { tasks: all })
    }
}

impl Nodes {
    /// Forgets what the agent of this host has reported and the store does not know, and ends its session. Returns the
    /// number of unknown tasks.
    fn forget_reports(&mut self, host: &HostName, cx: &mut Context) -> u64 {
        let Some(node) = self.get_mut(host) else { return 0 };
        let unknown = std::mem::take(&mut node.unsettled.unknown);
        node.unsettled.uncleaned.clear();
        (node.link, node.note) = (None, None);
        node.over.clear();
        if let Some(session) = node.session {
            self.end_session(session, "an operator dropped the reports of this node", cx);
        }
        self.unknown_hosts.remove(host);
        self.uncleaned_hosts.remove(host);
        unknown.len() as u64
    }

    fn never_seen(&self, name: &str) -> Refusal {
        let meant = self.did_you_mean(name);
        Refusal::NoSuchNode(format!("no node {name} has ever connected to this controller{meant}"))
    }
}

impl Facts<'_> {
    /// Returns the reason why the host must stay in the list of nodes, with what to do about it. `None`: nothing keeps
    /// the host there.
    fn in_use(&self, host: &HostName) -> Option<String> {
        let node = self.nodes.get(host)?;
        if node.session.is_some() {
            return Some("is connected: stop its agent first (systemctl disable --now perilog-agent)".to_owned());
        }
        if self.nodes.unknown_hosts.contains(host) {
            return Some(format!(
                "reported tasks that the store does not know (see perilog ps --abandoned); to drop them: perilog node \
                 forget {host} --reports"
            ));
        }
        if self.recovery.is_settling() {
            return Some(
                "may still connect, because the controller has just started: ask again in a minute".to_owned(),
            );
        }
        let unreleased = |attempt: &JobAttempt| {
            let mut left = attempt.whole();
            left.subtract(&attempt.released);
            attempt.layout.rank(host.as_str()).is_some_and(|rank| left.ranks.contains(rank))
        };
        let mut open = self.jobs.table.live_attempts().filter(|(.., attempt)| !attempt.complete);
        if let Some((job, ..)) = open.find(|(.., attempt)| unreleased(attempt)) {
            return Some(format!("is held by job {job} (see perilog why {host})"));
        }
        // Only open tasks on released ranks are left to look for.
        (!node.tasks.is_empty()).then(|| format!("has tasks that have not ended (see perilog why {host})"))
    }
}
