//! Place of the store: its directory, held open, and the files in it that a restore makes, moves and removes.
//!
//! The directory belongs to the controller's user, and root works in it. Every file is named relative to the open
//! directory, and no link is followed: else that user could have root write to, or give away, another file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RawMode, Stat, flock};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::{CONTROLLER, ask};
use crate::fault::Fault;

/// Ends of the names of SQLite's files beside a database that have transactions of the database.
const LOGS: [&str; 2] = ["-wal", "-journal"];
/// End of the name of FILE's bytes in the store's directory, until the controller has made its copy of them.
const RECEIVED: &str = "-received";
/// End of the name of the stamped copy, until it takes the store's name.
const COPY: &str = "-restore";
/// End of the name of the file that a controller locks (flock(2)) as long as it has the store open.
const LOCK: &str = "-lock";

/// The directory of the store, open, and the name of the store's file in it.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    owner: (Uid, Gid),
    path: PathBuf,
    name: OsString,
}

/// A restore that failed. `is_kept`: the old store is in its place with its log, as it was.
#[derive(Debug)]
pub(super) struct NotPut {
    pub(super) fault: Fault,
    pub(super) is_kept: bool,
}

impl From<Fault> for NotPut {
    fn from(fault: Fault) -> Self {
        Self { fault, is_kept: true }
    }
}

