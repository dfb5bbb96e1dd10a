//! Tells by [`Stir`] when a unit's cgroup has no process left, without a timer: on cgroup v2 the kernel marks `cgroup.events` as modified.
//! Where that file is missing (cgroup v1) the task is stirred again and again, each time later, until it is forgotten.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::inotify::{Inotify, ReadFlags, WatchFlags};
use crate::stir::Stir;

const POLL_FLOOR: Duration = Duration::from_millis(100);
const POLL_CEILING: Duration = Duration::from_secs(10);

/// The cgroups that are watched; dropping it ends all watches.
#[derive(Debug)]
pub struct Emptiness {
    shared: Arc<Shared>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Where cgroup v2 is mounted; none on a host with v1 only.
    root: Option<PathBuf>,
    inotify: Inotify,
    /// No more than live tasks, in both.
    tables: Mutex<Tables>,
    stir: Arc<Stir>,
}

#[derive(Debug, Default)]
struct Tables {
    watches: HashMap<i32, (String, PathBuf)>,
    polled: HashSet<String>,
}

impl Emptiness {
    pub fn new(stir: Arc<Stir>) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let shared =
            Arc::new(Shared { root: cgroup2_mount(&mounts), inotify: Inotify::new()?, tables: Mutex::default(), stir });
        let reader = tokio::spawn(read(shared.clone()));
        Ok(Self { shared, reader })
    }

    /// Stirs `stem` when `cgroup` (as systemd names it, below the root) is empty; now, if it is. Again is once.
    pub fn watch(&self, stem: &str, cgroup: Option<&str>) {
        let shared = &self.shared;
        let events = shared
            .root
            .as_ref()
            .zip(cgroup)
            .map(|(root, cgroup)| root.join(cgroup.trim_start_matches('/')).join("cgroup.events"));
        let watched = events.and_then(|events| Some((shared.inotify.add(&events, WatchFlags::MODIFY).ok()?, events)));
        match watched {
            Some((watch, events)) => {
                shared.tables().watches.insert(watch, (stem.to_owned(), events.clone()));
                // It may have become empty before we looked.
                if populated(&events) != Some(true) {
                    shared.stir.now(stem);
                }
            }
            None => self.poll(stem),
        }
    }

    /// The task has no unit any more.
    pub fn forget(&self, stem: &str) {
        let mut tables = self.shared.tables();
        tables.polled.remove(stem);
        let gone: Vec<i32> = tables.watches.iter().filter(|(_, (s, _))| s == stem).map(|(watch, _)| *watch).collect();
        for watch in gone {
            tables.watches.remove(&watch);
            self.shared.inotify.remove(watch);
        }
    }

    /// The cgroup went away between systemd's word and ours, or this is v1: nothing will tell.
    fn poll(&self, stem: &str) {
        if !self.shared.tables().polled.insert(stem.to_owned()) {
            return;
        }
        let (shared, stem) = (self.shared.clone(), stem.to_owned());
        tokio::spawn(async move {
            let mut pause = POLL_FLOOR;
            while shared.tables().polled.contains(&stem) {
                shared.stir.now(&stem);
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
                return tracing::error!(%error, "cannot read inotify events; a lingering process's end may go unnoticed");
            }
        };
        for event in events {
            let mut tables = shared.tables();
            let known = if event.what.contains(ReadFlags::IGNORED) {
                // The cgroup was removed: nothing can be emptier.
                tables.watches.remove(&event.watch)
            } else {
                tables.watches.get(&event.watch).filter(|(_, events)| populated(events) != Some(true)).cloned()
            };
            if let Some((stem, _)) = known {
                shared.stir.now(&stem);
            }
        }
    }
}

/// `populated 1` (cgroups(7)): some process in it or below; `None` if that cannot be told.
fn populated(events: &Path) -> Option<bool> {
    let text = fs::read_to_string(events).ok()?;
    text.lines().find_map(|line| line.strip_prefix("populated ")).map(|n| n != "0")
}

/// The mount point of cgroup v2, the one under /sys/fs/cgroup first (proc_pid_mountinfo(5): the type follows " - ").
fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| fields.split(' ').nth(4)).flatten()
    });
    let mut mounts: Vec<&str> = mounts.collect();
    mounts.sort_by_key(|mount| !mount.starts_with("/sys/fs/cgroup"));
    mounts.first().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_2_is_found() {
        let v1 = "31 23 0:27 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd\n";
        let hybrid = format!("{v1}30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        let both = format!("9 1 0:9 / /mnt/x rw - cgroup2 none rw\n{hybrid}");
        for (text, expect) in
            [(v1, None), (&hybrid, Some("/sys/fs/cgroup/unified")), (&both, Some("/sys/fs/cgroup/unified"))]
        {
            assert_eq!(cgroup2_mount(text), expect.map(PathBuf::from));
        }
    }

    #[tokio::test]
    async fn without_a_cgroup_to_watch_a_task_is_stirred_until_it_is_forgotten() {
        let stir = Arc::new(Stir::default());
        let empty = Emptiness::new(stir.clone()).unwrap();
        empty.watch("a", None);
        empty.watch("a", None);
        assert_eq!(stir.next().await, ["a"]);
        assert_eq!(stir.next().await, ["a"], "again, later");
        empty.forget("a");
        assert!(empty.shared.tables().polled.is_empty());
    }
}
