//! Files under /run/perilog, which must outlive the agent, but not the boot.
//!
//! ```text
//!   agent.lock                            the agent: one per host
//!   boot.json                             the agent: the boot that this is
//!   epoch.json                            the agent: the epoch that this host accepted last
//!   tasks/<stem>/                         the agent: intent.json outcome.json boot-expected stop-asked
//!                                         the runner: steps.jsonl result.json out.* room
//!                                         the first of both: claim
//!   tombstones/<stem>.json                the agent
//!   control/<stem>.sock .ranks .hosts     the runner: its socket, and lists that are too long for a variable
//! ```
//!
//! All calls are synchronous, because tmpfs never waits for a disk. The agent's files appear complete (temporary file,
//! then rename). A task's directory appears with its intent inside, and the agent renames the directory before it
//! empties the directory. Temporary names begin with `.agent-`, so that the cleanup after a crash touches no file of a
//! working runner.

mod error;
mod lock;
mod own;
mod read;
mod tails;
mod watch;
mod write;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use perilog_core::ids::UNIT_PREFIX;
use perilog_core::task::{BOOT_EXPECTED, Claim, Ended, Intent, STOP_ASKED, Tombstone};
use perilog_core::{AcceptedEpoch, BootRecord, defect};
use perilog_host::fault;

pub use error::SpoolError;
pub use lock::Lock;
pub use read::Traces;
pub(crate) use read::step_records;
pub use watch::Watcher;

/// Prefix of the agent's temporary entries.
const TEMPORARY: &str = ".agent-";

/// The directories that the agent makes in its runtime directory, with their modes.
const DIRECTORIES: [(&str, u32); 3] = [("tasks", 0o700), ("tombstones", 0o700), ("control", 0o711)];

/// The agent's runtime directory (`/run/perilog`) with the files of all tasks.
#[derive(Debug, Clone)]
pub struct Spool {
    root: PathBuf,
}

impl Spool {
    /// Creates missing directories and takes the lock: a second agent gets [`SpoolError::Locked`]. Then removes
    /// half-made entries from a crash.
    pub fn open(root: &Path) -> Result<(Self, Lock), SpoolError> {
        let spool = Self { root: root.to_owned() };
        make_dir(root, 0o755)?;
        let lock = Lock::take(&root.join("agent.lock"))?;
        for (name, mode) in DIRECTORIES {
            make_dir(&root.join(name), mode)?;
        }
        spool.tidy()?;
        Ok((spool, lock))
    }

