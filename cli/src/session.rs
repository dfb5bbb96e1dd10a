//! Patience with a daemon that may go away and come back at any time, while its scripts go on.
//!
//! [`keep`] runs a *session* (calls on one connection) in a separate thread. Whenever the daemon goes away, the thread
//! runs the session again on a new connection, until the session is done, the daemon refuses, or the verb stops
//! listening. One channel carries everything, so that the verb is one loop: the session's messages, the daemon's
//! absence (once per absence) and return, and an operator's signals.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use perilog_host::varlink::Client;

use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;

/// An event for a verb that waits for a daemon.
#[derive(Debug)]
pub(crate) enum SessionEvent<T> {
    Message(T),
    /// The daemon is away, or the controller no longer knows the job; the error says which. The verb gets this once for
    /// each absence, and once more if one of these two states turns into the other.
    Away(Fault),
    /// The daemon answers again. The text says so, for example `the controller is back`.
    Back(String),
    /// The session is done: no further message follows.
    Done,
    /// The session failed for good, with this error: no further message follows.
    Over(Fault),
    /// A signal of [`ANY`] or [`TYPED`], which asks the verb to stop.
    Interrupted,
}

/// Maximum number of events that wait in the channel from the session to the verb. While the channel is full, the
/// session reads nothing from the daemon. So a slow terminal delays only its own verb, and the session reads the rest
/// of the log later.
const BACKLOG: usize = 256;

/// First pause between tries to reach an absent daemon: short, because a restart normally takes less than a second.
/// Each further pause is twice as long, at most `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Signals that ask the verb to stop.
pub(crate) type Asking = &'static [Signal];
pub(crate) const ANY: Asking = &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// The signal of Ctrl-C alone. SIGTERM and SIGHUP may express no wish of a user: systemd can send them to every process
/// of a service that stops or has lost its main process.
pub(crate) const TYPED: Asking = &[Signal::SIGINT];

/// Sender by which a session reports events ([`SessionEvent`]) to the verb. A session here is the verb's calls on one
/// connection to a daemon ([`keep`]). `T`: the session's own messages, such as log entries ([`SessionEvent::Message`]).
pub(crate) struct SessionSender<T> {
    to: SyncSender<SessionEvent<T>>,
    /// The text of the [`SessionEvent::Back`] that the verb gets when the daemon answers again. `None`: the verb knows
    /// of no present absence.
    away: Option<String>,
    /// Whether the session waits while the daemon is away, instead of failing. Set by the daemon's first answer, or by
    /// a call during which the daemon went away; [`keep_from_the_start`] sets it from the beginning.
    answered: bool,
    pause: Duration,
}

/// The reason why a session (the verb's calls on one connection to a daemon, [`keep`]) ended before all its calls were
/// done.
pub(crate) enum Stop {
    Fault(Fault),
    /// The session must begin again at once and repeat its request; no error has happened.
    Again,
    /// The verb no longer receives events, so the session ends.
    NoReceiver,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<T> SessionSender<T> {
    /// Records that the daemon has answered: the next pause is the shortest again. Reports the end of an absence, if
    /// there was one. Fails if the verb no longer receives this report.
    pub(crate) fn answered(&mut self) -> Result<(), Stop> {
        self.answered = true;
        self.pause = FIRST_PAUSE;
        self.away.take().map_or(Ok(()), |back| self.send(SessionEvent::Back(back)))
    }

    pub(crate) fn send_message(&mut self, news: T) -> Result<(), Stop> {
        self.answered()?;
        self.send(SessionEvent::Message(news))
    }

    fn send(&mut self, event: SessionEvent<T>) -> Result<(), Stop> {
        self.to.send(event).map_err(|_| Stop::NoReceiver)
    }
}

/// Runs `session` in a thread of its own, again after each absence of the daemon, until the session is done. Ends with
/// [`SessionEvent::Over`], for example, if the daemon refuses a request, or is away and has never answered.
/// `interruptible`: the first signal of [`ANY`] arrives as [`SessionEvent::Interrupted`].
pub(crate) fn keep<T, S>(
    endpoint: Endpoint,
    interruptible: bool,
    session: S,
) -> Result<Receiver<SessionEvent<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut SessionSender<T>) -> Result<(), Stop> + Send + 'static,
{
    work(endpoint, interruptible.then_some(ANY), false, session)
}

