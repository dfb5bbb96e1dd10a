//! The runner's stdout and stderr, which lead to the journal in a unit. No write waits. At the task's end the runner
//! waits until the journal has accepted the lines, or counts as *deaf*: it has accepted nothing for some seconds.
//!
//! Lines that the journal does not accept stay in a bounded buffer. Past the bound, the runner stops reading the
//! script's pipes, and the script waits (backpressure), while signals, limits and reports go on. A journal that accepts
//! nothing for [`DEAF_AFTER_MS`] no longer delays the task: the runner drops and counts the lines, and reports the
//! count when the journal accepts lines again. (The kept parts of the output do not depend on the journal.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Number of pending bytes from which on the runner stops reading the script's pipes. The last read before the stop may
/// exceed this number.
const CLOGGED: usize = 64 * 1024;

/// Time in milliseconds after which a journal that accepts nothing counts as deaf: the runner then drops lines instead
/// of waiting. A restart of journald takes less than a second.
const DEAF_AFTER_MS: u64 = 5_000;

/// Number of bytes that a write to a pipe accepts at once if poll(2) calls the pipe writable (PIPE_BUF).
const SURE: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// A level of syslog, as in `<N>` before a line (sd-daemon(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

#[derive(Debug)]
pub(crate) struct Sinks {
    out: Sink,
    /// Sink for stderr; `None`: stderr and stdout are the same file, and `out` serves both.
    err: Option<Sink>,
    /// Whether stderr is the journal, which reads levels.
    levels: bool,
}

impl Sinks {
    pub(crate) fn new() -> io::Result<Self> {
        let (out, err) = (io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?);
        let (out_stat, err_stat) = (rustix::fs::fstat(&out)?, rustix::fs::fstat(&err)?);
        let same = (out_stat.st_dev, out_stat.st_ino) == (err_stat.st_dev, err_stat.st_ino);
        // systemd.exec(5): device and inode of the journal's socket, if the stream leads to the journal.
        let journal = format!("{}:{}", err_stat.st_dev, err_stat.st_ino);
        Ok(Self {
            out: Sink::new(out, FileType::from_raw_mode(out_stat.st_mode)),
            err: (!same).then(|| Sink::new(err, FileType::from_raw_mode(err_stat.st_mode))),
            levels: std::env::var("JOURNAL_STREAM").is_ok_and(|stream| stream == journal),
        })
    }

    /// Writes a script's line, which ends in a line break. In the journal, a line from stderr is a warning, unless the
    /// line has a level of its own.
    pub(crate) fn line(&mut self, stream: Stream, line: &[u8]) {
        if stream == Stream::Err && self.levels && !has_level(line) {
            self.sink(stream).push(b"<4>");
        }
        self.sink(stream).push(line);
    }

    /// Writes a message of the runner itself to stderr.
    pub(crate) fn write_line(&mut self, level: Level, text: &str) {
        let prefix = if self.levels { format!("<{}>", level as u8) } else { String::new() };
        let line = format!("{prefix}perilog-runner: {}\n", one_line(text));
        self.sink(Stream::Err).push(line.as_bytes());
    }

    /// Writes pending bytes without waiting. `now`: CLOCK_MONOTONIC (ms).
    pub(crate) fn flush(&mut self, now: u64) {
        self.out.flush(now);
        if let Some(err) = &mut self.err {
            err.flush(now);
        }
    }

    /// Returns `true` if so many bytes are pending that the runner should stop reading the script's output.
    pub(crate) fn clogged(&self) -> bool {
        self.all().any(|sink| sink.pending.len() >= CLOGGED)
    }

