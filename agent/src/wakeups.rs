//! Tasks that the agent's event loop should inspect. D-Bus signals and inotify show only *that* a task changed, and
//! their readers report such tasks here.
//!
//! The requests are a set, not a queue: a thousand signals about one task are one entry, none is ever dropped, and the
//! set never exceeds the host's tasks. A request may be due *soon* rather than now: changes in a runner's directory
//! wait for [`SETTLE_MS`]. So the agent inspects a short task once, at its end, and not at every step. (Each inspection
//! asks PID 1, the slowest part of a task.)

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use perilog_host::clock;
use tokio::sync::Notify;

/// Time for which the agent gathers changes in a task's directory. A tenth of a second is invisible in `perilog ps`,
/// and most prologs end within that time.
pub const SETTLE_MS: u64 = 100;

#[derive(Debug, Default)]
struct Stems {
    now: BTreeSet<String>,
    soon: BTreeSet<String>,
    /// CLOCK_MONOTONIC (ms) at which the tasks in `soon` are due for inspection; the first of them sets this time.
    /// `None`: no time is set.
    due_ms: Option<u64>,
}

/// The set of tasks to inspect. For example, the readers of D-Bus signals and inotify events add tasks; the agent's
/// event loop takes them out.
#[derive(Debug, Default)]
pub struct Wakeups {
    stems: Mutex<Stems>,
    changed: Notify,
}

impl Wakeups {
    /// Requests an inspection of the task `stem` at once.
    pub fn now(&self, stem: &str) {
        let mut stems = self.lock();
        // The following inspection covers the files too.
        stems.soon.remove(stem);
        if stems.now.insert(stem.to_owned()) {
            self.changed.notify_one();
        }
    }

    /// Requests an inspection of the task `stem` within [`SETTLE_MS`]. Has no effect if an inspection of the task is
    /// requested already.
    pub fn soon(&self, stem: &str) {
        let mut stems = self.lock();
        if !stems.now.contains(stem) && stems.soon.insert(stem.to_owned()) && stems.due_ms.is_none() {
            stems.due_ms = Some(clock::mono_ms() + SETTLE_MS);
            self.changed.notify_one();
        }
    }

    /// Waits until tasks are due, and returns their stems. Cancel safe; one waiter at a time. Without entries no timer
    /// runs.
    pub async fn next(&self) -> Vec<String> {
        loop {
            let due = match self.take() {
                Ok(stems) => return stems,
                Err(due) => due,
            };
            match due {
                Some(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep(clock::until(at)) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Removes the stems that are due from the set, and returns them.
    ///
    /// # Errors
    /// No stem is due. The value is CLOCK_MONOTONIC (ms) at which the next stem is due; `None`: the set is empty.
    fn take(&self) -> Result<Vec<String>, Option<u64>> {
        let mut stems = self.lock();
        let mut out: Vec<String> = std::mem::take(&mut stems.now).into_iter().collect();
        if stems.due_ms.is_some_and(|at| clock::mono_ms() >= at) {
            out.extend(std::mem::take(&mut stems.soon));
        }
        if stems.soon.is_empty() {
            stems.due_ms = None;
        }
        if out.is_empty() { Err(stems.due_ms) } else { Ok(out) }
    }

    fn lock(&self) -> MutexGuard<'_, Stems> {
        // A panicking holder cannot leave a set of names half changed.
        self.stems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_wakeups_of_one_task_are_one_and_now_goes_before_soon() {
        let wakeups = Wakeups::default();
        for _ in 0..1000 {
            wakeups.soon("a");
            wakeups.now("b");
            wakeups.soon("b");
        }
        assert_eq!(wakeups.next().await, ["b"]);
        let began = clock::mono_ms();
        assert_eq!(wakeups.next().await, ["a"]);
        assert!(clock::mono_ms() >= began + SETTLE_MS / 2, "it settles first");
        wakeups.soon("c");
        wakeups.now("c");
        assert_eq!(wakeups.next().await, ["c"]);
        assert_eq!(wakeups.take(), Err(None), "the look at c was for both, and no timer is left");
    }

    #[tokio::test]
    async fn a_waiter_is_woken() {
        let wakeups = std::sync::Arc::new(Wakeups::default());
        let other = wakeups.clone();
        let waiter = tokio::spawn(async move { other.next().await });
        tokio::task::yield_now().await;
        wakeups.now("x");
        assert_eq!(waiter.await.unwrap(), ["x"]);
    }
}
