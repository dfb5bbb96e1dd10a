//! A daemon may go away and come back at any moment; its scripts go on, and so do we.
//!
//! [`keep`] runs a *session* (calls on one connection) in a thread of its own and again on a new connection whenever the daemon goes
//! away, until the session is done, the daemon is of another opinion, or nobody listens. What the session has to tell, that the daemon is
//! away (once for each absence) and back, and the signals of an operator all arrive in one channel: the verb is one loop.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use perilog_host::varlink::Client;

use crate::door::Door;
use crate::exit::Exit;
use crate::fault::Fault;

/// What one who waits for a daemon's news can be told.
#[derive(Debug)]
pub(crate) enum Happening<T> {
    Told(T),
    /// The daemon is away; said once until [`Happening::Back`].
    Away(Fault),
    Back,
    /// The session is done: nothing more will be told.
    Done,
    /// It cannot go on.
    Over(Fault),
    /// A signal that asks to stop: of [`ANY`] or [`TYPED`].
    Interrupted,
}

/// News that may wait to be shown. The log can be asked for again, so a slow terminal holds up only its own reader.
const BACKLOG: usize = 256;

/// Pauses between tries to reach a daemon that is away: soon, because a restart takes less than a second; then seldom.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The signals that ask to stop.
pub(crate) type Asking = &'static [Signal];
pub(crate) const ANY: Asking = &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Ctrl-C alone, for one whom SIGTERM and SIGHUP tell nothing: systemd sends them to all of a service that stops or has lost its main process.
pub(crate) const TYPED: Asking = &[Signal::SIGINT];

/// What a session tells, and whether anybody still listens.
pub(crate) struct Teller<T> {
    to: SyncSender<Happening<T>>,
    away: bool,
    /// The daemon was there once: from then on its absence is waited out.
    met: bool,
    pause: Duration,
}

/// Why a session ended early.
pub(crate) enum Stop {
    Fault(Fault),
    /// Nobody listens any more.
    Unheard,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<T> Teller<T> {
    /// The daemon has answered.
    pub(crate) fn met(&mut self) -> Result<(), Stop> {
        self.met = true;
        self.pause = FIRST_PAUSE;
        if std::mem::take(&mut self.away) { self.send(Happening::Back) } else { Ok(()) }
    }

    pub(crate) fn tell(&mut self, news: T) -> Result<(), Stop> {
        self.met()?;
        self.send(Happening::Told(news))
    }

    fn send(&mut self, happening: Happening<T>) -> Result<(), Stop> {
        self.to.send(happening).map_err(|_| Stop::Unheard)
    }
}

/// Runs `session` until it is done, see the module. Where nobody is there to begin with that is [`Happening::Over`]: waiting is for a daemon
/// that took a connection once.
pub(crate) fn keep<T, S>(door: Door, interruptible: bool, session: S) -> Result<Receiver<Happening<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut Teller<T>) -> Result<(), Stop> + Send + 'static,
{
    work(door, interruptible.then_some(ANY), false, session)
}

/// The same for one who waits from the beginning, also for a daemon that is not there yet: a node may run a job's prolog while it boots.
pub(crate) fn keep_from_the_start<T, S>(door: Door, asking: Asking, session: S) -> Result<Receiver<Happening<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut Teller<T>) -> Result<(), Stop> + Send + 'static,
{
    work(door, Some(asking), true, session)
}

fn work<T, S>(door: Door, asking: Option<Asking>, met: bool, mut session: S) -> Result<Receiver<Happening<T>>, Fault>
where
    T: Send + 'static,
    S: FnMut(&mut Client, &mut Teller<T>) -> Result<(), Stop> + Send + 'static,
{
    let (to, happenings) = sync_channel(BACKLOG);
    if let Some(asking) = asking {
        // Before any other thread begins, so that all of them have the signals blocked.
        interrupts(asking, to.clone())?;
    }
    let mut teller = Teller { to, away: false, met, pause: FIRST_PAUSE };
    let work = move || {
        loop {
            let stop = match door.open().map_err(Stop::from).and_then(|mut client| session(&mut client, &mut teller)) {
                Ok(()) => break drop(teller.send(Happening::Done)),
                Err(stop) => stop,
            };
            // A daemon that died over the very first question was there, and what was asked may have begun.
            teller.met |= matches!(stop, Stop::Fault(Fault::WentAway { .. }));
            match stop {
                Stop::Unheard => break,
                Stop::Fault(fault) if teller.met && fault.is_absence() => {
                    if !std::mem::replace(&mut teller.away, true) && teller.send(Happening::Away(fault)).is_err() {
                        break;
                    }
                    thread::park_timeout(teller.pause);
                    teller.pause = (teller.pause * 2).min(LONGEST_PAUSE);
                }
                Stop::Fault(fault) => break drop(teller.send(Happening::Over(fault))),
            }
        }
    };
    thread::Builder::new()
        .name("session".to_owned())
        .spawn(work)
        .map_err(|e| Fault::Other(format!("cannot start a thread: {e}")))?;
    Ok(happenings)
}

/// From here on the signals that ask are told, not obeyed; the second one ends us wherever we are. The others of [`ANY`] do nothing, and those
/// that our starter had ignored (nohup) stay ignored.
fn interrupts<T: Send + 'static>(asking: Asking, to: SyncSender<Happening<T>>) -> Result<(), Fault> {
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
        let mut told = false;
        while let Ok(signal) = signals.wait() {
            if !asking.contains(&signal) {
                continue;
            }
            let heard = !told && !matches!(to.try_send(Happening::Interrupted), Err(TrySendError::Full(_)));
            if !heard {
                std::process::exit(Exit::Detached.code().into());
            }
            told = true;
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(work)
        .map_err(|e| Fault::Other(format!("cannot start a thread: {e}")))?;
    Ok(())
}

/// The mask of ignored signals, proc(5); none where it cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
