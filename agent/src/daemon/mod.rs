//! Loop of the agent: wait for an event, make an `Input`, hand the input to the machine, carry out the effects in
//! order.
//!
//! ```text
//!   signals, bus, wakeups, link, local socket, answers of calls, the one timer
//!       --Input-->  Machine  --Effect-->  spool (at once)
//!                                         bus (tasks that answer)
//!                                         link, callers (queues)
//! ```
//!
//! No effect blocks the loop. The agent writes files at once, because they are on tmpfs. It reads no other files here:
//! `cargo xtask tidy` lists the modules that may. D-Bus calls run in tokio tasks of their own, and their answers return
//! as inputs. A message for a full queue ends the session. So no peer can stop the loop.

mod calls;
mod effects;
mod identity;
mod join;
mod log_dedup;
mod notes;
mod orphaned_hook;
mod reload;
mod start;
mod status;
mod task_index;
mod trace;

pub use start::{StartError, run};

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use perilog_core::AcceptedEpoch;
use perilog_core::agent::Machine;
use perilog_core::agent::io::{Input, Now};
use perilog_host::watchdog::Watchdog;
use perilog_host::{clock, notify, signals};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::link::{Controllers, LinkEvent, Session, Window};
use crate::local::{Agent, Callers, LocalRequest};
use crate::logs::Logs;
use crate::spool::{Spool, Watcher};
use crate::systemd::{BusEvent, Emptiness};
use crate::wakeups::Wakeups;

/// Maximum number of answers to D-Bus calls that wait for the event loop. Each live task has a few at most; a full
/// queue only delays the calls.
const ANSWERS: usize = 256;
/// Maximum number of events of the bus, of messages of the controller, and of requests of the local socket, that wait
/// for the event loop. Each kind has a queue of its own; a full queue delays the sender.
const EVENTS: usize = 64;

/// Paths that the daemon uses: its configuration file, its run directory (normally /run/perilog), and the runner's
/// program.
#[derive(Debug, Clone)]
pub struct Places {
    pub config: PathBuf,
    pub run_dir: PathBuf,
    pub runner: PathBuf,
}

impl Places {
    /// Returns the path of the local socket.
    fn socket(&self) -> PathBuf {
        self.run_dir.join("agent.sock")
    }
}

/// Sources of events for which the agent's event loop waits, beside its timers and [`Wakeups`].
struct Events {
    signals: signals::Signals,
    bus: mpsc::Receiver<BusEvent>,
    link: mpsc::Receiver<LinkEvent>,
    requests: mpsc::Receiver<LocalRequest>,
    answers: mpsc::Receiver<calls::Answer>,
    reads: mpsc::Receiver<reload::Found>,
    /// The tokio tasks that keep the connection to the bus, dial the controllers, and serve the local socket. Normally
    /// they never end: if one ends, the agent ends with an error.
    crew: JoinSet<()>,
}

/// The current session: its number, its peer (for people) and its handle.
struct Connected {
    counter: u64,
    peer: String,
    session: Session,
}

/// State of the agent's event loop.
struct Daemon {
    places: Places,
    machine: Machine,
    /// Inputs that the machine has not handled yet. The event loop hands all of them to the machine before it waits for
    /// the next event.
    inputs: VecDeque<Input>,
    spool: Spool,
    watcher: Watcher,
    emptiness: Emptiness,
    wakeups: Arc<Wakeups>,
    calls: calls::Calls,
    notes: notes::Notes,
    task_index: task_index::TaskIndex,
    callers: Callers,
    /// Number of tasks whose directory a tombstone has replaced. When the number grows, callers of `Await` look again.
    tombstone_written: watch::Sender<u64>,
    logs: Logs,
    connected: Option<Connected>,
    window: Arc<Window>,
    controllers: watch::Sender<Controllers>,
    agent: Arc<Agent>,
    accepted: Option<AcceptedEpoch>,
    joined_once: bool,
    /// CLOCK_BOOTTIME (ms) of the next tick that the machine requested; `None`: no requested tick is outstanding.
    wake_ms: Option<u64>,
    read: reload::Read,
    reads: mpsc::Sender<reload::Found>,
    status: status::StatusLine,
    log_dedup: log_dedup::LogDedup,
    trace: trace::Trace,
}