    /// Opens the spool without the lock, for a process other than the agent. Such a process only reads.
    pub fn open_unlocked(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the directory of all tasks.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// Returns the path of a task's directory.
    pub fn task(&self, stem: &str) -> PathBuf {
        self.root.join("tasks").join(stem)
    }

    fn tombstone(&self, stem: &str) -> PathBuf {
        self.root.join("tombstones").join(format!("{stem}.json"))
    }

    /// Returns the stems of all tasks with a directory.
    pub fn stems(&self) -> Result<Vec<String>, SpoolError> {
        Ok(names(&self.root.join("tasks"))?.into_iter().filter(|name| name.starts_with(UNIT_PREFIX)).collect())
    }

    /// Returns all tombstones. Logs an unreadable tombstone and leaves the file: a later version may have written it.
    /// The agent refuses no Start because of such a tombstone.
    pub fn tombstones(&self) -> Result<Vec<Tombstone>, SpoolError> {
        let dir = self.root.join("tombstones");
        let tombstones = names(&dir)?.into_iter().filter(|name| name.ends_with(".json"));
        Ok(tombstones.filter_map(|name| read::json(&dir.join(name))).collect())
    }

    /// Returns the record of the present boot. If `boot.json` is missing, or belongs to another boot, writes a new
    /// record first. An agent of an earlier version leaves the lock's file and no record: its boot keeps the id
    /// without a nonce, so an upgrade is no reboot to live tasks and to the controller.
    pub fn boot(&self, kernel: &str, pid1: Option<u64>, lock: &Lock) -> Result<BootRecord, SpoolError> {
        let path = self.root.join("boot.json");
        let known: Option<BootRecord> = read::json(&path);
        if let Some(record) = known.filter(|record| record.is_of(kernel, pid1)) {
            return Ok(record);
        }
        let is_upgrade = lock.was_there() && !path.exists();
        let nonce = (!is_upgrade).then(|| format!("{:016x}", uuid::Uuid::new_v4().as_u64_pair().1));
        let record = BootRecord { kernel: kernel.to_owned(), pid1, nonce };
        write::json(&path, &record)?;
        Ok(record)
    }

    /// Returns the epoch, cluster and commit that this host last accepted in this boot; `None` before the first, or if
    /// their file is unreadable.
    pub fn accepted(&self) -> Option<AcceptedEpoch> {
        read::json(&self.root.join("epoch.json"))
    }

    pub fn write_accepted_epoch(&self, accepted: AcceptedEpoch) -> Result<(), SpoolError> {
        write::json(&self.root.join("epoch.json"), &accepted)
    }

    /// Makes the spool's own [`DIRECTORIES`] again, if another program has removed them since the agent's start.
    fn restore(&self) -> Result<(), SpoolError> {
        for (name, mode) in DIRECTORIES {
            let path = self.root.join(name);
            if !path.exists() {
                make_dir(&path, mode)?;
                tracing::warn!(
                    "{} was missing with all of its content, and is made again; exclude {} from programs that remove \
                     temporary files",
                    path.display(),
                    self.root.display()
                );
            }
        }
        Ok(())
    }

    /// Creates the task's directory with `intent.json` inside. If the directory exists already (for example with an
    /// unreadable intent), replaces the intent.
    ///
    /// An intent begins the task anew, unless the agent rebuilt it ([`Intent::is_rebuilt`]). So this function first
    /// removes what an earlier begin of the task left: the tombstone, the outcome and the marks. If the tombstone
    /// stayed, the next agent would remove the new directory.
    pub fn write_intent(&self, stem: &str, intent: &Intent) -> Result<(), SpoolError> {
        self.restore()?;
        let dir = self.task(stem);
        let exists = dir.exists();
        if !intent.is_rebuilt() {
            let inside = ["outcome.json", BOOT_EXPECTED, STOP_ASKED].map(|name| dir.join(name));
            for path in inside.into_iter().filter(|_| exists).chain([self.tombstone(stem)]) {
                gone_is_fine(fs::remove_file(&path)).map_err(|e| SpoolError::io("remove", &path, e))?;
            }
        }
        if exists {
            return write::json(&dir.join("intent.json"), intent);
        }
        let fresh = self.root.join("tasks").join(format!("{TEMPORARY}{stem}"));
        make_dir(&fresh, 0o700)?;
        write::json(&fresh.join("intent.json"), intent)?;
        fs::rename(&fresh, &dir).map_err(|e| SpoolError::io("rename", &dir, e))
    }

    /// Returns `true` if this task has a directory.
    pub fn has(&self, stem: &str) -> bool {
        self.task(stem).is_dir()
    }

    /// Takes the task's claim for the agent: creates the file `claim`, unless it exists. Returns `true` if the file has
    /// this claim, also from before. Returns `false` if the file has another claim, such as a runner's, or may have had
    /// one because the directory is gone.
    pub fn take_claim(&self, stem: &str, claim: &Claim) -> Result<bool, SpoolError> {
        if !self.has(stem) {
            return Ok(false);
        }
        let dir = self.task(stem);
        let path = dir.join("claim");
        Ok(write::json_once(&path, claim)? || read::json::<Claim>(&path).as_ref() == Some(claim))
    }

    /// Writes `outcome.json`. If the directory is gone or has no readable intent, first writes the intent `rebuilt`, so
    /// that no outcome is without an intent.
    pub fn write_outcome(&self, stem: &str, ended: &Ended, rebuilt: &Intent) -> Result<(), SpoolError> {
        let dir = self.task(stem);
        if defect!(OutcomeAlone) {
            make_dir(&dir, 0o700)?;
        } else if self.intent(stem).is_none() {
            self.write_intent(stem, rebuilt)?;
        }
        write::json(&dir.join("outcome.json"), ended)
    }

    /// Writes the mark that the controller knows of the announced reboot; the task's runner waits for this mark.
    pub fn mark_boot_expected(&self, stem: &str) -> Result<(), SpoolError> {
        write::json(&self.task(stem).join(BOOT_EXPECTED), &true)
    }

    /// Writes the mark that perilog was asked to stop the task. The agent writes the mark before it sends TERM.
    pub fn mark_stop_asked(&self, stem: &str) -> Result<(), SpoolError> {
        write::json(&self.task(stem).join(STOP_ASKED), &true)
    }

    /// Writes the task's tombstone, then removes its directory, if present.
    pub fn write_tombstone(&self, stem: &str, tombstone: &Tombstone) -> Result<(), SpoolError> {
        if defect!(DirectoryRemovedFirst) {
            self.remove_task(stem)?;
        }
        self.restore()?;
        write::json(&self.tombstone(stem), tombstone)?;
        fault::point("mid-burial");
        self.remove_task(stem)
    }

    pub fn remove_tombstone(&self, stem: &str) -> Result<(), SpoolError> {
        let path = self.tombstone(stem);
        gone_is_fine(fs::remove_file(&path)).map_err(|e| SpoolError::io("remove", &path, e))
    }

    /// Returns the intent of a task, if the task's directory has an intent of that task.
    pub fn intent(&self, stem: &str) -> Option<Intent> {
        read::intent(&self.task(stem), stem)
    }

    pub fn outcome(&self, stem: &str) -> Option<Ended> {
        read::json(&self.task(stem).join("outcome.json"))
    }

    /// Returns at most `most` bytes from the start of a file in a task's directory; `None` if the file does not exist.
    pub fn kept(&self, stem: &str, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        read::bounded(&self.task(stem).join(name), most)
    }

    /// Reads the runner's files of a task. `running`: the runner may still work, so a script without an end has not
    /// failed and has no tail.
    pub fn traces(&self, stem: &str, running: bool) -> Traces {
        read::traces(&self.task(stem), running)
    }

    fn remove_task(&self, stem: &str) -> Result<(), SpoolError> {
        let dir = self.task(stem);
        let gone = self.root.join("tasks").join(format!("{TEMPORARY}gone-{stem}"));
        let aside = || fs::rename(&dir, &gone);
        let moved = aside().or_else(|error| match error.kind() {
            _ if defect!(RemovalLeftHalf) => Err(error),
            // An earlier removal of this task failed within the directory.
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(&gone).and_then(|()| aside())
            }
            _ => Err(error),
        });
        let had_result = match moved {
            Ok(()) => {
                let had_result = gone.join("result.json").exists();
                fs::remove_dir_all(&gone).map_err(|e| SpoolError::io("remove", &gone, e))?;
                had_result
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(SpoolError::io("rename", &dir, e)),
        };
        // A runner that wrote a result had removed its files in `control/` before.
        if had_result {
            return Ok(());
        }
        // A killed runner leaves its socket, and lists that were too long for a variable.
        for name in [stem.to_owned(), short(stem)] {
            for kind in ["sock", "ranks", "hosts"] {
                let path = self.root.join("control").join(format!("{name}.{kind}"));
                gone_is_fine(fs::remove_file(&path)).map_err(|e| SpoolError::io("remove", &path, e))?;
            }
        }
        Ok(())
    }

    /// Removes the agent's temporary entries. Also removes a directory beside its tombstone: a crash came between the
    /// two.
    fn tidy(&self) -> Result<(), SpoolError> {
        let tasks = self.root.join("tasks");
        for dir in [&self.root, &tasks, &self.root.join("tombstones")] {
            remove_temporary(dir)?;
        }
        for stem in self.stems()? {
            if self.tombstone(&stem).exists() {
                self.remove_task(&stem)?;
            } else {
                remove_temporary(&self.task(&stem))?;
            }
        }
        Ok(())
    }
}

fn remove_temporary(dir: &Path) -> Result<(), SpoolError> {
    for name in names(dir)?.into_iter().filter(|name| name.starts_with(TEMPORARY)) {
        let path = dir.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|e| SpoolError::io("remove", &path, e))?;
    }
    Ok(())
}

/// Creates a directory with this mode under any umask; sets the mode of an existing directory.
fn make_dir(path: &Path, mode: u32) -> Result<(), SpoolError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made.map_err(|e| SpoolError::io("make directory", path, e))?,
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| SpoolError::io("set mode of", path, e))
}

/// Returns the names in a directory, sorted; skips names that are no UTF-8, which perilog never uses.
fn names(dir: &Path) -> Result<Vec<String>, SpoolError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    };
    list().map_err(|e| SpoolError::io("list", dir, e))
}

/// Returns the name (without extension) of a task's files in `control/`, for a stem that is too long for a socket's
/// path: the stem's last two parts, which distinguish tasks.
fn short(stem: &str) -> String {
    let tail = stem.rmatch_indices('-').nth(1).map_or(0, |(at, _)| at + 1);
    stem[tail..].to_owned()
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
