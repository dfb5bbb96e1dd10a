//! Waiting for a condition, under a generous time limit.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::clock::{Stopwatch, pause};

/// Least pause between two checks: short enough to lose no time if a check only reads a file.
const BETWEEN_CHECKS: Duration = Duration::from_millis(10);
/// Pause between two checks as a multiple of the last check's time. A check that starts processes on a node takes some
/// ten milliseconds of a processor core, which a waiting test would take from the tests beside it.
const PER_CHECK: u32 = 2;
/// Greatest pause between two checks, on a machine so loaded that a check takes long.
const LONGEST: Duration = Duration::from_millis(250);

/// Waits until `condition` returns `true`. After `limit`, returns an error that contains `what`. Returns an error of
/// `condition` at once.
///
/// The limit guards against hanging and expects no speed: choose a limit that a loaded machine never reaches.
/// [`Bed::wait_until`](crate::Bed::wait_until) adds the nodes' diagnosis.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let watch = Stopwatch::start();
    loop {
        let check = Stopwatch::start();
        if condition()? {
            return Ok(());
        }
        let elapsed = check.elapsed();
        if watch.elapsed() > limit {
            bail!("not within {limit:?}: {what}");
        }
        pause((elapsed * PER_CHECK).clamp(BETWEEN_CHECKS, LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_the_condition_and_fails_past_the_limit() {
        let mut checks = 0;
        wait_until("three looks", Duration::from_secs(10), || {
            checks += 1;
            Ok(checks == 3)
        })
        .unwrap();
        assert_eq!(checks, 3);
        let error = wait_until("the impossible", Duration::ZERO, || Ok(false)).unwrap_err();
        assert!(error.to_string().contains("the impossible"), "{error}");
        let error = wait_until("a look that fails", Duration::from_secs(10), || bail!("blind")).unwrap_err();
        assert_eq!(error.to_string(), "blind");
    }
}
