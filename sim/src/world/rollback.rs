//! Rollbacks of a controller to an earlier moment: the store's file, the directory with the anchor, or the whole host
//! with memory and disk. Also nodes with a forged Hello, which names a commit that no controller made.

use std::collections::BTreeMap;

use perilog_core::controller::io::SessionId;
use perilog_core::controller::{Input, Snapshot, Writer};

use perilog_core::message::FromAgent;
use perilog_core::{Commit, Epoch, Mark};

use super::World;
use super::event::Event;
use super::node::EPOCH_MS;
use super::site;
use super::whole::Whole;
use crate::plan::Side;

/// An earlier state that a rollback restores: the controller's store (`File`), store and anchor (`Directory`), memory
/// and disk of the controller's host (`Memory`), or the resource manager (`Scheduler`, an index into
/// `Scheduler::copies`).
pub(crate) enum Copy {
    File(Snapshot),
    Directory(Snapshot, Option<Commit>),
    Memory(Box<Memory>),
    Scheduler(usize),
}

/// The memory and disk of the controller's host, for a virtual machine that is rolled back.
pub(crate) struct Memory {
    writer: Writer,
    whole: Option<Whole>,
    settings: u8,
    /// Settings that the process has read, and has not handled yet.
    unhandled: Vec<Input>,
    store: Snapshot,
    anchor: Option<Commit>,
    sessions: BTreeMap<SessionId, u64>,
    wake: Option<u64>,
    loaded_at: u64,
    copied_at: u64,
    mono_lag: u64,
}

/// A forged mark that a node reports in place of its own mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forged {
    until: u64,
    far: bool,
}

impl Forged {
    pub(super) const fn is_on(self, t: u64) -> bool {
        t < self.until
    }
}

impl World {
    /// Copies the store of the first controller as `perilog controller backup` does.
    pub(crate) fn backup(&self) -> Snapshot {
        let stamp = Some(EPOCH_MS + self.t);
        Snapshot { stamp, anchor: None, ..self.controllers[0].store.clone() }
    }

    fn restore_later(&mut self, copy: Copy, ms: u64) {
        self.copies.push(Some(copy));
        let copy = self.copies.len() - 1;
        self.after(ms.max(1), Event::Restored { copy });
    }

    pub(crate) fn copy_restored(&mut self, raw: bool, ms: u64) {
        let store = if raw { self.controllers[0].store.clone() } else { self.backup() };
        self.restore_later(Copy::File(store), ms);
    }

    pub(crate) fn directory_rolled_back(&mut self, ms: u64) {
        let controller = &self.controllers[0];
        let copy = Copy::Directory(controller.store.clone(), controller.anchor);
        self.restore_later(copy, ms);
    }

    pub(crate) fn memory_rolled_back(&mut self, ms: u64) {
        let controller = &self.controllers[0];
        let Some(writer) = controller.writer.clone().filter(|_| controller.is_up()) else { return };
        let unhandled = controller.inbox.iter().filter(|input| matches!(input, Input::Settings(_))).cloned().collect();
        let memory = Memory {
            writer,
            whole: controller.whole.clone(),
            settings: self.settings,
            unhandled,
            store: controller.store.clone(),
            anchor: controller.anchor,
            sessions: controller.sessions.clone(),
            wake: controller.wake,
            loaded_at: controller.loaded_at,
            copied_at: self.t,
            mono_lag: controller.mono_lag,
        };
        self.restore_later(Copy::Memory(Box::new(memory)), ms);
    }

    pub(crate) fn scheduler_rolled_back(&mut self, ms: u64) {
        let copy = self.scheduler_copied();
        self.restore_later(Copy::Scheduler(copy), ms);
    }

