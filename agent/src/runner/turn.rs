//! The wait for all events: signals, the script's pipes, the control socket, a slow journal, the next deadline. The
//! runner waits nowhere else, except for forensics (two seconds) and NSS (once, at the start).

use std::os::fd::BorrowedFd;

use perilog_host::clock;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::boot::Mark;
use crate::child::Running;
use crate::control::Control;
use crate::output::{Sinks, Stream};
use crate::signals::Signals;

/// An event that the runner must handle now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Signals,
    /// The script printed to this stream, or closed its pipe.
    Pipe(Stream),
    /// The stage process ([`crate::stage`]) has become the script by a successful exec, has sent the reason why it
    /// could not, or has died.
    Stage,
    /// The runner's stdout or stderr, usually the journal, accepts more bytes.
    Sink,
    /// A file was renamed into the task's directory; the file may be the mark of an expected boot.
    Mark,
    /// A process waits for the control socket to accept it.
    Listener,
    /// A peer of the control socket sent bytes or disconnected. The number is the peer's index in [`Control::peers`].
    Peer(usize),
}

/// Waits until an event is ready, or until `deadline` of CLOCK_MONOTONIC (ms); `None`: without a time limit. Returns
/// all events that are ready; none if the deadline came first.
pub(crate) fn wait(
    signals: &Signals,
    sinks: &Sinks,
    control: Option<&Control>,
    mark: Option<&Mark>,
    running: Option<&Running>,
    deadline: Option<u64>,
) -> Vec<Ready> {
    let mut wanted: Vec<(Ready, BorrowedFd<'_>, PollFlags)> = vec![(Ready::Signals, signals.fd(), PollFlags::IN)];
    wanted.extend(sinks.waiting().map(|fd| (Ready::Sink, fd, PollFlags::OUT)));
    if let Some(running) = running {
        wanted.extend(running.stage().map(|fd| (Ready::Stage, fd, PollFlags::IN)));
        if !sinks.clogged() {
            let pipes = [Stream::Out, Stream::Err].map(|s| Some((Ready::Pipe(s), running.pipe(s)?, PollFlags::IN)));
            wanted.extend(pipes.into_iter().flatten());
        }
    }
    wanted.extend(mark.map(|mark| (Ready::Mark, mark.fd(), PollFlags::IN)));
    if let Some(control) = control {
        wanted.extend(control.open_listener().map(|fd| (Ready::Listener, fd, PollFlags::IN)));
        wanted.extend(control.peers().enumerate().map(|(n, fd)| (Ready::Peer(n), fd, PollFlags::IN)));
    }
    let mut polled: Vec<PollFd<'_>> =
        wanted.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    let timeout = deadline.map(|deadline| {
        let left = clock::until(deadline);
        Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() }
    });
    if rustix::event::poll(&mut polled, timeout.as_ref()).is_err() {
        // A signal interrupted the poll, and the signal's pipe is ready now. (poll(2) fails for no other reason: so few
        // descriptors need no memory.)
        return vec![Ready::Signals];
    }
    let ready = wanted.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
    ready.map(|((ready, _, _), _)| *ready).collect()
}
