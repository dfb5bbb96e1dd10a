//! Readers of a task's directory. The agent or a runner wrote the files, perhaps in another version, perhaps killed
//! half-way. So a missing or unreadable file counts as absent, and every read is bounded. Root's scripts can replace
//! the files, so the readers open only regular files, and no read waits for the other end of a FIFO.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use perilog_core::ids;
use perilog_core::task::{Claim, Intent, RunResult, STOP_ASKED, StepRecord, Tail};
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use super::tails;

/// Maximum size in bytes of a JSON file. The largest is an intent: 64 KiB of environment, the ranks and hosts of the
/// largest job.
const MAX_JSON: u64 = 8 * 1024 * 1024;
/// Size in bytes of a read that takes most files whole.
const USUAL: usize = 4 * 1024;
/// Maximum size in bytes of step records: 256 reports of 4 KiB, and forensics. The reader ignores the rest.
const MAX_STEPS: u64 = 4 * 1024 * 1024;

/// Contents of a task's directory that show how far the task is: the claim, and what its runner wrote.
#[derive(Debug, Default)]
pub struct Traces {
    pub claim: Option<Claim>,
    pub result: Option<RunResult>,
    pub steps: Vec<StepRecord>,
    pub tails: Vec<Tail>,
    /// Whether the agent was asked to stop the task, and so has left the mark `stop-asked` in the directory.
    pub stop_asked: bool,
}

pub(super) fn traces(dir: &Path, running: bool) -> Traces {
    // Reads the result before the steps: a runner writes the result last, so steps read afterwards are complete.
    let result: Option<RunResult> = json(&dir.join("result.json"));
    let steps = steps(&dir.join("steps.jsonl"));
    let tails = tails::of_failed(dir, &steps, running && result.is_none());
    let stop_asked = dir.join(STOP_ASKED).exists();
    Traces { claim: json(&dir.join("claim")), result, steps, tails, stop_asked }
}

/// Returns the intent, if it belongs to this stem.
pub(super) fn intent(dir: &Path, stem: &str) -> Option<Intent> {
    let intent: Intent = json(&dir.join("intent.json"))?;
    let own = ids::stem(&intent.start.action, &intent.start.job, intent.start.task);
    if own != stem {
        tracing::warn!("the record (intent) in {} is of {own}, and is ignored", dir.display());
        return None;
    }
    Some(intent)
}

/// Reads a JSON file of the agent or a runner; `None` if the file is missing, or (with a warning) unreadable
/// or of another form.
pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let read = bounded(path, MAX_JSON).and_then(|bytes| Ok(bytes.map(|b| serde_json::from_slice(&b)).transpose()?));
    read.unwrap_or_else(|error| {
        tracing::warn!("cannot read {}: {error}; it counts as missing", path.display());
        None
    })
}

/// Returns the records of a steps file, in order.
fn steps(path: &Path) -> Vec<StepRecord> {
    match bounded(path, MAX_STEPS) {
        Ok(bytes) => step_records(&bytes.unwrap_or_default()),
        Err(error) => {
            tracing::warn!("cannot read {}: {error}; the agent does not know the steps of this task", path.display());
            Vec::new()
        }
    }
}

/// Returns the records in the text of a steps file. Skips a half-written last line of a working or killed runner.
pub(crate) fn step_records(text: &[u8]) -> Vec<StepRecord> {
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    text[..whole]
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// Returns at most `most` bytes from the start of a regular file; `None` if the file does not exist.
pub(crate) fn bounded(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    // More than most files have, so that no second look is needed for the length.
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Opens a regular file; neither follows a link nor waits.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "is no regular file")),
    }
}
