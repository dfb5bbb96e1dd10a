//! The files and directories that a disk has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Contents of files by name, and names of directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub files: BTreeMap<String, Vec<u8>>,
    pub directories: BTreeSet<String>,
}

impl Image {
    /// Writes the image into an empty directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        // A directory is before what is in it.
        self.directories.iter().try_for_each(|name| std::fs::create_dir(to.join(name)))?;
        self.files.iter().try_for_each(|(name, bytes)| write_private(&to.join(name), bytes))
    }

    /// Reads the files and directories below a directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(from: &Path) -> io::Result<Self> {
        let mut image = Self::default();
        image.read_below(from, "")?;
        Ok(image)
    }

    fn read_below(&mut self, directory: &Path, name: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let inside = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidFilename)?;
            let name = if name.is_empty() { inside } else { format!("{name}/{inside}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.read_below(&entry.path(), &name)?;
                self.directories.insert(name);
            } else if kind.is_file() {
                self.files.insert(name, std::fs::read(entry.path())?);
            }
        }
        Ok(())
    }
}

/// Writes a file that only its owner can read, because it may have a key.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}