    pub(crate) fn restored(&mut self, copy: usize) {
        let copy = self.copies.get_mut(copy).and_then(Option::take);
        let Some(copy) = copy.filter(|_| !self.quiet) else { return };
        self.log_line(|| format!("RESTORED: {}", copy.what()));
        match copy {
            Copy::File(store) => {
                let anchor = self.controllers[0].anchor;
                // The anchor exposes an older store, unless the host's memory was rolled back before: then two epochs
                // have commits of the same numbers.
                if !self.truth.reports_lost_tasks() {
                    self.truth.lost_unseen();
                }
                self.restore(store, anchor);
            }
            Copy::Directory(store, anchor) => {
                self.truth.lost_unseen();
                self.restore(store, anchor);
            }
            Copy::Memory(memory) => self.remember(*memory),
            Copy::Scheduler(copy) => self.scheduler_restored(copy),
        }
    }

    /// Stops the first controller, and starts it again on another store with this anchor; `None`: without an anchor.
    pub(crate) fn restore(&mut self, store: Snapshot, anchor: Option<Commit>) {
        self.kill_controller(0, None);
        self.replace_store(store, anchor);
        let delay = self.dice.skewed(1, 20_000);
        // A start that was scheduled earlier may bring the controller up before that.
        self.begin_controller(0, delay);
    }

    fn replace_store(&mut self, store: Snapshot, anchor: Option<Commit>) {
        self.truth.store_replaced(0, &self.controllers[0].store, &store, self.t);
        self.controllers[0].store = store;
        self.controllers[0].anchor = anchor;
    }

    /// Continues the controller's process from an earlier state of its memory, without its connections.
    fn remember(&mut self, memory: Memory) {
        self.kill_controller(0, None);
        let Memory {
            writer,
            whole,
            settings,
            unhandled,
            store,
            anchor,
            sessions,
            wake,
            loaded_at,
            copied_at,
            mono_lag,
        } = memory;
        self.truth.lost_unseen();
        self.truth.numbers_repeat();
        self.replace_store(store, anchor);
        self.settings = settings;
        self.truth.configured(&site::settings(settings));
        let t = self.t;
        let controller = &mut self.controllers[0];
        controller.incarnation += 1;
        (controller.writer, controller.whole) = (Some(writer), whole);
        // The process counts no time between the copy and now.
        controller.loaded_at = loaded_at + (t - copied_at);
        controller.mono_lag = mono_lag + (t - copied_at);
        controller.wake = wake;
        let (incarnation, lag) = (controller.incarnation, controller.mono_lag);
        controller.sessions = sessions.clone();
        if let Some(mono_ms) = wake {
            self.wake_at(0, incarnation, mono_ms, lag);
        }
        for session in sessions.into_keys() {
            self.controller_receives(
                0,
                incarnation,
                Input::Closed { session, why: "the connection was reset".to_owned() },
            );
        }
        // Messages and requests on their way are lost with their connections; a tick shows the controller the time.
        for input in unhandled.into_iter().chain([Input::Tick]) {
            self.controller_receives(0, incarnation, input);
        }
        self.scheduler_cut();
        self.hooks_poll(0);
    }

    pub(crate) fn forge_mark(&mut self, node: usize, far: bool, ms: u64) {
        self.nodes[node].forged = Some(Forged { until: self.t + ms, far });
        self.truth.forged(node);
        self.drop_conn(node, Side::Both);
    }

    /// Forges the Hello of a node whose key was stolen. Returns `true` if the Hello was forged.
    pub(crate) fn forge(&self, at: usize, message: &mut FromAgent) -> bool {
        let node = &self.nodes[at];
        let Some(Forged { until, far }) = node.forged else { return false };
        let FromAgent::Hello(hello) = message else { return false };
        if self.t >= until || self.quiet {
            return false;
        }
        let accepted = node.spool.accepted.map_or(Epoch { number: 1, nonce: 1 }, |accepted| accepted.epoch);
        let epoch = if far { Epoch { number: 1 << 40, nonce: 7 } } else { accepted };
        hello.newest = Some(Mark { cluster: site::cluster(), commit: Commit { epoch, number: 1 << 40 } });
        true
    }
}

impl Copy {
    const fn what(&self) -> &'static str {
        match self {
            Self::File(store) if store.stamp.is_some() => "a backup of the store",
            Self::File(_) => "a copy of the store",
            Self::Directory(..) => "the controller's directory",
            Self::Memory(_) => "the controller's machine, with its memory",
            Self::Scheduler(_) => "what the resource manager knows",
        }
    }
}
