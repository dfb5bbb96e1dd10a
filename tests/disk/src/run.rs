//! Programs that run with the shim.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;

use crate::record::Entry;

/// Returns the path of a file that cargo has built beside this program, or one directory above.
fn built(name: &str) -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let found = this.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.exists());
    found.ok_or_else(|| io::Error::other(format!("no {name} beside {}: `cargo build` makes it", this.display())))
}

/// Returns a command for a program that a site gets, such as `perilog-controller`.
///
/// # Errors
/// Cargo has not built the program.
pub fn program(name: &str) -> io::Result<Command> {
    built(name).map(Command::new)
}

/// A directory whose changes are recorded, and the file of the record.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub directory: PathBuf,
    pub record: PathBuf,
}

impl Recorded {
    /// Makes a program load the shim, which records its calls.
    ///
    /// # Errors
    /// Cargo has not built the shim.
    pub fn preload(&self, command: &mut Command) -> io::Result<()> {
        command.env("LD_PRELOAD", built("libperilog_shim.so")?);
        command.env("PERILOG_SHIM_DIRECTORY", &self.directory).env("PERILOG_SHIM_RECORD", &self.record);
        Ok(())
    }

    /// Returns the place for the marks of a test.
    ///
    /// # Errors
    /// I/O errors.
    pub fn marks(&self) -> io::Result<Marks> {
        OpenOptions::new().append(true).create(true).open(&self.record).map(Marks)
    }
}

/// Appends marks to a record.
#[derive(Debug)]
pub struct Marks(File);

impl Marks {
    /// Records that the program has reported this as durable. A line of text.
    ///
    /// # Errors
    /// I/O errors.
    pub fn acknowledged(&self, what: &str) -> io::Result<()> {
        (&self.0).write_all(&Entry::Acknowledged { what }.bytes())
    }
}
