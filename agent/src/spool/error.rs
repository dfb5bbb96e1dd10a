//! The reason why a file of the runtime directory could not be made or read.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("another agent runs on this host{holder}: it holds {path}", path = path.display(),
            holder = holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked { path: PathBuf, holder: Option<u32> },
}

impl SpoolError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}
