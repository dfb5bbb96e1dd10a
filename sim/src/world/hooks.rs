//! Hooks of a resource manager: they carry out releases and drains at least once, and sometimes fail. `truth::releases`
//! checks what they carry out.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::HostName;
use perilog_core::controller::io::{DrainRow, FailedNotice, OutboxEntry, Reader, Request};

use super::World;
use super::event::Event;
use super::site;

/// Longest pause before a failed hook runs again.
const AGAIN_MS: u64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Manager {
    /// Requests of the hooks that the controller has not answered, by client number.
    asked: BTreeSet<u64>,
    looking: bool,
    /// Hosts with a running drain hook, each with the epoch of the controller that runs the hook. Each host has one
    /// hook at a time.
    notice_id: BTreeMap<HostName, u64>,
    /// World time (ms) until which all hooks hang.
    hung_until: u64,
}

impl World {
    /// Lets the hooks look for notices a little later, if controller `which` is the first one.
    pub(crate) fn hooks_poll(&mut self, which: usize) {
        if which == 0 && !std::mem::replace(&mut self.manager.looking, true) {
            let (delay, incarnation) = (self.dice.skewed(1, 5_000), self.controllers[0].incarnation);
            self.after(delay, Event::Hooks { incarnation });
        }
    }

    pub(crate) fn request_notices(&mut self, incarnation: u64) {
        self.manager.looking = false;
        if self.controllers[0].incarnation != incarnation {
            return self.hooks_poll(0);
        }
        if self.t < self.manager.hung_until {
            self.manager.looking = true;
            return self.after(self.manager.hung_until - self.t, Event::Hooks { incarnation });
        }
        for request in
            [Request::PendingDrains, Request::Releases { first: Vec::new(), except: BTreeSet::new(), limit: 8 }]
        {
            self.manager.asked.insert(self.controllers[0].clients + 1);
            self.ask(0, request);
        }
    }

    pub(crate) fn hang_hooks(&mut self, ms: u64) {
        self.manager.hung_until = self.manager.hung_until.max(self.t + ms);
    }

    /// Lets the hooks work again before their hang is over, because faults stop.
    pub(crate) fn free_hooks(&mut self) {
        (self.manager.hung_until, self.manager.looking) = (0, false);
        self.hooks_poll(0);
    }

    /// Returns `true` if the reply answers a request of the hooks.
    pub(crate) fn is_hooks(&mut self, which: usize, client: u64) -> bool {
        which == 0 && self.manager.asked.remove(&client)
    }

    pub(crate) fn call_drain_hook(&mut self, drains: &[DrainRow]) {
        if !site::settings(self.settings).drain_hook {
            return;
        }
        let incarnation = self.controllers[0].incarnation;
        for drain in drains {
            if self.manager.notice_id.get(&drain.host) == Some(&incarnation) {
                continue;
            }
            let DrainRow { host, notice_id, lifted, .. } = drain.clone();
            if self.fails(FailedNotice::Drain { host: host.clone(), notice_id, lifted }) {
                continue;
            }
            self.truth.carried_out(&host, notice_id, lifted);
            // The hook carries out notices of other hosts before it ends.
            self.manager.notice_id.insert(host.clone(), incarnation);
            let delay = self.dice.skewed(1, 20_000);
            self.after(delay, Event::FailedNotice { incarnation, host, notice_id, lifted });
        }
    }

    /// Handles a drain hook that has ended with status 0: confirms the drain, or (`lifted`) the undrain, to the
    /// controller.
    pub(crate) fn hooked(&mut self, incarnation: u64, host: HostName, notice_id: u64, lifted: bool) {
        if self.controllers[0].incarnation == incarnation {
            self.manager.notice_id.remove(&host);
            self.ask(0, Request::DrainsDone { drains: vec![(host, notice_id)], lifted });
            // A newer notice about this host may exist.
            self.hooks_poll(0);
        }
    }

    pub(crate) fn call_release_hook(&mut self, entries: &[OutboxEntry]) {
        if !site::settings(self.settings).release_hook {
            return;
        }
        for entry in entries.iter().filter(|entry| entry.reader == Reader::ReleaseHook) {
            if self.fails(FailedNotice::Release(entry.sequence)) {
                continue;
            }
            self.truth.received(entry);
            self.ask(0, Request::OutboxDone { sequence: entry.sequence });
            // With this release carried out, the next release of the same job may come.
            self.hooks_poll(0);
        }
    }

    fn fails(&mut self, what: FailedNotice) -> bool {
        if !self.dice.one_in(4) {
            return false;
        }
        self.ask(0, Request::HookFailed { what: vec![what], why: "busy".to_owned() });
        if !std::mem::replace(&mut self.manager.looking, true) {
            let (delay, incarnation) = (self.dice.range(1, AGAIN_MS), self.controllers[0].incarnation);
            self.after(delay, Event::Hooks { incarnation });
        }
        true
    }
}
