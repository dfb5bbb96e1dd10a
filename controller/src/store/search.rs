//! The search for damage in a store whose last controller did not end cleanly. It reads the whole file.
//!
//! | the controller before | the search |
//! |---|---|
//! | ended cleanly: the log is gone or empty | none |
//! | was killed, and its host has not booted since | beside the new controller ([`Search`]) |
//! | was cut off with its host, or met an error | at the start, before the first row is read |
//!
//! A killed process damages no file, because the kernel has all that it wrote. A power cut may. So the file of the lock
//! holds the boot in which the store is trusted: the controller writes it when the store is open, and empties the file
//! at every error of the store. The file is not synced: after a power cut it has an earlier boot, or nothing.
//!
//! Until a search beside the controller is over, the log stays at a clean end, so that the next start searches again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use perilog_core::defect;
use perilog_host::clock;
use rusqlite::{Connection, OpenFlags};

use super::place::{self, Lock};
use super::{BUSY_MS, StoreError, log, rebuild};

/// The kernel's id of the host's boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Steps of SQLite between two looks at the clock: some pages of a table.
const STEPS: i32 = 200;
/// Time in microseconds after which a search beside the controller pauses.
const SLICE_US: u64 = 5_000;
/// Length of a pause, as a multiple of the slice before it: the search takes a quarter of one processor, and of the
/// disk.
const PAUSES: u32 = 3;

/// The time at which a store is searched for damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Never,
    /// Beside the controller that has the store open.
    Beside,
    /// Before the first row is read.
    First,
}

/// Returns when the store at `path` is to be searched. The file of the lock then trusts no boot, until [`trust`].
pub(super) fn when(path: &Path, lock: &Lock) -> When {
    let trusted = lock.take_note();
    if defect!(DamageUnchecked) {
        return When::Never;
    }
    if !log::is_left(path) {
        return When::Never;
    }
    match boot() {
        Some(_) if defect!(CutTrusted) => When::Beside,
        Some(boot) if boot == trusted => When::Beside,
        _ => When::First,
    }
}

/// Trusts the store in the present boot of the host.
pub(super) fn trust(lock: &Lock) {
    boot().iter().for_each(|boot| lock.note(boot));
}

/// Returns the id of the present boot; `None`: the kernel does not show it.
fn boot() -> Option<String> {
    let id = fs::read_to_string(BOOT).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// A search beside the controller, in a thread of its own with a connection of its own.
#[derive(Debug)]
pub struct Search {
    path: PathBuf,
    is_due: Arc<AtomicBool>,
}

impl Search {
    pub(super) fn new(path: &Path, is_due: Arc<AtomicBool>) -> Self {
        Self { path: path.to_owned(), is_due }
    }

    /// Searches the store. Blocks for as long as that takes, with pauses: see [`SLICE_US`].
    ///
    /// # Errors
    /// [`StoreError::Other`]: the store is damaged, or cannot be read. The controller must end: the next start searches
    /// the store before it reads a row, and rebuilds it or names the remedy.
    pub fn run(self) -> Result<(), StoreError> {
        let began_ms = clock::mono_ms();
        let wrong = match self.damage() {
            Ok(None) => {
                self.is_due.store(false, Ordering::Relaxed);
                let elapsed_ms = clock::mono_ms().saturating_sub(began_ms);
                tracing::info!("{}: no damage found in the store ({elapsed_ms} ms)", self.path.display());
                return Ok(());
            }
            Ok(Some(wrong)) => format!("the store is damaged ({wrong})"),
            Err(error) => format!("the search for damage failed ({error})"),
        };
        place::forget_note(&self.path);
        let text =
            format!("{wrong}: the controller stops. Its next start rebuilds the store, or prints how to restore it");
        Err(StoreError::Other(text).at(&self.path))
    }

    fn damage(&self) -> rusqlite::Result<Option<String>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&self.path, flags)?;
        db.busy_timeout(Duration::from_millis(BUSY_MS.into()))?;
        let mut began_us = clock::mono_us();
        let pace = move || {
            let slice = Duration::from_micros(clock::mono_us().saturating_sub(began_us));
            if slice >= Duration::from_micros(SLICE_US) {
                thread::park_timeout(slice * PAUSES);
                began_us = clock::mono_us();
            }
            false
        };
        db.progress_handler(STEPS, Some(pace))?;
        rebuild::damage(&db)
    }
}
