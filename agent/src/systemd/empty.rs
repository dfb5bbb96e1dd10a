//! Watches for a unit's cgroup to become empty, and then requests an inspection of the task by [`Wakeups`]. No timer is
//! needed on cgroup v2: the kernel marks `cgroup.events` as modified. Without that file (cgroup v1), the module
//! requests inspections at growing intervals until the agent forgets the task.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cgroups::{Cgroups, populated};
use crate::inotify::{Inotify, ReadFlags, WatchFlags};
use crate::wakeups::Wakeups;

const POLL_FLOOR: Duration = Duration::from_millis(100);
const POLL_CEILING: Duration = Duration::from_secs(10);

/// Watched cgroups; dropping this value ends all watches.
#[derive(Debug)]
pub struct Emptiness {
    shared: Arc<Shared>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    cgroups: Cgroups,
    inotify: Inotify,
    /// The watched cgroups and the polled tasks: each table has at most the live tasks.
    tables: Mutex<Tables>,
    wakeups: Arc<Wakeups>,
}

#[derive(Debug, Default)]
struct Tables {
    watches: HashMap<i32, (String, PathBuf)>,
    polled: HashSet<String>,
}

impl Emptiness {
    pub fn new(cgroups: Cgroups, wakeups: Arc<Wakeups>) -> io::Result<Self> {
        let shared = Arc::new(Shared { cgroups, inotify: Inotify::new()?, tables: Mutex::default(), wakeups });
        let reader = tokio::spawn(read(shared.clone()));
        Ok(Self { shared, reader })
    }

    /// Requests an inspection of the task `stem` ([`Wakeups`]) when its cgroup becomes empty, or at once if the cgroup
    /// is empty already. `cgroup` is the cgroup's path below the mount point, as systemd names it. If the kernel cannot
    /// watch the cgroup, or `cgroup` is `None`, requests inspections at growing intervals. Repeated calls add no second
    /// watch.
    pub fn watch(&self, stem: &str, cgroup: Option<&str>) {
        let shared = &self.shared;
        let events = shared.cgroups.events(cgroup);
        let watched = events.and_then(|events| Some((shared.inotify.add(&events, WatchFlags::MODIFY).ok()?, events)));
        match watched {
            Some((watch, events)) => {
                shared.tables().watches.insert(watch, (stem.to_owned(), events.clone()));
                // The cgroup may have become empty before the watch began.
                if populated(&events) != Some(true) {
                    shared.wakeups.now(stem);
                }
            }
            None => self.poll(stem),
        }
    }

    /// Ends the watch of a task whose unit is gone or is about to be unloaded.
    pub fn forget(&self, stem: &str) {
        let mut tables = self.shared.tables();
        tables.polled.remove(stem);
        let gone: Vec<i32> = tables.watches.iter().filter(|(_, (s, _))| s == stem).map(|(watch, _)| *watch).collect();
        for watch in gone {
            tables.watches.remove(&watch);
            self.shared.inotify.remove(watch);
        }
    }

    /// Requests inspections at growing intervals, because the cgroup is gone already or is on v1: no event will come.
    fn poll(&self, stem: &str) {
        if !self.shared.tables().polled.insert(stem.to_owned()) {
            return;
        }
        let (shared, stem) = (self.shared.clone(), stem.to_owned());
        tokio::spawn(async move {
            let mut pause = POLL_FLOOR;
            while shared.tables().polled.contains(&stem) {
                shared.wakeups.now(&stem);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(POLL_CEILING);
            }
        });
    }
}

impl Drop for Emptiness {
    fn drop(&mut self) {
        self.reader.abort();
        self.shared.tables().polled.clear();
    }
}

impl Shared {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(shared: Arc<Shared>) {
    loop {
        let events = match shared.inotify.next().await {
            Ok(events) => events,
            Err(error) => {
                return tracing::error!(
                    "cannot read inotify events ({error}); until the agent restarts, it may miss the end of lingering \
                     processes"
                );
            }
        };
        for event in events {
            let mut tables = shared.tables();
            let known = if event.what.contains(ReadFlags::IGNORED) {
                // A removed cgroup is empty.
                tables.watches.remove(&event.watch)
            } else {
                tables.watches.get(&event.watch).filter(|(_, events)| populated(events) != Some(true)).cloned()
            };
            if let Some((stem, _)) = known {
                shared.wakeups.now(&stem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_cgroup_a_task_is_woken_until_forgotten() {
        let wakeups = Arc::new(Wakeups::default());
        let empty = Emptiness::new(Cgroups::find().unwrap(), wakeups.clone()).unwrap();
        empty.watch("a", None);
        empty.watch("a", None);
        assert_eq!(wakeups.next().await, ["a"]);
        assert_eq!(wakeups.next().await, ["a"], "again, later");
        empty.forget("a");
        assert!(empty.shared.tables().polled.is_empty());
    }
}
