//! Directory of a task, `tasks/<stem>/`, as the runner uses it. `outcome.json` and `stop-asked` are there too: only the
//! agent reads and writes these two. A reader sees each JSON file whole or not at all; `steps.jsonl` and the output
//! grow.
//!
//! | file | writer | how |
//! |---|---|---|
//! | `intent.json` | agent | read once |
//! | `boot-expected` | agent | watched for ([`crate::boot`]) |
//! | `claim` | runner or agent, the first to link | temp, then link(2): complete from the start, never a second |
//! | `steps.jsonl` | runner | appended, one write a line ([`crate::steps`]) |
//! | `out.<seq>.head`, `.tail` | runner | [`crate::output`] |
//! | `room` | runner | a reserve for the last records, freed when /run is full |
//! | `result.json` | runner | temp, rename; the runner's last act |
//!
//! The runner fsyncs no file: /run is memory, and a reboot ends the task anyway.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use perilog_core::ids::{self, InvocationId};
use perilog_core::task::{Claim, Intent};
use perilog_core::{Span, defect};
use perilog_host::clock;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::exit::{NO_CLAIM, NO_TASK, NOT_OURS, Refusal};

/// Maximum size in bytes of an intent: a Start fits a frame of 1 MiB, and its JSON is longer.
const MAX_INTENT: u64 = 8 * 1024 * 1024;

/// Expected size of an intent in bytes: the runner reads most intents with one read.
const USUAL_INTENT: usize = 8 * 1024;

/// Size in bytes of the file `room`, which reserves space for the last records. The last script's end record and the
/// result take some hundred bytes each, and the agent's outcome needs space too.
const ROOM: usize = 32 * 1024;

/// Mode of the runner's files. Only root may read them, because they contain the output of scripts.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether the file system was full, so that the runner uses the space that the file `room` reserved. The space is
    /// for the end of a script: no new script begins.
    full: Cell<bool>,
}

impl Directory {
    /// Opens `run_dir/tasks/stem`.
    ///
    /// # Errors
    /// The directory is missing, or other users than root could have written the files that the runner would execute.
    pub(crate) fn open(run_dir: &Path, stem: &str) -> Result<Self, Refusal> {
        let path = run_dir.join("tasks").join(stem);
        let no = |why: &dyn std::fmt::Display| Refusal::new(NO_TASK, format!("{}: {why}", path.display()));
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| no(&e))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| no(&e))?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(no(&"other users than root can write it"));
        }
        Ok(Self { fd, path, full: Cell::new(false) })
    }

    /// Reads the intent and checks that it belongs to `stem`.
    ///
    /// # Errors
    /// The file is missing, unreadable or too large, is no intent, or belongs to another task.
    pub(crate) fn intent(&self, stem: &str) -> Result<Intent, Refusal> {
        let no = |why: &dyn std::fmt::Display| Refusal::new(NO_TASK, format!("{}: {why}", self.file("intent.json")));
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::openat(&self.fd, "intent.json", flags, Mode::empty()).map_err(|e| no(&e))?;
        let mut bytes = Vec::with_capacity(USUAL_INTENT);
        File::from(fd).take(MAX_INTENT + 1).read_to_end(&mut bytes).map_err(|e| no(&e))?;
        if bytes.len() as u64 > MAX_INTENT {
            return Err(no(&format_args!("more than {MAX_INTENT} bytes")));
        }
        let intent: Intent = serde_json::from_slice(&bytes).map_err(|e| no(&e))?;
        let start = &intent.start;
        let own = ids::stem(&start.action, &start.job, start.task);
        if own == stem { Ok(intent) } else { Err(no(&format_args!("the intent in it is that of {own}"))) }
    }

    /// Takes the claim, unless not-after has passed or another process has the claim.
    ///
    /// # Errors
    /// The runner must run nothing: not-after has passed, another runner or the agent took the claim, or the claim or
    /// the file `room` cannot be written.
    pub(crate) fn claim(&self, intent: &Intent, invocation: &InvocationId) -> Result<(), Refusal> {
        let no = |e: &dyn std::fmt::Display| Refusal::new(NO_CLAIM, format!("{}: {e}", self.file("claim")));
        let claim = serde_json::to_vec(&Claim::Runner(invocation.clone())).map_err(|e| no(&e))?;
        let temp = format!("claim.{}.tmp", std::process::id());
        self.write(&temp, &claim).map_err(|e| no(&e))?;
        // Writes the reserve instead of only reserving space, because a hole is no space. A task whose end could not be
        // recorded must not begin.
        if let Err(error) = self.write("room", &[0; ROOM]) {
            self.give_up_room();
            return Err(no(&error));
        }
        // The check follows the slow part, and no step between the check and the link can wait.
        let late = clock::boottime_ms().saturating_sub(intent.not_after_boottime_ms);
        let linked =
            if late == 0 { rustix::fs::linkat(&self.fd, &temp, &self.fd, "claim", AtFlags::empty()) } else { Ok(()) };
        // A leftover temporary file disappears with the directory.
        let _ = rustix::fs::unlinkat(&self.fd, &temp, AtFlags::empty());
        match linked {
            _ if late > 0 => {
                let late = Span::from_millis(late);
                Err(Refusal::new(
                    NOT_OURS,
                    format!("too late by {late}: the time in which the task may begin has passed"),
                ))
            }
            Ok(()) => Ok(()),
            Err(Errno::EXIST) if defect!(RunnerIgnoresClaim) => Ok(()),
            Err(Errno::EXIST) => {
                Err(Refusal::new(NOT_OURS, format!("{}: another process has claimed the task", self.file("claim"))))
            }
            Err(e) => Err(no(&e)),
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns `true` if a file of this name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens a file for appending; creates a missing file.
    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
        Ok(rustix::fs::openat(&self.fd, name, flags, PRIVATE)?.into())
    }

    /// Writes a file that readers do not open: they ignore its name, or [`Self::replace`] renames it once it is
    /// complete.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
        File::from(rustix::fs::openat(&self.fd, name, flags, PRIVATE)?).write_all(bytes)
    }

    /// Writes a file that readers find whole or not at all.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temp = format!("{name}.tmp");
        self.write(&temp, bytes)?;
        Ok(rustix::fs::renameat(&self.fd, &temp, &self.fd, name)?)
    }

    /// Runs `write`. If the file system is full, removes the file `room`, which reserves space, and runs `write` again.
    pub(crate) fn with_room<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.full.set(true);
                self.give_up_room();
                write()
            }
            done => done,
        }
    }

    /// Returns `true` if the file system was full, so that the runner has removed the file `room` to free its space.
    pub(crate) fn is_full(&self) -> bool {
        self.full.get()
    }

    /// Removes the file `room`, which reserves space for the last records: no write follows, or no other space is left.
    pub(crate) fn give_up_room(&self) {
        // The reserve may be free already.
        let _ = rustix::fs::unlinkat(&self.fd, "room", AtFlags::empty());
    }

    /// Returns the warning that output of a script could not be written to this directory.
    pub(crate) fn not_kept(&self, error: &io::Error) -> String {
        format!("a part of the script's output is not kept in {}: {error}", self.path.display())
    }

    /// Returns the path of a file in the directory, for people.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}