impl Daemon {
    /// Runs until SIGTERM. Scripts continue in units of their own, so the agent ends no script.
    async fn serve(mut self, mut events: Events) -> Result<(), StartError> {
        let mut watchdog = Watchdog::of_environment();
        loop {
            let wake = self.wake_ms.map(wait_until);
            let status = self.status.due();
            let report = watchdog.as_ref().map(|watchdog| clock::until(watchdog.next_ms()));
            tokio::select! {
                biased;
                signal = events.signals.next() => match signal {
                    signals::Signal::Terminate => break,
                    signals::Signal::Reload => self.reload(),
                },
                Some(event) = events.bus.recv() => self.on_bus(event),
                Some(found) = events.reads.recv() => self.on_read(found),
                Some(answer) = events.answers.recv() => self.on_answer(answer),
                stems = self.wakeups.next() => self.on_wakeups(&stems),
                Some(event) = events.link.recv() => self.on_link(event),
                Some(request) = events.requests.recv() => self.on_local_request(request),
                () = sleep(wake) => {
                    self.wake_ms = None;
                    self.inputs.push_back(Input::Tick);
                }
                () = sleep(status) => {}
                () = sleep(report) => {}
                Some(_) = events.crew.join_next() => return Err(StartError::Crew),
            }
            self.settle();
            if let Some(watchdog) = &mut watchdog {
                watchdog.alive(clock::mono_ms());
            }
        }
        notify::stopping("ending; scripts go on");
        Ok(())
    }

    /// Hands all inputs to the machine, also the inputs that effects produce, and shows the resulting status.
    fn settle(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            let now = now();
            self.trace.input(&input, now);
            for effect in self.machine.handle(input, now) {
                self.trace.effect(&effect);
                self.carry_out(effect);
            }
        }
        self.status.show(self.machine.status_line());
    }

    fn on_wakeups(&mut self, stems: &[String]) {
        let tasks = stems.iter().filter_map(|stem| self.task_index.task(stem));
        self.inputs.extend(tasks.map(|task| Input::TaskChanged { task }));
    }

    fn on_answer(&mut self, answer: calls::Answer) {
        self.inputs.extend(self.calls.input(answer));
    }

    fn on_link(&mut self, event: LinkEvent) {
        let current = self.connected.as_ref().map(|connected| connected.counter);
        match event {
            LinkEvent::Up { counter, session, peer } => {
                self.connected = Some(Connected { counter, peer, session });
                self.inputs.push_back(Input::LinkUp { counter });
            }
            LinkEvent::Message { counter, message } if current == Some(counter) => {
                self.inputs.push_back(Input::Message(message))
            }
            LinkEvent::Down { counter } if current == Some(counter) => self.disconnect(),
            // A session that the agent has ended.
            LinkEvent::Message { .. } | LinkEvent::Down { .. } => {}
        }
    }

    /// Ends the session, if one is open, and informs the machine.
    fn disconnect(&mut self) {
        if self.connected.take().is_some() {
            self.inputs.push_back(Input::LinkDown);
        }
    }

    fn on_local_request(&mut self, request: LocalRequest) {
        let task_index = &self.task_index;
        let input = self.callers.input_of(request, |stem| task_index.task(stem));
        self.inputs.extend(input);
    }
}

/// Returns the present time of CLOCK_BOOTTIME and of the wall clock, as the machine uses them.
fn now() -> Now {
    Now { boot_ms: clock::boottime_ms(), wall_ms: clock::wall_ms() }
}

/// Returns the time from now until `boot_ms` of CLOCK_BOOTTIME, for a timer of the runtime. Such timers stand still
/// while the node is suspended, so a tick may be late by the length of the suspend.
fn wait_until(boot_ms: u64) -> std::time::Duration {
    std::time::Duration::from_millis(boot_ms.saturating_sub(clock::boottime_ms()))
}

/// Sleeps for `duration`; `None`: for ever, without a timer.
async fn sleep(duration: Option<std::time::Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
