//! List of an authority's issued certificates: reading and appending.

use std::path::Path;

pub(super) use perilog_host::authority::Issued;
pub(super) use perilog_host::authority::of_host;
use perilog_host::authority::{ISSUED, known, remember};

use super::files;
use super::read::Read;
use crate::fault::Fault;
use crate::out::aside;

/// Appends certificates to the list of the authority in `dir`; the records are on disk on return.
pub(super) fn add(dir: &Path, made: &[Read]) -> Result<(), Fault> {
    let issued = |read: &Read| Issued {
        serial: read.serial.clone(),
        role: read.role.to_owned(),
        names: read.names.clone(),
        not_after_ms: read.not_after_ms,
        enrolled_ms: None,
    };
    let issued: Vec<Issued> = made.iter().map(issued).collect();
    let lock = files::lock(dir)?;
    files::begin_list(&dir.join(ISSUED))?;
    remember(&lock, &issued).map_err(|source| Fault::File { what: "cannot write", path: dir.join(ISSUED), source })
}

/// Returns the whole list; empty if the authority has no list. Warns of a malformed line and skips it: a line torn by a
/// crash must not keep an operator from revoking.
pub(super) fn list(dir: &Path) -> Result<Vec<Issued>, Fault> {
    let path = dir.join(ISSUED);
    if files::is_missing(&path) {
        return Ok(Vec::new());
    }
    let known = known(&files::read_list(&path)?);
    for line in known.skipped {
        aside(format_args!(
            "{}:{line}: skipped, because this line is no complete record of a certificate; to revoke that certificate, \
             name its file or its serial number",
            path.display()
        ));
    }
    Ok(known.issued)
}
