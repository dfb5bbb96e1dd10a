//! The daemon: opens everything, starts the one writer, lets agents and clients in, and ends in an orderly way.
//!
//! ```text
//!   agents ── listener ──┐             ┌──> sessions
//!                        ├── inlet ── writer ──> askers, followers
//!   people ── api ───────┘             │
//!                                      └──> store
//! ```
//! No code of this module decides about jobs: `perilog_core::controller` does.

mod delivery;
mod feed;
mod inlet;
mod outlet;
mod reload;
mod start;
mod trace;
mod writer;

pub(crate) use feed::{Changes, Followed, feed};
pub(crate) use inlet::{Ended, Entry, Inlet, Room};
pub(crate) use outlet::{Drain, End, Frame, Outbound, Outlet, Part, WeakQueue, events, parts};

use std::path::Path;
use std::time::Duration;

use perilog_host::notify;
use perilog_host::signals::{Signal, Signals};

pub use start::Fault;
use tokio::sync::watch;

use crate::config::Config;
use reload::Reload;
use start::Started;

/// Time that sessions and calls have for their last messages when the controller ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Runs the controller until a signal ends it.
///
/// # Errors
/// [`Fault`]: the controller could not start; its store failed, or the search for damage found some; or a part of the
/// controller ended unexpectedly.
pub async fn run(file: &Path, config: Config) -> Result<(), Fault> {
    let mut signals = Signals::new().map_err(Fault::Signals)?;
    let Started {
        inlet,
        sessions,
        calls,
        certificates,
        mut writer,
        mut damage,
        mut listeners,
        hooks,
        mut status,
        remark,
    } = start::start(&config).await?;
    let remarks = remark.subscribe();
    let mut reload = Reload::new(file, config, inlet.clone(), certificates, hooks, remark);
    notify::ready(&status.borrow_and_update().clone());
    let status_task = tokio::spawn(show_status(status.clone(), remarks));
    loop {
        tokio::select! {
            ended = &mut writer => return Err(start::ended(ended).err().unwrap_or(Fault::WriterEnded)),
            Some(found) = damage.recv() => return Err(Fault::Store(found)),
            signal = signals.next() => match signal {
                Signal::Reload => reload.now(&status).await,
                Signal::Terminate => break,
            }
        }
    }
    status_task.abort();
    notify::stopping("ending");
    tracing::info!("stopping on request: the controller commits what it has begun, then closes its sessions");
    listeners.close();
    // The end of the writer closes the channels of sessions and calls.
    let _ = inlet.put(Entry::Stop).await;
    start::ended(writer.await)?;
    let _ = tokio::time::timeout(FLUSH_LIMIT, async { tokio::join!(sessions.ended(), calls.ended()) }).await;
    Ok(())
}

/// Shows each new status line in `systemctl status`, by a separate thread: sd_notify may block on a hanging service
/// manager, and no other work may wait for it.
async fn show_status(mut status: watch::Receiver<String>, mut remark: watch::Receiver<Option<String>>) {
    loop {
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            changed = remark.changed() => if changed.is_err() { return },
        }
        let line = whole_status(&status.borrow_and_update(), remark.borrow_and_update().as_deref());
        // A failure has no consequence: the next line is newer.
        let _ = tokio::task::spawn_blocking(move || notify::status(&line)).await;
    }
}

/// Returns the status line: the writer's line, then the remark of the last reload if there is one.
fn whole_status(line: &str, remark: Option<&str>) -> String {
    remark.map_or_else(|| line.to_owned(), |remark| format!("{line}; {remark}"))
}
