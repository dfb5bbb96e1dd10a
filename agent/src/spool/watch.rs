//! Watches task directories, and requests an inspection of the task ([`Wakeups`]) when its runner writes the claim, a
//! step or the result. Files of output (`out.*`) cause no inspection.
//!
//! Each live task has two watches: its directory, for new files, and `steps.jsonl`, for lines. Changes in quick
//! succession cause one inspection.
//!
//! A runner keeps `steps.jsonl` open while it runs scripts. When the runner dies in any way, the kernel closes the file
//! and reports the close.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::inotify::{Happened, Inotify, ReadFlags, WatchFlags};
use crate::wakeups::Wakeups;

const STEPS: &str = "steps.jsonl";

/// Watches of all tasks; dropping this value ends the watches.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    inotify: Inotify,
    spool: super::Spool,
    /// The task's stem for each inotify watch, by the watch's number. Each live task has two watches. When a watched
    /// file is removed, the kernel reports the end of its watch, and the entry is removed too.
    stems: Mutex<HashMap<i32, String>>,
    /// Stems of live tasks whose runner has closed its steps file. [`Watcher::runner_is_gone`] removes a stem from this
    /// set.
    closed: Mutex<HashSet<String>>,
    wakeups: Arc<Wakeups>,
}

impl Watcher {
    pub fn new(spool: super::Spool, wakeups: Arc<Wakeups>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inotify: Inotify::new()?,
            spool,
            stems: Mutex::default(),
            closed: Mutex::default(),
            wakeups,
        });
        let reader = tokio::spawn(read(shared.clone()));
        Ok(Self { shared, reader })
    }

    /// Watches a task's directory until the directory is removed; repeated calls have no effect. The caller must check
    /// for earlier changes.
    pub fn watch(&self, stem: &str) {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        self.shared.add(&self.shared.spool.task(stem), flags, stem);
        self.shared.add_steps(stem);
    }

    /// Returns `true`, once, if the task's runner has closed its steps file without writing a result. Such a runner is
    /// dead or nearly so, but its child processes may live.
    pub fn runner_is_gone(&self, stem: &str) -> bool {
        self.shared.closed().remove(stem) && !self.shared.spool.task(stem).join("result.json").exists()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(shared: Arc<Shared>) {
    loop {
        match shared.inotify.next().await {
            Ok(events) => events.iter().for_each(|event| shared.happened(event)),
            // The agent then sees steps late, at the task's end; nothing else depends on the watch.
            Err(error) => {
                return tracing::error!(
                    "cannot read inotify events ({error}); progress of scripts will be shown late until the agent \
                     restarts"
                );
            }
        }
    }
}

impl Shared {
    fn happened(&self, event: &Happened) {
        if event.what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.stems().values().for_each(|stem| self.wakeups.soon(stem));
        }
        if event.what.contains(ReadFlags::IGNORED) {
            if let Some(stem) = self.stems().remove(&event.watch) {
                self.closed().remove(&stem);
            }
            return;
        }
        let Some(stem) = self.stems().get(&event.watch).cloned() else { return };
        match event.name.as_deref() {
            // A line of steps.jsonl, which has a watch of its own.
            None => self.wakeups.soon(&stem),
            Some(STEPS) if event.what.contains(ReadFlags::CLOSE_WRITE) => {
                self.closed().insert(stem.clone());
                self.wakeups.soon(&stem);
            }
            Some(STEPS) if event.what.contains(ReadFlags::CREATE) => {
                self.add_steps(&stem);
                self.wakeups.soon(&stem);
            }
            Some("claim" | "result.json") => self.wakeups.soon(&stem),
            Some(_) => {}
        }
    }

    fn add_steps(&self, stem: &str) {
        self.add(&self.spool.task(stem).join(STEPS), WatchFlags::MODIFY, stem);
    }

    fn add(&self, path: &Path, flags: WatchFlags, stem: &str) {
        match self.inotify.add(path, flags) {
            Ok(watch) => {
                self.stems().insert(watch, stem.to_owned());
            }
            // The file does not exist yet, or was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(
                    "cannot watch {} ({error}): the state of this task will be shown late. Check \
                     fs.inotify.max_user_watches",
                    path.display()
                )
            }
        }
    }

    fn closed(&self) -> MutexGuard<'_, HashSet<String>> {
        // A panicking holder cannot leave a set of names half changed.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stems(&self) -> MutexGuard<'_, HashMap<i32, String>> {
        self.stems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
