//! Shared disk of the controller's hosts: a file of this machine as a loop device with ext4, which one host mounts at a
//! time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::command;
use crate::wait_until;

/// Size of a disk. The file is sparse.
const BYTES: u64 = 192 * 1024 * 1024;
/// Time limit of a command for a disk, and until a disk is unused after its host's end; both take moments.
const SOON: Duration = Duration::from_secs(60);

/// A loop device over a file. The kernel detaches the device at its last close: the end of the value, or of the test's
/// process in any way, after the end of the hosts that have mounted the device.
#[derive(Debug)]
pub(super) struct Disk {
    device: PathBuf,
    _open: File,
}

impl Disk {
    /// Makes a disk with an empty file system over a new file.
    pub(super) fn new(file: &Path) -> Result<Self> {
        let image = File::create(file).with_context(|| format!("making {}", file.display()))?;
        image.set_len(BYTES).context("the size of a disk")?;
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(file))?;
        Self::attach(file)
    }

    /// Attaches an existing file.
    pub(super) fn attach(file: &Path) -> Result<Self> {
        let device = PathBuf::from(run(Command::new("losetup").args(["--find", "--show"]).arg(file))?);
        let open = OpenOptions::new().read(true).open(&device).with_context(|| device.display().to_string())?;
        ensure!(open.metadata()?.file_type().is_block_device(), "{} is no block device", device.display());
        // The kernel detaches a device that is open at its last close.
        run(Command::new("losetup").arg("--detach").arg(&device))?;
        Ok(Self { device, _open: open })
    }

    /// Returns the device's major and minor number, for mknod(1).
    pub(super) fn number(&self) -> Result<(u32, u32)> {
        let number = self.device.metadata().with_context(|| self.device.display().to_string())?.rdev();
        Ok((rustix::fs::major(number), rustix::fs::minor(number)))
    }

    /// Waits until no host has mounted the disk.
    pub(super) fn wait_unused(&self) -> Result<()> {
        wait_until(&format!("{} is unused", self.device.display()), SOON, || {
            // A mounted device is claimed, so an exclusive open fails.
            match rustix::fs::open(&self.device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
                Ok(_) => Ok(true),
                Err(Errno::BUSY) => Ok(false),
                Err(error) => Err(error).with_context(|| self.device.display().to_string()),
            }
        })
    }
}

fn run(command: &mut Command) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    command::run(what, command, SOON)?.ok()
}
