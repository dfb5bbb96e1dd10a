//! Errors of a store.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ffi;

/// The reason why the store cannot be opened. The process ends; the text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {source}", path.display())]
    Place { path: PathBuf, source: io::Error },
    #[error(
        "{} is on a network file system ({kind}): a store there can lose acknowledged results; set `store` to a path \
         on a disk of this host",
        dir.display()
    )]
    Network { dir: PathBuf, kind: &'static str },
    #[error("{}: another controller is using this store, or a restore is replacing it", path.display())]
    InUse { path: PathBuf },
    #[error(
        "the store has tables of version {found}, and this controller supports up to {ours}: use the release that \
         wrote it, or a newer one"
    )]
    Version { found: i64, ours: i64 },
    #[error("it is an SQLite database of another program")]
    Foreign,
    /// [`Self::Foreign`], at the path of `store` in the configuration.
    #[error(
        "{} is an SQLite database of another program, so it was not changed. Set `store` to another path",
        path.display()
    )]
    Taken { path: PathBuf },
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error(
        "{}: the store is damaged ({wrong}), and it cannot be rebuilt ({why}): restore a copy (perilog controller \
         restore FILE)",
        path.display()
    )]
    Ruined { path: PathBuf, wrong: String, why: String },
    #[error(
        "{}: the store is damaged ({wrong}), and its disk has no room to rebuild it: make room for a second copy of \
         the store, then start the controller again",
        path.display()
    )]
    NoRoom { path: PathBuf, wrong: String },
    #[error(
        "{}: an earlier release wrote this store, and no copy of it can be kept before it is migrated ({why}): fix \
         that, then start the controller again",
        path.display()
    )]
    NotKept { path: PathBuf, why: String },
    #[error(
        "{}: its file system does not support SQLite's write-ahead log (journal_mode={mode}). Set `store` to a path on \
         a local disk",
        path.display()
    )]
    NoLog { path: PathBuf, mode: String },
    #[error(
        "{}: {source}: the disk does not accept the store's log, and a power cut could lose acknowledged results; \
         check the disk (journalctl -k), then start the controller again",
        path.display()
    )]
    Log { path: PathBuf, source: io::Error },
    #[error("{}: {}", path.display(), describe(source))]
    Store { path: PathBuf, source: rusqlite::Error },
    #[error("the store: {}", describe(.0))]
    Sqlite(#[from] rusqlite::Error),
}

/// The reason why records are not durable; the store contains none of them.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, and the reserve is used up. The store recovers when an operator makes room.
    #[error("the store's disk is full: make room on it")]
    Full,
    /// The content of the disk is uncertain; the process has to end and start again from the disk.
    #[error("the store: {0}")]
    Other(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Other(describe(&error)),
        }
    }
}

impl OpenError {
    /// Names the store's file in an error that lacks it.
    pub(super) fn at(self, path: &Path) -> Self {
        match self {
            Self::Sqlite(source) => Self::Store { path: path.to_owned(), source },
            Self::Foreign => Self::Taken { path: path.to_owned() },
            other => other,
        }
    }
}

impl StoreError {
    pub(super) fn at(self, path: &Path) -> Self {
        match self {
            Self::Other(why) => Self::Other(format!("{}: {why}", path.display())),
            Self::Full => Self::Full,
        }
    }
}

/// Describes an error of SQLite: an I/O error with the call that failed, and damage with the remedy.
fn describe(error: &rusqlite::Error) -> String {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let call = match code {
        Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ) => "read",
        Some(ffi::SQLITE_IOERR_WRITE) => "write",
        Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => "fsync",
        Some(ffi::SQLITE_IOERR_TRUNCATE) => "truncate",
        Some(ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMMAP) => "shared memory",
        Some(code) if code & 0xff == ffi::SQLITE_IOERR => "another call",
        Some(code) if matches!(code & 0xff, ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => {
            return format!("{error}: the store is damaged; restore a copy (perilog controller restore FILE)");
        }
        _ => return error.to_string(),
    };
    let code = code.unwrap_or_default();
    format!("disk I/O error ({call} failed, SQLite's code {code}): check the disk (journalctl -k)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_names_the_file_and_the_call() {
        let failed = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let path = Path::new("/var/lib/perilog/controller.db");
        let error = OpenError::from(failed(ffi::SQLITE_IOERR_FSYNC)).at(path).to_string();
        assert!(error.starts_with("/var/lib/perilog/controller.db: disk I/O error"), "{error}");
        assert!(error.contains("(fsync failed, SQLite's code 1034)"), "{error}");
        let error = StoreError::from(failed(ffi::SQLITE_IOERR_WRITE)).at(path).to_string();
        assert!(error.contains("/var/lib/perilog/controller.db: ") && error.contains("(write failed"), "{error}");
        let error = StoreError::from(failed(ffi::SQLITE_CORRUPT_INDEX)).to_string();
        assert!(error.contains("perilog controller restore FILE"), "{error}");
    }
}
