//! Errors of a store.

use std::io;
use std::path::PathBuf;

/// The reason why the store cannot be opened. The process ends; the text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {source}", path.display())]
    Place { path: PathBuf, source: io::Error },
    #[error(
        "{} is on a network file system ({kind}): a store there can lose what was acknowledged; put it on a disk of \
         this host (`store`)",
        dir.display()
    )]
    Network { dir: PathBuf, kind: &'static str },
    #[error("{}: another controller is using this store", path.display())]
    InUse { path: PathBuf },
    #[error(
        "the store has tables of version {found}, this controller knows {ours}: use the release that wrote it, or a \
         newer one"
    )]
    Version { found: i64, ours: i64 },
    #[error("the store's file is an SQLite database of another program: it is left alone")]
    Foreign,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("the store has no write-ahead log (journal_mode={0}): does its file system lack shared memory maps?")]
    NoLog(String),
    #[error(
        "{}: {source}: the disk does not take the store's log, and a power cut could lose what was acknowledged; look \
         at the disk (journalctl -k), then start the controller again",
        path.display()
    )]
    Log { path: PathBuf, source: io::Error },
    #[error("the store: {0}")]
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
            _ => Self::Other(error.to_string()),
        }
    }
}