    /// Returns the descriptors that the runner waits to write to, because they have pending bytes.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all().filter(|sink| !sink.pending.is_empty()).map(|sink| sink.fd.as_fd())
    }

    /// Returns `true` if the runner, at the end of the task, should still wait for output to be accepted: some output
    /// is pending, and its sink is not deaf. (A journal that has accepted nothing for some seconds is deaf, and must
    /// not hold up the task's result.) [`Self::next`] returns the time at which a journal becomes deaf.
    pub(crate) fn hopeful(&self) -> bool {
        self.all().any(|sink| !sink.pending.is_empty() && !sink.deaf)
    }

    /// Returns CLOCK_MONOTONIC (ms) at which a journal that accepts nothing becomes deaf. [`Self::flush`] must be
    /// called then, even if no sink is writable. `None`: no journal is about to become deaf.
    pub(crate) fn next(&self) -> Option<u64> {
        self.all().filter_map(Sink::deaf_at).min()
    }

    fn all(&self) -> impl Iterator<Item = &Sink> {
        std::iter::once(&self.out).chain(&self.err)
    }

    fn sink(&mut self, stream: Stream) -> &mut Sink {
        match (&mut self.err, stream) {
            (Some(err), Stream::Err) => err,
            _ => &mut self.out,
        }
    }
}

/// Returns `true` if the line begins with a syslog level, `<0>` to `<7>` (sd-daemon(3)).
fn has_level(line: &[u8]) -> bool {
    matches!(line, [b'<', b'0'..=b'7', b'>', ..])
}

/// Replaces control characters, so that a script's text stays on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[derive(Debug)]
struct Sink {
    fd: OwnedFd,
    /// Whether the sink is the journal's socket. Only the journal can count as deaf: the reader of a terminal, pipe or
    /// file may pause.
    socket: bool,
    pending: Vec<u8>,
    /// Whether the last written byte was no line break.
    mid_line: bool,
    stuck_since: Option<u64>,
    deaf: bool,
    lost: usize,
    /// Whether a write has failed, for example because the reader of a pipe has ended. Then all bytes are dropped.
    closed: bool,
}

