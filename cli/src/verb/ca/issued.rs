//! What an authority has issued, read again and added to.

use std::path::Path;

pub(super) use perilog_host::authority::Issued;
use perilog_host::authority::{ISSUED, remember};

use super::files;
use super::read::Read;
use crate::fault::Fault;

/// Adds certificates to the list of the authority in `dir`; they are on disk when it returns.
pub(super) fn add(dir: &Path, made: &[Read]) -> Result<(), Fault> {
    let issued = |read: &Read| Issued {
        serial: read.serial.clone(),
        role: read.role.to_owned(),
        names: read.names.clone(),
        not_after_ms: read.not_after_ms,
    };
    let issued: Vec<Issued> = made.iter().map(issued).collect();
    remember(dir, &issued).map_err(|source| Fault::File { what: "cannot write", path: dir.join(ISSUED), source })
}

/// All of it; none where the authority has no list.
pub(super) fn list(dir: &Path) -> Result<Vec<Issued>, Fault> {
    let path = dir.join(ISSUED);
    if files::is_missing(&path) {
        return Ok(Vec::new());
    }
    let text = files::read_list(&path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| Fault::Usage(format!("{}:{}: {error}", path.display(), at + 1)))
        })
        .collect()
}
