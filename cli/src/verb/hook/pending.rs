//! Pending epilogs: a node began them, and a boot cut them off. The agent keeps its tasks in /run, which a boot clears,
//! and Slurm believes that an epilog lost with its node ended well. So the hook of an epilog records its call on disk
//! before it asks the agent. The next prolog on the node runs pending epilogs first: the node is clean before a job
//! uses it, or that prolog fails.
//!
//! ```text
//!   DIR/5-0.json            on the disk: the epilog has begun, and has not ended
//!   /run/perilog/pending/...   the twin: the epilog began in this boot
//! ```
//! A note without its twin is from an earlier boot. The agent removes both when the epilog has ended, because the hook
//! may have been killed by then. Both stay if a signal ended the epilog, as a node that goes down sends it. The hook
//! removes them, too, at any end that it passes on: an older agent does not.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::out::aside;

/// The command line and the environment of an epilog's hook, recorded so that the hook of a later prolog can run the
/// epilog again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Called {
    /// Arguments of the hook's process.
    pub(super) arguments: Vec<String>,
    /// Environment from the resource manager.
    pub(super) env: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Pending {
    disk: PathBuf,
    run: PathBuf,
}

impl Pending {
    /// Locates this node's records of pending epilogs; creates no directory. `disk`: the directory for the records on
    /// disk, which outlive a boot. `socket`: the agent's socket; the directory for the twins is beside it, and a boot
    /// clears it.
    pub(super) fn new(disk: &Path, socket: &Path) -> Self {
        Self { disk: disk.to_owned(), run: socket.with_file_name("pending") }
    }

    /// Records that an epilog begins, with the call of its hook. `name`: the name of the record's two files ([`Note`]).
    /// If a write fails, prints a warning; the epilog runs all the same.
    pub(super) fn note(&self, name: &str, called: &Called) -> Note {
        let note = Note { disk: self.disk.join(name), run: self.run.join(name) };
        // Writes the twin first: a note without a twin would be from an earlier boot.
        let write = || {
            private(&self.run)?;
            File::create(&note.run)?;
            private(&self.disk)?;
            note.write(called)?;
            File::open(&self.disk)?.sync_all()
        };
        if let Err(error) = write() {
            let disk = self.disk.display();
            aside(format_args!("{disk}: {error}; perilog could not notice a power failure during this epilog"));
        }
        note
    }

    /// Runs again, one after the other, all epilogs that a boot cut off. Returns the first bad exit status: this hook
    /// exits with it, because the node is not clean. `is_env`: accepts the names of the variables that a hook reads.
    pub(super) fn settle(&self, is_env: impl Fn(&str) -> bool) -> Option<Exit> {
        for name in self.cut_off() {
            let note = Note { disk: self.disk.join(&name), run: self.run.join(&name) };
            let Some(called) = read(&note.disk) else { continue };
            let job = name.rsplit_once('-').map_or(name.as_str(), |(job, _)| job).to_owned();
            aside(format_args!("the epilog of {job} was cut off by a boot of this node, and runs again first"));
            match again(&called, &is_env) {
                Ok(0) => note.remove(),
                Ok(status) => {
                    aside(format_args!("the epilog of {job} has failed again: the node is not clean for another job"));
                    return Some(Exit::Status(status));
                }
                Err(error) => {
                    aside(format_args!("cannot run the epilog of {job} again: {error}"));
                    return Some(Exit::Other);
                }
            }
        }
        None
    }

    fn cut_off(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.disk).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| name.ends_with(".json") && !self.run.join(name).exists()).collect();
        names.sort();
        names
    }
}

/// Reads the call that the record's file `path` contains. `None`: the file is unreadable or malformed, so the epilog
/// cannot run again. The function has then printed the reason, which slurmd logs.
fn read(path: &Path) -> Option<Called> {
    let read = || -> io::Result<Called> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let called = read();
    if let Err(error) = &called {
        aside(format_args!("{}: {error}; inspect this file, and remove it", path.display()));
    }
    called.ok()
}

/// Runs this program again with the recorded arguments and environment. Of its own environment, first removes the
/// variables whose names `is_env` accepts. Returns the exit status, or 255 if a signal killed the program.
fn again(called: &Called, is_env: impl Fn(&str) -> bool) -> io::Result<u8> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(&is_env) {
            command.env_remove(name);
        }
    }
    let status = command.args(&called.arguments).envs(&called.env).stdin(Stdio::null()).status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// The paths of the two files that record an epilog which has begun on this node and has not ended. `disk`: the file
/// with the hook's call ([`Called`]), which outlives a boot. `run`: its twin, an empty file in /run, which a boot
/// removes. A `disk` without its `run` therefore means that a boot cut the epilog off.
#[derive(Debug)]
pub(super) struct Note {
    disk: PathBuf,
    run: PathBuf,
}

impl Note {
    pub(super) fn disk(&self) -> &Path {
        &self.disk
    }

    /// Removes both files of this record, after the end of its epilog: first the file on disk, then the one in /run.
    pub(super) fn remove(&self) {
        for path in [&self.disk, &self.run] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                aside(format_args!("{}: {error}", path.display()));
            }
        }
    }

    /// Writes the note to the disk whole, or not at all.
    fn write(&self, called: &Called) -> io::Result<()> {
        let temporary = self.disk.with_extension(format!("{}", std::process::id()));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(called)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.disk)
    }
}

fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_boot_has_cut_off_is_pending() {
        let dir = tempfile::tempdir().unwrap();
        let pending = Pending::new(&dir.path().join("disk"), &dir.path().join("run/agent.sock"));
        assert!(pending.cut_off().is_empty(), "there is nothing on a new node");
        let called =
            Called { arguments: vec!["hook".to_owned()], env: [("SLURM_JOB_ID".to_owned(), "5".to_owned())].into() };
        let note = pending.note("5-0.json", &called);
        assert!(pending.cut_off().is_empty(), "it runs");
        fs::remove_dir_all(dir.path().join("run")).unwrap();
        assert_eq!(pending.cut_off(), ["5-0.json"]);
        assert_eq!(read(&note.disk), Some(called.clone()));
        // A half-written note does not count.
        fs::write(dir.path().join("disk/6-0.7"), "").unwrap();
        assert_eq!(pending.cut_off(), ["5-0.json"]);
        // The call runs again.
        let note = pending.note("5-0.json", &called);
        assert!(pending.cut_off().is_empty());
        note.remove();
        assert!(pending.cut_off().is_empty() && !note.run.exists() && !note.disk.exists());
    }
}