/// Runs `session` as [`keep`] does, and also waits for a daemon that has not started yet: a node may run a job's prolog
/// while it boots.
pub(crate) fn keep_from_the_start<T, S>(
    endpoint: Endpoint,
    asking: Asking,
    session: S,
) -> Result<Receiver<SessionEvent<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut SessionSender<T>) -> Result<(), Stop> + Send + 'static,
{
    work(endpoint, Some(asking), true, session)
}

fn work<T, S>(
    endpoint: Endpoint,
    asking: Option<Asking>,
    answered: bool,
    mut session: S,
) -> Result<Receiver<SessionEvent<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut SessionSender<T>) -> Result<(), Stop> + Send + 'static,
{
    let (to, session_events) = sync_channel(BACKLOG);
    if let Some(asking) = asking {
        // Blocks the signals before any other thread starts, so that all threads inherit the mask.
        interrupts(asking, to.clone())?;
    }
    let mut sender = SessionSender { to, away: None, answered, pause: FIRST_PAUSE };
    let work = move || {
        loop {
            let stop =
                match endpoint.open().map_err(Stop::from).and_then(|mut client| session(&mut client, &mut sender)) {
                    Ok(()) => break drop(sender.send(SessionEvent::Done)),
                    Err(stop) => stop,
                };
            // A daemon that died during the very first call did run, and the requested action may have begun.
            sender.answered |= matches!(stop, Stop::Fault(Fault::WentAway { .. }));
            match stop {
                Stop::Again => {}
                Stop::NoReceiver => break,
                Stop::Fault(fault) if sender.answered && fault.is_absence() => {
                    let back = match &fault {
                        Fault::Vanished { job } => format!("{job} is there again"),
                        _ => format!("the {} is back", endpoint.daemon.as_str()),
                    };
                    let before = sender.away.replace(back.clone());
                    if before != Some(back) && sender.send(SessionEvent::Away(fault)).is_err() {
                        break;
                    }
                    thread::park_timeout(sender.pause);
                    sender.pause = (sender.pause * 2).min(LONGEST_PAUSE);
                }
                Stop::Fault(fault) => break drop(sender.send(SessionEvent::Over(fault))),
            }
        }
    };
    thread::Builder::new()
        .name("session".to_owned())
        .spawn(work)
        .map_err(|e| Fault::Other(format!("cannot start a thread: {e}")))?;
    Ok(session_events)
}

/// Starts a thread that reports the first signal of `asking` to the verb; the second such signal ends the process.
/// Other signals of [`ANY`] have no effect, and signals that the parent ignored (nohup) stay ignored.
fn interrupts<T: Send + 'static>(asking: Asking, to: SyncSender<SessionEvent<T>>) -> Result<(), Fault> {
    let failed = |errno: nix::Error| Fault::Other(format!("cannot wait for signals: {errno}"));
    let ignored = ignored_signals();
    let mut signals = SigSet::empty();
    for &signal in ANY {
        if ignored & (1 << (signal as u32 - 1)) == 0 {
            signals.add(signal);
        }
    }
    signals.thread_block().map_err(failed)?;
    let work = move || {
        let mut reported = false;
        while let Ok(signal) = signals.wait() {
            if !asking.contains(&signal) {
                continue;
            }
            let received = !reported && !matches!(to.try_send(SessionEvent::Interrupted), Err(TrySendError::Full(_)));
            if !received {
                std::process::exit(Exit::Detached.code().into());
            }
            reported = true;
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(work)
        .map_err(|e| Fault::Other(format!("cannot start a thread: {e}")))?;
    Ok(())
}

/// Returns the mask of the signals that this process ignores (`SigIgn` in proc(5)): bit N - 1 is set for signal N.
/// Returns 0 if the file is unreadable.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
