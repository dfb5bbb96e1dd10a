//! The signals that end or reload a daemon: SIGTERM and SIGINT ([`Signal::Terminate`]), SIGHUP ([`Signal::Reload`]).
//!
//! Made once at start, before anything that a signal must not cut in half; from then on those signals no longer kill the process.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// What we were asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in good order.
    Terminate,
    /// Read configuration and certificates again.
    Reload,
}

/// The stream of signals. Several of one kind that come before they are looked at count as one.
#[derive(Debug)]
pub struct Signals {
    term: unix::Signal,
    int: unix::Signal,
    hup: unix::Signal,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP. Needs a running tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            term: unix::signal(SignalKind::terminate())?,
            int: unix::signal(SignalKind::interrupt())?,
            hup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            // Ending goes before reloading: whoever asks for both wants the end.
            biased;
            Some(()) = self.term.recv() => Signal::Terminate,
            Some(()) = self.int.recv() => Signal::Terminate,
            Some(()) = self.hup.recv() => Signal::Reload,
            // Without its driver no signal will ever come; whoever waits is being torn down with the runtime.
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal as Sig, getpid, kill_process};

    #[tokio::test]
    async fn each_signal_says_what_it_asks_for() {
        let mut signals = Signals::new().unwrap();
        for (sent, expect) in
            [(Sig::HUP, Signal::Reload), (Sig::TERM, Signal::Terminate), (Sig::INT, Signal::Terminate)]
        {
            kill_process(getpid(), sent).unwrap();
            assert_eq!(signals.next().await, expect);
        }
    }
}
