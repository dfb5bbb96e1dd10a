//! Work that runs beside other work: threads that take the next item as soon as they are done with one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

/// Calls `work` for each item, in this order and for at most `at_once` at the same time. Hands each result to `ended`
/// as soon as it is there, one after the other. `work` also gets the number of its thread, counted from 0.
///
/// # Errors
/// The first error of `work` or `ended`; after it, no other item begins.
pub(crate) fn beside<T: Send, R>(
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(usize, T) -> Result<R> + Sync,
    ended: impl FnMut(R) -> Result<()> + Send,
) -> Result<()> {
    let waiting = Mutex::new(VecDeque::from(items));
    let ended = Mutex::new(ended);
    let thread = |number: usize| -> Result<()> {
        loop {
            let Some(item) = lock(&waiting).pop_front() else { return Ok(()) };
            let done = work(number, item).and_then(|result| (*lock(&ended))(result));
            if done.is_err() {
                lock(&waiting).clear();
                return done;
            }
        }
    };
    std::thread::scope(|scope| {
        let thread = &thread;
        let threads: Vec<_> = (0..at_once).map(|number| scope.spawn(move || thread(number))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::{bail, ensure};

    use super::*;

    #[test]
    fn as_many_items_as_are_allowed_are_in_work_at_once() {
        // Each call waits for two others: fewer threads would wait for ever.
        let three = Barrier::new(3);
        let mut sum = 0;
        let work = |number, item: u32| {
            three.wait();
            ensure!(number < 3, "thread {number}");
            Ok(item)
        };
        beside(vec![1, 2, 3, 4, 5, 6], 3, work, |item| {
            sum += item;
            Ok(())
        })
        .unwrap();
        assert_eq!(sum, 21);
    }

    #[test]
    fn nothing_begins_after_an_error() {
        let begun = Mutex::new(Vec::new());
        let work = |_, item: u32| {
            lock(&begun).push(item);
            if item == 2 { bail!("no {item}") } else { Ok(()) }
        };
        assert!(beside(vec![1, 2, 3], 1, work, |()| Ok(())).is_err());
        assert_eq!(*lock(&begun), [1, 2]);
        assert!(beside(vec![1, 3], 1, |_, item| Ok(item), |_| bail!("no reader is left")).is_err());
    }
}
