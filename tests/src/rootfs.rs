//! Access to files below a directory that is the `/` of some node.
//!
//! A node's absolute symbolic links (`/var/run` -> `/run`) mean the node's own files; the host would follow such a link
//! to the host's files. So openat2(2) with RESOLVE_IN_ROOT resolves every path.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat2, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

/// An open directory that stands for `/`: all paths resolve inside it.
#[derive(Debug)]
pub(crate) struct Rootfs(OwnedFd);

impl Rootfs {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(root, flags, Mode::empty()).with_context(|| format!("opening {}", root.display()))?;
        Ok(Self(root))
    }

    /// Reads a file; `None` if the file does not exist.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let file = match self.resolve(path, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
        };
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes).with_context(|| format!("reading {}", path.display()))?;
        Ok(Some(bytes))
    }

    /// Replaces the file in one step, so that a daemon never reads half of the file; creates the directories.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let temporary = format!(".{name}.new"); // a dotfile is no script in a script directory
        let mode = Mode::from_raw_mode(mode);
        let write = || -> Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, &temporary, flags, mode)?;
            fchmod(&file, mode)?;
            File::from(file).write_all(bytes)?;
            Ok(renameat(&directory, &temporary, &directory, name)?)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Creates a symbolic link, or replaces an existing link.
    pub(crate) fn link(&self, path: &Path, target: &str) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let link = || -> rustix::io::Result<()> {
            match unlinkat(&directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => symlinkat(target, &directory, name),
                Err(error) => Err(error),
            }
        };
        link().with_context(|| format!("linking {} to {target}", path.display()))
    }

    /// Creates the directory and the parents; returns the opened directory.
    pub(crate) fn directory(&self, path: &Path) -> Result<OwnedFd> {
        let mut so_far = std::path::PathBuf::from(".");
        let mut make = || -> rustix::io::Result<OwnedFd> {
            let mut directory = self.resolve(&so_far, OFlags::RDONLY | OFlags::DIRECTORY)?;
            for component in path.components() {
                let Component::Normal(name) = component else { continue };
                match mkdirat(&directory, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                so_far.push(name);
                directory = self.resolve(&so_far, OFlags::RDONLY | OFlags::DIRECTORY)?;
            }
            Ok(directory)
        };
        make().with_context(|| format!("making {}", path.display()))
    }

    fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a str)> {
        match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
            (Some(parent), Some(name)) => Ok((self.directory(parent)?, name)),
            _ => bail!("{} names no file", path.display()),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside_the_root() {
        let root = std::env::temp_dir().join(format!("perilog-rootfs-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let files = Rootfs::open(&root).unwrap();
        files.write(Path::new("/run/secret"), b"mine", 0o600).unwrap();
        files.link(Path::new("/var/run"), "/run").unwrap();
        assert_eq!(files.read(Path::new("/var/run/secret")).unwrap().unwrap(), b"mine");
        files.write(Path::new("/var/run/new/file"), b"too", 0o755).unwrap();
        assert_eq!(std::fs::read(root.join("run/new/file")).unwrap(), b"too");
        files.link(Path::new("/escape"), "../../../../etc/passwd").unwrap();
        assert_eq!(files.read(Path::new("/escape")).unwrap(), None);
        assert!(files.write(Path::new("/"), b"", 0o644).is_err());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