impl Sink {
    fn new(fd: OwnedFd, kind: FileType) -> Self {
        Self {
            fd,
            socket: kind == FileType::Socket,
            pending: Vec::new(),
            mid_line: false,
            stuck_since: None,
            deaf: false,
            lost: 0,
            closed: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.pending.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self, now: u64) {
        let mut taken = 0;
        while taken < self.pending.len() {
            match self.write(taken) {
                Ok(n) if n > 0 => taken += n,
                Ok(_) | Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.closed = true;
                    taken = self.pending.len();
                }
            }
        }
        if taken > 0 {
            self.mid_line = self.pending[taken - 1] != b'\n';
            self.pending.drain(..taken);
            self.stuck_since = None;
            self.deaf = false;
        }
        if self.pending.is_empty() {
            self.own_up();
            // The wait for this line starts anew, as for any other line.
            self.stuck_since = (!self.pending.is_empty()).then_some(now);
            return;
        }
        self.stuck_since.get_or_insert(now);
        if self.deaf || self.deaf_at().is_some_and(|at| at <= now) {
            self.deaf = true;
            // Keeps the rest of a half-written line, or the next line would join that half.
            let rest =
                if self.mid_line { self.pending.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1) } else { 0 };
            self.lost += self.pending.len() - rest;
            self.pending.truncate(rest);
        }
    }

    /// Adds a line with the number of lost bytes, once the journal accepts lines again.
    fn own_up(&mut self) {
        if self.lost > 0 && !self.mid_line {
            let text = format!(
                "perilog-runner: the journal did not accept {} bytes of output, which are lost here\n",
                self.lost
            );
            self.lost = 0;
            self.push(text.as_bytes());
        }
    }

    fn deaf_at(&self) -> Option<u64> {
        self.stuck_since.filter(|_| self.socket && !self.deaf).map(|since| since.saturating_add(DEAF_AFTER_MS))
    }

    /// Writes the pending bytes from index `from` on, without waiting. Returns the number of written bytes.
    fn write(&self, from: usize) -> rustix::io::Result<usize> {
        let bytes = &self.pending[from..];
        if self.socket {
            return rustix::net::send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        // The descriptor may be shared, for example with a shell's terminal: O_NONBLOCK would affect its other users.
        let mut poll = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut poll, Some(&now))?;
        if poll[0].revents().is_empty() {
            Err(Errno::AGAIN)
        } else {
            rustix::io::write(&self.fd, &bytes[..bytes.len().min(SURE)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn levels_and_lines() {
        assert!(
            has_level(b"<3>x\n")
                && has_level(b"<0>")
                && !has_level(b"<8>x")
                && !has_level(b"x<3>")
                && !has_level(b"<3")
        );
        assert_eq!(one_line("a\nMAINPID=1\u{1b}[2J"), "a MAINPID=1 [2J");
    }

    /// Waits until all output is written or the journal is deaf, as the runner does at its end, in simulated time.
    /// Returns the number of wake-ups, and the simulated time of the last one (CLOCK_MONOTONIC, ms). Panics if nothing
    /// would wake the runner.
    fn stay(sinks: &mut Sinks, mut now: u64) -> (u32, u64) {
        let mut woke = 0;
        sinks.flush(now);
        while sinks.hopeful() {
            now = sinks.next().expect("nothing wakes it when the journal does not");
            sinks.flush(now);
            woke += 1;
        }
        (woke, now)
    }

    #[test]
    fn a_deaf_journal_is_not_stayed_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut sinks = Sinks { out: Sink::new(ours.into(), FileType::Socket), err: None, levels: true };
        // A line larger than a socket's buffer: the journal reads a part of it.
        let line = [&vec![b'x'; 4 << 20][..], b"\n"].concat();
        sinks.line(Stream::Out, &line);
        assert_eq!(stay(&mut sinks, 100), (1, 100 + DEAF_AFTER_MS));
        assert!(sinks.out.mid_line && !sinks.out.pending.is_empty(), "the rest of the line stays");
        sinks.write_line(Level::Info, "a last word");
        assert_eq!(stay(&mut sinks, 200 + DEAF_AFTER_MS), (0, 200 + DEAF_AFTER_MS));

        // The journal reads until the line is complete, then stops before the report of lost bytes.
        theirs.set_nonblocking(true).unwrap();
        while !sinks.out.pending.is_empty() && sinks.out.lost > 0 {
            let _ = theirs.read(&mut vec![0; 64 << 10]);
            sinks.flush(300 + DEAF_AFTER_MS);
        }
        assert!(sinks.hopeful() && sinks.next() == Some(300 + 2 * DEAF_AFTER_MS), "that is stayed for, as any line");
    }

    #[test]
    fn a_deaf_journal_loses_lines_and_nothing_else() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut sink = Sink::new(ours.into(), FileType::Socket);
        let line = [&[b'x'; 999][..], b"\n"].concat();
        // With no reader, first the socket fills, then the sink.
        while sink.pending.len() < CLOGGED {
            sink.push(&line);
            sink.flush(100);
        }
        assert_eq!(sink.deaf_at(), Some(100 + DEAF_AFTER_MS));
        sink.flush(99 + DEAF_AFTER_MS);
        assert!(!sink.deaf && sink.pending.len() >= CLOGGED);
        sink.flush(100 + DEAF_AFTER_MS);
        assert!(sink.deaf && sink.pending.len() < line.len());
        assert_eq!(sink.deaf_at(), None, "or we would not sleep");
        sink.push(&line);
        sink.flush(101 + DEAF_AFTER_MS);
        assert!(sink.pending.len() < line.len());

        theirs.set_nonblocking(true).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            // Reads everything; the error only marks the end of the data.
            let _ = theirs.read_to_end(&mut seen);
            sink.push(b"again\n");
            sink.flush(200 + DEAF_AFTER_MS);
        }
        let _ = theirs.read_to_end(&mut seen);
        let text = String::from_utf8(seen).unwrap();
        let others: Vec<&str> = text.lines().filter(|l| l.len() != 999).collect();
        assert_eq!(others[0], "again");
        assert!(others[1].starts_with("perilog-runner: ") && others[1].ends_with("are lost here"), "{others:?}");
        assert_eq!(others[2], "again");
    }
}
