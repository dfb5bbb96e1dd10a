//! Calls that fail at random, while a test wants them to.
//!
//! The test writes a file such as `7 200 EIO ENOSPC`, and removes it later: from the seed 7, one in 200 calls fails
//! with one of these errors, if the kernel has that error for such a call. A write may also be short, and the next one
//! fails.

use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Open {
        writes: bool,
        creates: bool,
    },
    Write,
    Resize,
    Sync,
    /// Makes, renames or removes a name.
    Name,
}

/// What happens to a call instead of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Fails(Errno),
    /// A write puts a part of its bytes; the number chooses which.
    Short(u64),
}

/// Maximum length in bytes of the file that the test writes.
const LONGEST: usize = 256;

pub(crate) struct Faults {
    path: PathBuf,
    seed: u64,
    random: u64,
    /// Error of the write after a short one.
    after_short: Option<Errno>,
}

impl Faults {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, seed: 0, random: 0, after_short: None }
    }

    /// Returns the fault of the next call, if it has one.
    pub(crate) fn strike(&mut self, call: Call) -> Option<Fault> {
        let text = self.read()?;
        let mut words = text.split_whitespace();
        let (seed, one_in): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        if self.seed != seed {
            // Each process draws other numbers: otherwise a program that starts again fails at the same call for ever.
            let own = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
            (self.seed, self.random) = (seed, own.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        }
        if call == Call::Write
            && let Some(errno) = self.after_short.take()
        {
            return Some(Fault::Fails(errno));
        }
        if !self.draw().is_multiple_of(one_in.max(1)) {
            return None;
        }
        let errors: Vec<Errno> = words.filter_map(errno).filter(|errno| fits(*errno, call)).collect();
        let errno = *errors.get(usize::try_from(self.draw()).unwrap_or(0).checked_rem(errors.len())?)?;
        if call == Call::Write && self.draw().is_multiple_of(2) {
            self.after_short = Some(errno);
            return Some(Fault::Short(self.draw()));
        }
        Some(Fault::Fails(errno))
    }

    fn read(&self) -> Option<String> {
        let file = rustix::fs::open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = [0; LONGEST];
        let len = rustix::io::read(&file, &mut bytes[..]).ok()?;
        String::from_utf8(bytes[..len].to_vec()).ok()
    }

    /// Returns the next number of a xorshift generator.
    const fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }
}

fn errno(name: &str) -> Option<Errno> {
    Some(match name {
        "EIO" => Errno::IO,
        "ENOSPC" => Errno::NOSPC,
        "EROFS" => Errno::ROFS,
        "EMFILE" => Errno::MFILE,
        _ => return None,
    })
}

/// Returns whether the kernel has this error for such a call.
fn fits(errno: Errno, call: Call) -> bool {
    match errno {
        Errno::MFILE => matches!(call, Call::Open { .. }),
        Errno::ROFS => matches!(call, Call::Open { writes: true, .. } | Call::Write | Call::Resize | Call::Name),
        Errno::NOSPC => !matches!(call, Call::Open { creates: false, .. }),
        _ => true,
    }
}

/// The sync that fails.
pub(crate) struct Sync {
    /// Name of the file whose syncs count; `None`: all count.
    of: Option<String>,
    /// Number of syncs until the one that fails, with that one; 0: it has failed.
    number: u64,
}

impl Sync {
    /// Reads a text such as `4 controller.db` or `4 any`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once(' ')?;
        Some(Self { of: Some(of.to_owned()).filter(|of| of != "any"), number: number.parse().ok()? })
    }

    /// Counts a sync of a file; returns whether it fails.
    pub(crate) fn fails(&mut self, name: &str) -> bool {
        if self.of.as_ref().is_some_and(|of| of != name) {
            return false;
        }
        let fails = self.number == 1;
        self.number = self.number.saturating_sub(1);
        fails
    }
}
