//! Reaper: the process that cleans a bed up when the bed or the test's process ends. The reaper starts the hub, the
//! first process of the bed's namespaces.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use super::place::{self, Place};
use crate::command::children;
use crate::layer::Layer;
use crate::wait_until;

const SCRIPTS: [(&str, &str); 3] = [
    ("reaper.sh", include_str!("reaper.sh")),
    ("hub.sh", include_str!("hub.sh")),
    ("node-init.sh", include_str!("node-init.sh")),
];
/// Directory of a bed that is the layer of nodes without a product.
const EMPTY: &str = "empty";
const PREFIX: &str = "perilog-bed-";
/// Time limit for making a bed on a busy machine, which takes moments.
const START: Duration = Duration::from_secs(60);
/// Time limit for removing a bed on a busy machine, which takes moments; the roots of four distributions take a minute.
const TEAR_DOWN: Duration = Duration::from_secs(300);

/// Returns the directory in which each bed makes its own: `PERILOG_BED_DIR`, otherwise /var/tmp, which is on disk.
/// (/tmp and /run may be in memory.)
fn base() -> PathBuf {
    std::env::var_os("PERILOG_BED_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Reaper process of a bed. It removes the bed when its input, a pipe from the test's process, closes: at a drop of
/// this value, or at the end of the test's process.
#[derive(Debug)]
pub(crate) struct Reaper {
    name: String,
    directory: PathBuf,
    layer: PathBuf,
    cgroup: PathBuf,
    /// Pid, on this machine, of the hub: the first process in the bed's namespaces.
    hub: u32,
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Reaper {
    pub(super) fn start(layer: Option<&Layer>) -> Result<Self> {
        let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("a random name")?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), random.get(..8).unwrap_or_default());
        let place = place::find(&name)?;
        let directory = base().join(&name);
        let lock = make_directory(&directory)?;

        let mut command;
        let cgroup = match &place {
            Place::Scope => {
                command = Command::new("systemd-run");
                command.args(["--quiet", "--scope", "--collect", "--slice=machine.slice", "--property=Delegate=yes"]);
                command.arg(format!("--unit={name}")).args(["--", "/bin/sh"]);
                Path::new("scope")
            }
            Place::Directory(cgroup) => {
                command = Command::new("/bin/sh");
                cgroup
            }
        };
        command.arg(directory.join("reaper.sh")).arg(&directory).arg(cgroup);
        let log = File::create(directory.join("log")).context("making the bed's log")?;
        command.stdin(Stdio::piped()).stdout(lock).stderr(log).process_group(0);
        let mut child = command.spawn().context("starting the reaper of a bed")?;
        let pipe = child.stdin.take();
        let mut reaper =
            Self { name, layer: directory.join(EMPTY), directory, cgroup: PathBuf::new(), hub: 0, child, pipe };
        if let Some(layer) = layer {
            reaper.layer = layer.path_for(&reaper.directory)?;
        }
        reaper.wait_ready()?;
        Ok(reaper)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let file = |name: &str| std::fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        let child = &mut self.child;
        wait_until("the bed's hub", START, || {
            // The reaper and the hub write their files concurrently.
            if file("ready").is_empty() || file("hub").is_empty() {
                let hub: u32 = file("hub").trim().parse().unwrap_or(0);
                if child.try_wait()?.is_some() || (hub != 0 && !Path::new(&format!("/proc/{hub}/exe")).exists()) {
                    bail!("cannot make a bed of nodes: {}", file("log").trim());
                }
                return Ok(false);
            }
            Ok(true)
        })?;
        let outer: u32 = file("hub").trim().parse().context("the hub's process id")?;
        let Some(&hub) = children(outer).first() else { bail!("the bed's hub is gone: {}", file("log").trim()) };
        self.cgroup = PathBuf::from(file("cgroup").trim());
        if let Some(reason) = file("storage").strip_prefix("memory: ") {
            let first = reason.lines().next().unwrap_or_default();
            eprintln!("{}: no disk for the nodes' files, they are kept in memory ({})", self.name, first);
        }
        self.hub = hub;
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn layer(&self) -> &Path {
        &self.layer
    }

    /// Returns a directory with an empty `usr`: the layer of nodes without one.
    pub(crate) fn empty(&self) -> PathBuf {
        self.directory.join(EMPTY)
    }

    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    pub(crate) fn hub(&self) -> u32 {
        self.hub
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let gone = wait_until("the end of the bed", TEAR_DOWN, || Ok(self.child.try_wait()?.is_some()));
        if let Err(error) = gone {
            eprintln!("{}: {error:#}; its hub is process {}", self.name, self.hub);
        }
    }
}

/// Creates the bed's directory with the shell scripts of reaper, hub and nodes, and a lock file. Returns the locked
/// file; the lock is held as long as the bed lives. The directory gets its final name last. A directory with a final
/// name and a free lock therefore belongs to no living bed.
fn make_directory(directory: &Path) -> Result<File> {
    let make = || -> std::io::Result<File> {
        // `sweep` ignores this name: the directory has no lock yet, and another process may sweep at any moment.
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let new = directory.with_file_name(format!(".new-{name}"));
        std::fs::create_dir_all(new.join(EMPTY).join("usr"))?;
        let lock = File::create(new.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        for (name, text) in SCRIPTS {
            std::fs::write(new.join(name), text)?;
        }
        std::fs::rename(&new, directory)?;
        Ok(lock)
    };
    make().with_context(|| format!("making {}", directory.display()))
}

/// Removes the files and cgroups that a bed has left behind because its reaper was killed.
pub(super) fn sweep() {
    let Ok(entries) = std::fs::read_dir(base()) else { return };
    for directory in entries.flatten().map(|entry| entry.path()) {
        let ours = directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        let Ok(lock) = File::open(directory.join("lock")) else {
            continue;
        };
        if ours && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let cgroup = std::fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
            let cgroup = Path::new(cgroup.trim());
            remove_cgroup(cgroup);
            if !cgroup.as_os_str().is_empty() && cgroup.exists() {
                continue; // the last processes are just ending: the next bed removes the directory
            }
            let _ = std::fs::remove_dir_all(&directory);
        }
    }
}

/// Removes a cgroup and the cgroups below it. Leaves a cgroup that still has processes.
pub(crate) fn remove_cgroup(cgroup: &Path) {
    let Ok(entries) = std::fs::read_dir(cgroup) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_cgroup(&entry.path());
    }
    let _ = std::fs::remove_dir(cgroup);
}