impl Place {
    pub(super) fn open(store: &Path) -> Result<Self, Fault> {
        let path = store.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("/")).to_owned();
        let failed = |error: rustix::io::Errno| Fault::File {
            what: "cannot open the store's directory",
            path: path.clone(),
            source: error.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        let found = rustix::fs::fstat(&directory).map_err(failed)?;
        let name = store.file_name().unwrap_or_default().to_owned();
        Ok(Self { directory, owner: (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid)), path, name })
    }

    /// Returns `true` if `file` is a file that a restore itself makes here.
    pub(super) fn makes(&self, file: &Path) -> bool {
        let is =
            |path: PathBuf| path.canonicalize().is_ok_and(|path| file.canonicalize().is_ok_and(|file| file == path));
        [RECEIVED, COPY].into_iter().any(|end| is(self.path(end)))
    }

    /// Takes the lock that a controller holds as long as it has the store open: one that is started before the returned
    /// file is closed ends with an error, and reads nothing.
    ///
    /// # Errors
    /// A controller runs with the store, or the file cannot be locked.
    pub(super) fn lock(&self) -> Result<File, Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.directory, self.name(LOCK), flags, Mode::RUSR | Mode::WUSR);
        let locked = || -> rustix::io::Result<File> {
            let file = match open(flags | OFlags::CREATE | OFlags::EXCL) {
                Ok(made) => rustix::fs::fchown(&made, Some(self.owner.0), Some(self.owner.1)).map(|()| made),
                Err(Errno::EXIST) => open(flags),
                Err(error) => Err(error),
            }?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| File::from(file))
        };
        locked().map_err(|error| match error {
            Errno::WOULDBLOCK => Fault::Other(format!(
                "{}: a controller runs with this store, which stays as it is: end it (if a cluster manager starts it: \
                 failover.md in /usr/share/doc/perilog), and type this command again",
                self.path(LOCK).display()
            )),
            error => self.fault("cannot lock", LOCK)(error.into()),
        })
    }

    /// Makes a stamped copy of `file` beside the store. `controller` makes it from the first path at the second one,
    /// and refuses what is no whole store.
    pub(super) fn prepare(
        &self,
        file: &Path,
        controller: impl FnOnce(&Path, &Path) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.clear()?;
        let made = self.receive(file).and_then(|()| controller(&self.path(RECEIVED), &self.path(COPY)));
        let cleared = [RECEIVED, "-received-wal", "-received-shm", "-received-journal"].map(|end| self.remove(end));
        made?;
        cleared.into_iter().collect::<Result<(), Fault>>()
    }

    /// Has perilog-controller make the copy, as the owner of the directory: SQLite reads a file of strangers, and must
    /// not do so as root.
    pub(super) fn copy_as_owner(&self, from: &Path, to: &Path, file: &Path) -> Result<(), Fault> {
        let mut command = Command::new(CONTROLLER);
        command.arg("--check-store").arg(from).arg("--copy-to").arg(to).current_dir("/");
        command.uid(self.owner.0.as_raw()).gid(self.owner.1.as_raw());
        ask(&mut command).map(drop).map_err(|fault| {
            let why = fault.to_string();
            let why = [from, to].into_iter().find_map(|path| why.strip_prefix(&format!("{}: ", path.display())));
            Fault::Other(match why {
                Some(why) => format!("{}: {why}; the store stays as it was", file.display()),
                None => format!("{fault}; the store stays as it was"),
            })
        })
    }

    /// Removes what an earlier restore left behind.
    fn clear(&self) -> Result<(), Fault> {
        let ends = ["-received-wal", "-received-shm", "-received-journal", "-restore-journal"];
        [RECEIVED, COPY].into_iter().chain(ends).try_for_each(|end| self.remove(end))
    }

    /// Copies the bytes of `file`, and of SQLite's logs beside it, into new files of the directory's owner.
    fn receive(&self, file: &Path) -> Result<(), Fault> {
        self.receive_one(file, RECEIVED)?;
        for log in LOGS {
            let from = super::beside(file, log);
            if from.symlink_metadata().is_ok() {
                self.receive_one(&from, &format!("{RECEIVED}{log}"))?;
            }
        }
        Ok(())
    }

    fn receive_one(&self, from: &Path, end: &str) -> Result<(), Fault> {
        let mut source =
            read_only(from).map_err(|source| Fault::File { what: "cannot read", path: from.to_owned(), source })?;
        let mut write = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(&self.directory, self.name(end), flags, Mode::RUSR | Mode::WUSR)?;
            rustix::fs::fchown(&made, Some(self.owner.0), Some(self.owner.1))?;
            io::copy(&mut source, &mut File::from(made)).map(drop)
        };
        write().map_err(|source| Fault::File { what: "cannot write", path: self.path(end), source })
    }

    /// Gives the prepared copy the name of the store. Removes SQLite's side files (`-wal`, `-shm`) of the old store,
    /// which would undo the restore or damage the copy. `keep`: renames the old store and its `-wal` file, so that they
    /// stay. Returns the old store's new path; `None`: nothing was kept.
    pub(super) fn put(&self, keep: bool) -> Result<Option<PathBuf>, NotPut> {
        let before = match keep && self.has("") {
            true => Some(self.free()?),
            false => None,
        };
        let log_before = before.as_ref().map_or_else(|| "-replaced-wal".to_owned(), |before| format!("{before}-wal"));
        let placed = || {
            // The log goes first: under its old name SQLite would apply it to the copy.
            gone_is_fine(self.rename("-wal", &log_before)).map_err(self.fault("cannot move", "-wal"))?;
            if let Some(before) = &before {
                self.rename("", before).map_err(self.fault("cannot keep", ""))?;
            }
            self.remove("-shm")?;
            self.rename(COPY, "").map_err(self.fault("cannot replace", ""))
        };
        if let Err(failed) = placed() {
            let store_back = before.as_ref().map_or(Ok(()), |before| gone_is_fine(self.rename(before, "")));
            return Err(match store_back.and_then(|()| gone_is_fine(self.rename(&log_before, "-wal"))) {
                Ok(()) => failed.into(),
                Err(error) => {
                    let there = self.path(before.as_deref().unwrap_or_default());
                    let text =
                        format!("{failed}; the previous store is {}, and cannot be renamed: {error}", there.display());
                    NotPut { fault: Fault::Other(text), is_kept: false }
                }
            });
        }
        let ended = || -> Result<(), Fault> {
            if before.is_none() {
                self.remove(&log_before)?;
            }
            rustix::fs::fsync(&self.directory).map_err(|error| self.fault("cannot write", "")(error.into()))
        };
        match ended() {
            Ok(()) => Ok(before.map(|before| self.path(&before))),
            Err(fault) => Err(NotPut { fault, is_kept: false }),
        }
    }

    /// Returns the first free end of a name like `controller.db-before-1`. A name with a log (`-wal`) beside it is not
    /// free: SQLite would apply that log to the store that gets this name.
    fn free(&self) -> Result<String, Fault> {
        let mut ends = (1..u16::MAX).map(|n| format!("-before-{n}"));
        let free = ends.find(|end| !self.has(end) && !self.has(&format!("{end}-wal")));
        let every = self.path("-before-N");
        free.ok_or_else(|| Fault::Other(format!("remove old stores: every name {} is in use", every.display())))
    }

    /// Returns the name of the file beside the store whose name ends in `end`; `""` is the store itself.
    fn name(&self, end: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(OsStr::new(end));
        name
    }

    fn path(&self, end: &str) -> PathBuf {
        self.path.join(self.name(end))
    }

    fn has(&self, end: &str) -> bool {
        rustix::fs::statat(&self.directory, self.name(end), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, self.name(from), &self.directory, self.name(to))?)
    }

    /// Removes a file beside the store, or the link of that name; that none is there is fine.
    fn remove(&self, end: &str) -> Result<(), Fault> {
        let removed = rustix::fs::unlinkat(&self.directory, self.name(end), AtFlags::empty());
        gone_is_fine(removed.map_err(io::Error::from)).map_err(self.fault("cannot remove", end))
    }

    fn fault(&self, what: &'static str, end: &str) -> impl FnOnce(io::Error) -> Fault + use<> {
        let path = self.path(end);
        move |source| Fault::File { what, path, source }
    }
}

/// Opens a file to read as root. Where another user owns the file's directory, that user could put a link there, to a
/// file that only root may read: the link is not followed, and the file must be that user's or root's.
fn read_only(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = rustix::fs::stat(directory)?.st_uid;
    let link = if Uid::from_raw(owner).is_root() { OFlags::empty() } else { OFlags::NOFOLLOW };
    // NONBLOCK: a pipe without a writer would hold the verb for ever.
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | link, Mode::empty())?;
    let found: Stat = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(found.st_mode as RawMode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if !Uid::from_raw(owner).is_root() && found.st_uid != owner && found.st_uid != 0 {
        let text = format!("it belongs to uid {}, but its directory to uid {owner}", found.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(File::from(opened))
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
