//! Signals as events to poll. The runner installs the handlers before the claim, so that a cancel of a claimed task is
//! neither lost nor fatal to the runner.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signal by which the agent asks the runner to send SIGKILL to the script: SIGRTMIN+9 as glibc counts. A SIGKILL
/// from the agent would end the runner instead of the script.
const KILL_SCRIPT: i32 = 43;

/// The request that a signal carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalMeaning {
    /// TERM arrived: the runner passes it to the script once, and begins no further script.
    Cancel,
    /// A signal for the script's process group.
    Forward(Signal),
    /// CHLD: check whether the script has ended.
    Reap,
}

#[derive(Debug)]
pub(crate) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let all = [SIGTERM, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, KILL_SCRIPT, SIGCHLD];
        Ok(Self(SignalDelivery::with_pipe(read, write, SignalOnly, all)?))
    }

    /// Returns a descriptor that is readable when [`Self::take`] has signals.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }

    /// Returns the signals that arrived since the last call, each once. A cancel is the last, so that the runner still
    /// handles the signals that arrived with it.
    pub(crate) fn take(&mut self) -> Vec<SignalMeaning> {
        let mut asked: Vec<SignalMeaning> = self.0.pending().filter_map(meaning).collect();
        asked.sort_by_key(|a| *a == SignalMeaning::Cancel);
        asked
    }
}

fn meaning(signal: i32) -> Option<SignalMeaning> {
    Some(match signal {
        SIGTERM => SignalMeaning::Cancel,
        SIGCHLD => SignalMeaning::Reap,
        SIGHUP => SignalMeaning::Forward(Signal::HUP),
        SIGINT => SignalMeaning::Forward(Signal::INT),
        SIGUSR1 => SignalMeaning::Forward(Signal::USR1),
        SIGUSR2 => SignalMeaning::Forward(Signal::USR2),
        KILL_SCRIPT => SignalMeaning::Forward(Signal::KILL),
        _ => return None,
    })
}
