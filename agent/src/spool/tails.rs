//! Reads the end of the output of failed scripts, which an operator wants to see first.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use perilog_core::output;
use perilog_core::task::{StepRecord, Tail};

use super::read;

/// Maximum number of bytes that the agent reports of the output of a failed script.
const TAIL: usize = 4096;
/// Number of bytes of the output that the agent reads for that: enough to see that the cut is within an escape
/// sequence.
const READ: u64 = 2 * 4096;

/// Returns the tails of scripts whose last try failed. A last try without an end counts as failed, unless the try may
/// still run.
pub(super) fn of_failed(dir: &Path, steps: &[StepRecord], running: bool) -> Vec<Tail> {
    // The try with the highest number decides.
    let mut last: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    for step in steps {
        match step {
            StepRecord::Begin { seq, script, .. } => last.insert(script, (*seq, !running)),
            StepRecord::End { seq, script, status, .. } => last.insert(script, (*seq, !status.is_success())),
            _ => None,
        };
    }
    let mut failed: Vec<(u32, &str)> =
        last.into_iter().filter(|(_, (_, failed))| *failed).map(|(script, (seq, _))| (seq, script)).collect();
    failed.sort_unstable();
    failed
        .into_iter()
        .filter_map(|(seq, script)| Some(Tail { script: script.to_owned(), text: kept(dir, seq)? }))
        .collect()
}

/// Returns the last kept bytes of a try, in whole characters and escape sequences; `None` if the try printed nothing,
/// or its output is gone. A short output is in the head alone, so the function reads the head and then the tail.
fn kept(dir: &Path, seq: u32) -> Option<String> {
    let part = |name: &str, most: u64| end_of(&dir.join(format!("out.{seq}.{name}")), most).unwrap_or_default();
    let tail = part("tail", READ);
    let mut bytes = part("head", READ.saturating_sub(tail.len() as u64));
    bytes.extend(tail);
    let from = output::after_cut(&bytes, bytes.len().saturating_sub(TAIL));
    Some(String::from_utf8_lossy(&bytes[from..]).into_owned()).filter(|text| !text.is_empty())
}

fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = read::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
