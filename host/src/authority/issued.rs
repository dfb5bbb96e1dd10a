//! What an authority has issued: issued.jsonl in its directory, a line for each certificate. So that a host's certificates can be revoked when nobody
//! has them any more.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub const ISSUED: &str = "issued.jsonl";

/// One certificate. Reading skips what a later version has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Hexadecimal, two digits a byte, without colons.
    pub serial: String,
    pub role: String,
    pub names: Vec<String>,
    /// Milliseconds since the epoch.
    pub not_after_ms: u64,
}

/// Adds certificates to the list of the authority in `dir`; they are on disk when it returns.
///
/// # Errors
/// Of the file.
pub fn remember(dir: &Path, issued: &[Issued]) -> io::Result<()> {
    let mut text = String::new();
    for issued in issued {
        text += &serde_json::to_string(issued)?;
        text.push('\n');
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(ISSUED))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
