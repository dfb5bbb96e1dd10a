//! What an authority has issued: DIR/issued.jsonl, a line for each certificate. So that a host's certificates can be revoked when nobody has them any more.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files;
use super::read::Read;
use crate::fault::Fault;

const ISSUED: &str = "issued.jsonl";

/// One certificate. Reading skips what a later version has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Issued {
    /// Hexadecimal, two digits a byte, without colons.
    pub(super) serial: String,
    pub(super) role: String,
    pub(super) names: Vec<String>,
    /// Milliseconds since the epoch.
    pub(super) not_after_ms: u64,
}

/// Adds certificates to the list of the authority in `dir`; they are on disk when it returns.
pub(super) fn add(dir: &Path, made: &[Read]) -> Result<(), Fault> {
    let path = dir.join(ISSUED);
    let mut text = String::new();
    for read in made {
        let issued = Issued {
            serial: read.serial.clone(),
            role: read.role.to_owned(),
            names: read.names.clone(),
            not_after_ms: read.not_after_ms,
        };
        text += &serde_json::to_string(&issued).expect("texts and numbers are always JSON");
        text.push('\n');
    }
    let append = || -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    append().map_err(|source| Fault::File { what: "cannot write", path: path.clone(), source })
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
