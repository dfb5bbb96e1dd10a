//! The batches that the program commits: each has one event of each job.

use std::path::Path;

use perilog_controller::store::{Durable, Store};
use perilog_core::controller::Record;
use perilog_core::{Event, JobId};
use perilog_disk::run::Marks;
use rusqlite::{Connection, OpenFlags};

/// Number of jobs.
const JOBS: u64 = 8;
/// Number of batches during which the other connection reads.
const READS_FOR: u64 = 40;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Commits `commits` batches behind those that the store has. Another connection reads from batch `reads` on.
pub(crate) fn commit(store: &mut Store, path: &Path, commits: u64, reads: u64, marks: &Marks) -> Result<(), Failure> {
    let last = store.load()?.events_last.get(&job(0)?).copied().unwrap_or(0);
    let mut reader = None;
    for n in 1..=commits {
        if n == reads {
            reader = Some(read(path)?);
        } else if n == reads + READS_FOR {
            reader = None;
        }
        store.commit(&batch(last + n)?)?;
        marks.acknowledged(&format!("batch {}", last + n))?;
    }
    drop(reader);
    Ok(())
}

/// Returns a connection that has begun to read.
fn read(path: &Path) -> Result<Connection, Failure> {
    let reader = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    reader.execute_batch("BEGIN")?;
    reader.query_row("SELECT count(*) FROM events", [], |_| Ok(()))?;
    Ok(reader)
}

fn job(n: u64) -> Result<JobId, Failure> {
    Ok(JobId::new(&format!("f{n}"))?)
}

fn batch(n: u64) -> Result<Vec<Record>, Failure> {
    let event = |of| -> Result<Record, Failure> {
        let name = format!("finish-{}", "x".repeat(400));
        Ok(Record::Event { job: job(of)?, sequence: n, event: Event::at_millis(n, &name, None) })
    };
    (0..JOBS).map(event).collect()
}
