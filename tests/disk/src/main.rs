//! Commits batches to a store. A test runs this program with the shim, which records what that does to the store's
//! files.
//!
//! ```text
//! perilog-disk STORE RECORD COMMITS READS CLOSES
//! ```
//! The program marks each batch in RECORD, and ends after COMMITS batches, or with status 3 at the first error of the
//! store. With CLOSES (true or false) it closes the store then; otherwise it leaves all as if it were killed. From the
//! batch number READS of this run on, for some batches, another connection reads the store, so that a checkpoint cannot
//! copy the whole log (0: none).

mod batches;

use std::path::PathBuf;
use std::process::ExitCode;

use perilog_controller::store::Store;
use perilog_disk::run::Recorded;

use batches::{Failure, commit};

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
    let [store, record, commits, reads, closes] = &arguments[..] else {
        return Err("five arguments".into());
    };
    let path = PathBuf::from(store);
    let marks = Recorded { directory: PathBuf::new(), record: record.into() }.marks()?;
    let mut store = Store::open(&path)?;
    let committed = commit(&mut store, &path, commits.parse()?, reads.parse()?, &marks);
    if !closes.parse::<bool>()? {
        // The files stay as a killed program leaves them.
        std::mem::forget(store);
    }
    committed
}
