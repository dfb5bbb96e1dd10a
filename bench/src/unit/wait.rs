//! Waiters for a named event that happens once. Callers register before the event can happen, so no waiter misses the
//! event.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

/// Callers that wait for a value, each under a key.
#[derive(Debug)]
pub(crate) struct Waiters<K, T>(Mutex<HashMap<K, oneshot::Sender<T>>>);

impl<K: Hash + Eq, T> Waiters<K, T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    pub(crate) fn register(&self, name: K) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(name, sender);
        receiver
    }

    pub(crate) fn happened(&self, name: &K, what: T) {
        // Not everything that happens is waited for.
        if let Some(waiter) = self.lock().remove(name) {
            let _gone = waiter.send(what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, oneshot::Sender<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directory in which systemd keeps a file for each transient unit, for as long as the unit is loaded.
const TRANSIENT: &str = "/run/systemd/transient";
/// Size in bytes of the buffer for one read of inotify(7) events, which has space for some dozens; the next read
/// returns the rest.
const BUFFER: usize = 8192;

/// Starts a tokio task that watches for units that systemd unloads. Returns the waiters: a caller that waits under a
/// unit's name is woken when systemd has unloaded that unit.
pub(crate) fn unloaded() -> Result<Arc<Waiters<String, ()>>> {
    std::fs::create_dir_all(TRANSIENT).with_context(|| format!("making {TRANSIENT}"))?;
    let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).context("inotify")?;
    add_watch(&fd, Path::new(TRANSIENT), WatchFlags::DELETE).with_context(|| format!("watching {TRANSIENT}"))?;
    // Not a pipe, but read like one.
    let events = pipe::Receiver::from_owned_fd_unchecked(fd)?;
    let waiters = Waiters::new();
    let reported = waiters.clone();
    tokio::spawn(async move {
        let mut buffer = [0; BUFFER];
        while events.readable().await.is_ok() {
            if let Ok(length) = events.try_read(&mut buffer) {
                names(&buffer[..length]).iter().for_each(|name| reported.happened(name, ()));
            }
        }
    });
    Ok(waiters)
}

/// Returns the names in `struct inotify_event`s (inotify(7)): 12 bytes that do not matter here, the length of the name,
/// the name padded with NUL.
fn names(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let length = u32::from_ne_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let (name, after) = rest.split_at(rest.len().min(length));
        all.push(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
        bytes = after;
    }
    all
}
