//! Files that appear complete or not at all. No fsync: the files are on tmpfs, and a reboot ends all tasks anyway.

use perilog_core::defect;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::SpoolError;
use super::{TEMPORARY, gone_is_fine};

/// Writes `value` as JSON into the file `path`, by a temporary file and rename(2).
pub(super) fn json(path: &Path, value: &impl Serialize) -> Result<(), SpoolError> {
    let temporary = put(path, value)?;
    if defect!(WriteInPlace) {
        return fs::copy(&temporary, path).map(drop).map_err(|e| SpoolError::io("write", path, e));
    }
    fs::rename(&temporary, path).map_err(|e| SpoolError::io("rename", path, e))
}

/// Writes `value` as JSON into a new file `path`, by a temporary file and link(2). Returns `false` if the file exists.
pub(super) fn json_once(path: &Path, value: &impl Serialize) -> Result<bool, SpoolError> {
    let temporary = put(path, value)?;
    if defect!(AgentOverwritesClaim) {
        return fs::rename(&temporary, path).map(|()| true).map_err(|e| SpoolError::io("rename", path, e));
    }
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary).map_err(|e| SpoolError::io("remove", &temporary, e))?;
    match linked {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(SpoolError::io("create", path, e)),
    }
}

fn put(path: &Path, value: &impl Serialize) -> Result<PathBuf, SpoolError> {
    let name = path.file_name().unwrap_or(OsStr::new("unnamed")).to_string_lossy();
    let temporary = path.with_file_name(format!("{TEMPORARY}{name}"));
    let write = || -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let mut file = create().or_else(|error| {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            // Removes a file from a crash, or a planted file: opening a FIFO would wait.
            gone_is_fine(fs::remove_file(&temporary))?;
            create()
        })?;
        file.write_all(&bytes)
    };
    write().map_err(|e| SpoolError::io("write", path, e))?;
    Ok(temporary)
}
