//! Signals that end or reload a daemon: SIGTERM and SIGINT ([`Signal::Terminate`]), SIGHUP ([`Signal::Reload`]).
//!
//! The daemon installs the handlers at its start, before any work that a signal must not interrupt. From then on these
//! signals no longer kill the process.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// A request of the service manager or an operator to the daemon, sent as a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in an orderly way.
    Terminate,
    /// Read configuration and certificates again.
    Reload,
}

/// A stream of signals. Several signals of one kind between two reads count as one.
#[derive(Debug)]
pub struct Signals {
    term: unix::Signal,
    int: unix::Signal,
    hup: unix::Signal,
}

impl Signals {
    /// Installs handlers for SIGTERM, SIGINT and SIGHUP, which then no longer kill the process. Needs a running tokio
    /// runtime with I/O.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            term: unix::signal(SignalKind::terminate())?,
            int: unix::signal(SignalKind::interrupt())?,
            hup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// Returns the next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            // Ending precedes reloading: an operator who asks for both wants the end.
            biased;
            Some(()) = self.term.recv() => Signal::Terminate,
            Some(()) = self.int.recv() => Signal::Terminate,
            Some(()) = self.hup.recv() => Signal::Reload,
            // The runtime's signal driver is gone, so the runtime is shutting down and will drop this future.
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
