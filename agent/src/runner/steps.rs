//! `steps.jsonl`: begin and end of each step, one line a record, each in one write. Readers may open the file at any
//! moment; every line with a line break is complete.

use std::fs::File;
use std::io::{self, Write};

use perilog_core::defect;
use perilog_core::task::StepRecord;

use crate::directory::Directory;

pub(crate) const FILE: &str = "steps.jsonl";

#[derive(Debug)]
pub(crate) struct Steps {
    file: File,
    /// Size in bytes of the complete lines in the file.
    length: u64,
}

impl Steps {
    pub(crate) fn open(directory: &Directory) -> io::Result<Self> {
        let file = directory.append(FILE)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends a record to the file as one line.
    ///
    /// # Errors
    /// The file does not have the record. A full file system may accept half a line; the runner cuts that half off
    /// again, because it would spoil the next record.
    pub(crate) fn append(&mut self, record: &StepRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        match self.file.write(&line) {
            Ok(written) if written == line.len() => {
                self.length += line.len() as u64;
                Ok(())
            }
            Ok(_) if defect!(RunnerContinuesUnrecorded) => Ok(()),
            Ok(_) => {
                self.file.set_len(self.length)?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Err(error) => Err(error),
        }
    }
}
