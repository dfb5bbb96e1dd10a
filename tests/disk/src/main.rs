//! Commits batches to a store, and records what that does to the store's files.
//!
//! ```text
//! perilog-disk STORE RECORD FAILS OF COMMITS READS CLOSES
//! ```
//! The sync number FAILS of the file OF fails (0: none; OF `any`: of all files). The program ends after COMMITS
//! batches, or with status 3 at the first error of the store. With CLOSES (true or false) it closes the store then;
//! otherwise it leaves all as if it were killed. From the batch number READS of this run on, for some batches, another
//! connection reads the store, so that a checkpoint cannot copy the whole log (0: none).

mod batches;
mod calls;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use perilog_controller::store::Store;

use batches::{Failure, commit};
use calls::Fails;

#[expect(clippy::print_stderr, reason = "the test shows it")]
fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, record, fails, of, commits, reads, closes] = &arguments[..] else {
        return Err("seven arguments".into());
    };
    let path = PathBuf::from(store);
    let fails = Fails { of: Some(of.clone()).filter(|of| of != "any"), number: fails.parse()? };
    let record = OpenOptions::new().append(true).create(true).open(record)?;
    calls::begin(path.parent().unwrap_or(Path::new("/")), record.into(), fails);
    let mut store = Store::open(&path)?;
    let committed = commit(&mut store, &path, commits.parse()?, reads.parse()?);
    if !closes.parse::<bool>()? {
        // The files stay as a killed program leaves them.
        std::mem::forget(store);
    }
    committed
}
