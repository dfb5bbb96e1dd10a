//! Files of a node, accessed from outside, whether the node is on or off.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Node, Power};
use crate::rootfs::Rootfs;

impl Node {
    /// Replaces a file (mode 0644) in one step, and creates missing directories. The node may be on or off.
    pub fn write_file(&self, path: &str, text: impl AsRef<[u8]>) -> Result<()> {
        self.write_with_mode(path, text, 0o644)
    }

    /// Writes an executable file as [`write_file`](Self::write_file) does.
    pub fn write_script(&self, path: &str, text: impl AsRef<[u8]>) -> Result<()> {
        self.write_with_mode(path, text, 0o755)
    }

    /// Writes a file with this mode, as [`write_file`](Self::write_file) does.
    pub fn write_with_mode(&self, path: &str, text: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let write = self.files()?.write(Path::new(path), text.as_ref(), mode);
        write.with_context(|| self.name.clone())
    }

    /// Reads a file as text. While the node is off, only the files that the node itself or a test has written exist.
    pub fn read_file(&self, path: &str) -> Result<String> {
        self.try_read_file(path)?.with_context(|| format!("{}: no file {path}", self.name))
    }

    /// Reads a file as [`read_file`](Self::read_file) does; `None` if the file does not exist.
    pub fn try_read_file(&self, path: &str) -> Result<Option<String>> {
        let bytes = self.files()?.read(Path::new(path)).with_context(|| self.name.clone())?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Enables a unit of the installed product from the next boot on.
    pub(crate) fn enable(&self, unit: &str, target: &str) -> Result<()> {
        let link = format!("/etc/systemd/system/{target}.wants/{unit}");
        self.files()?.link(Path::new(&link), &format!("/usr/lib/systemd/system/{unit}"))
    }

    /// Enables a unit that a test has written to /etc from the next boot on.
    pub(crate) fn enable_own(&self, unit: &str, target: &str) -> Result<()> {
        let link = format!("/etc/systemd/system/{target}.wants/{unit}");
        self.files()?.link(Path::new(&link), &format!("/etc/systemd/system/{unit}"))
    }

    /// Opens the root directory of a booted node, otherwise the upper directory of the node's overlay.
    pub(crate) fn files(&self) -> Result<Rootfs> {
        let leader = self.power().as_ref().filter(|power| power.booted).and_then(Power::leader);
        match leader {
            Some(leader) => Rootfs::open(Path::new(&format!("/proc/{leader}/root"))),
            None => Rootfs::open(&self.own_directory().join("upper")),
        }
    }

    /// Returns the path of the node's directory for use by this process. It leads through `/proc/PID/root` of the hub,
    /// PID 1 of the bed: the directory's file system may be mounted only inside of the bed.
    pub(super) fn own_directory(&self) -> PathBuf {
        let inside = self.bed.join("nodes").join(&self.name);
        let mut path = PathBuf::from(format!("/proc/{}/root", self.hub)).into_os_string();
        path.push(inside);
        path.into()
    }
}
