//! Bound on the connections of agents: what the largest planned cluster needs, and no more than this process may have
//! descriptors for. Further agents wait in the listen queue, so that the store, clients and hooks still get a
//! descriptor.

use std::sync::{Arc, Mutex, PoisonError};

use perilog_core::defect;
use perilog_host::clock;
use perilog_host::complaints::Window;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections: all nodes of the largest planned cluster, and nodes that return before their old
/// connection ends. The unit's LimitNOFILE is above this number.
const MAX_SESSIONS: u32 = 100_000;
/// Number of descriptors that are not for agents: the store has ten, each client and each command of a hook some.
const OTHERS: u64 = 64;
/// Time in milliseconds in which at most one line says that all places are taken.
const ONE_LINE_MS: u64 = 60_000;

#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: u32,
    /// Number of descriptors that this process may have.
    descriptors: u64,
    lines: Mutex<Window>,
}

impl Places {
    /// Creates the places: as many as this process may have descriptors, less [`OTHERS`], and at most [`MAX_SESSIONS`].
    pub(super) fn new() -> Self {
        Self::within(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn within(descriptors: u64) -> Self {
        let bound = u32::try_from(descriptors.saturating_sub(OTHERS)).unwrap_or(u32::MAX).max(1);
        let all = if defect!(DescriptorsUncounted) { MAX_SESSIONS } else { bound.min(MAX_SESSIONS) };
        let free = Arc::new(Semaphore::new(all as usize));
        Self { free, all, descriptors, lines: Mutex::default() }
    }

    /// Waits until a place is free, and takes it. Logs that it has to wait, at most once a minute. Never returns
    /// `None`: no code closes the semaphore.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return Some(place);
        }
        let (is_logged, _) =
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).admit(clock::mono_ms(), 1, ONE_LINE_MS);
        if is_logged {
            tracing::warn!("{}", self.full());
        }
        self.free.clone().acquire_owned().await.ok()
    }

    fn full(&self) -> String {
        let cure = match self.all {
            MAX_SESSIONS => "this is the limit".to_owned(),
            _ => format!(
                "this process may open {} files. Raise LimitNOFILE= of perilog-controller.service to one and a half \
                 times the number of nodes, and 1024 more",
                self.descriptors
            ),
        };
        format!("{} connections of agents are open, and further agents wait until one ends: {cure}", self.all)
    }

    /// Waits until all places are free.
    pub(super) async fn all_free(&self) {
        // No code closes the semaphore.
        let _ = self.free.acquire_many(self.all).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_what_descriptors_allow() {
        let all = |descriptors| Places::within(descriptors).all;
        assert_eq!([0, 64, 128, 20_000].map(all), [1, 1, 64, 19_936]);
        assert_eq!([131_072, u64::MAX].map(all), [MAX_SESSIONS; 2]);
        assert!(Places::within(1_024).full().contains("may open 1024 files"));
        assert!(!Places::within(131_072).full().contains("LimitNOFILE"));
    }
}
