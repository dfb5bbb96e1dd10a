//! `perilog controller backup FILE`: a copy of the store while the controller runs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::endpoint::{Answer, Endpoint};
use crate::fault::Fault;
use crate::out::aside;

#[derive(Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    size: Option<u64>,
}

/// Writes a copy of the store to `file`, whole or not at all (temporary file, fsync, rename), and returns its size in
/// bytes. Only the owner may read the copy, as with the store itself.
pub(crate) fn take(file: &Path, endpoint: &Endpoint) -> Result<u64, Fault> {
    let failed = |source| Fault::File { what: "cannot write", path: file.to_owned(), source };
    let nameless = || Fault::Usage(format!("{}: name a file for the copy", file.display()));
    let mut name = file.file_name().ok_or_else(nameless)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = file.with_file_name(name);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    let taken = fill(made, file, endpoint).and_then(|size| {
        fs::rename(&temporary, file).map_err(failed)?;
        let directory =
            file.parent().filter(|dir| !dir.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok(size)
    });
    if taken.is_err() {
        // A second failure changes nothing; the verb reports the first.
        let _ = fs::remove_file(&temporary);
    }
    let size = taken?;
    match endpoint.ask::<serde::de::IgnoredAny>("BackupKept", &json!({})) {
        // An older controller does not record the age of the last copy.
        Ok(_) | Err(Fault::Unsupported { .. }) => Ok(size),
        Err(fault) => {
            aside(format_args!("{} is complete, but the controller did not record its time: {fault}", file.display()));
            Ok(size)
        }
    }
}

fn fill(mut made: File, file: &Path, endpoint: &Endpoint) -> Result<u64, Fault> {
    let failed = |source| Fault::File { what: "cannot write", path: file.to_owned(), source };
    let malformed = |why: &str| Fault::Malformed { daemon: endpoint.daemon, why: why.to_owned() };
    let mut client = endpoint.open()?;
    // The controller copies and checks the store before it sends the first piece, which takes long for a large store on
    // a slow disk.
    endpoint.wait_for_ever(&mut client)?;
    let (mut written, mut size) = (0, None);
    endpoint.follow(&mut client, "Backup", &json!({}), |answer: Answer<Piece>| {
        if let Some(data) = &answer.body.data {
            let bytes = STANDARD.decode(data).map_err(|error| malformed(&error.to_string()))?;
            made.write_all(&bytes).map_err(failed)?;
            written += bytes.len() as u64;
        }
        size = answer.body.size.or(size);
        Ok::<(), Fault>(())
    })?;
    if size != Some(written) {
        return Err(malformed("the copy is not whole"));
    }
    made.sync_all().map_err(failed)?;
    Ok(written)
}
