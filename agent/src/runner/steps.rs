//! `steps.jsonl`: begin and end of each step, one line a record, each in one write. Readers may open the file at any
//! moment; every line that ends in a line break is complete.

use std::fs::File;
use std::io::{self, Write};

use perilog_core::defect;
use perilog_core::task::StepRecord;

use crate::directory::Directory;

pub(crate) const FILE: &str = "steps.jsonl";

#[derive(Debug)]
pub(crate) struct Steps {
    file: File,
    /// Up to here the file holds whole lines.
    length: u64,
}

impl Steps {
    pub(crate) fn open(directory: &Directory) -> io::Result<Self> {
        let file = directory.append(FILE)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends one record.
    ///
    /// # Errors
    /// The file contains no part of the record: a full file system may take half a line, which is cut off again, or it
    /// would spoil the next record.
    pub(crate) fn append(&mut self, record: &StepRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        match self.file.write(&line) {
            Ok(written) if written == line.len() => {
                self.length += line.len() as u64;
                Ok(())
            }
            Ok(_) if defect!(RunnerGoesOnUnrecorded) => Ok(()),
            Ok(_) => {
                self.file.set_len(self.length)?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Err(error) => Err(error),
        }
    }
}
