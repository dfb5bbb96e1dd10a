//! Fault points in builds with the feature `fault-points`: kills or stops the process at a point in its code, if a test
//! has armed that point with a file in [`DIRECTORY`].

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{Signal, raise};

use super::{DIRECTORY, POINTS};

/// File in [`DIRECTORY`], a FIFO, from which a waiting thread reads: a test writes to it, and the thread goes on.
const GO: &str = "go";

/// Order to the process at an armed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Signal(Signal),
    /// The thread waits at the point, and the others go on.
    Wait,
}

/// Lock that a thread holds while it reads and counts down an armed fault point: no two threads use the same count.
static PASSING: Mutex<()> = Mutex::new(());

pub fn point(name: &str) {
    debug_assert!(POINTS.iter().any(|point| point.name == name), "no such point: {name}");
    let order = {
        let _passing = PASSING.lock().unwrap_or_else(PoisonError::into_inner);
        order(&Path::new(DIRECTORY).join(name))
    };
    // Signals this thread, so that the code behind the point does not run: the kernel may deliver a signal for the
    // process to another thread.
    let sprung = match order {
        Ok(None) => return,
        Ok(Some(Order::Signal(signal))) => raise(signal).map_err(io::Error::from),
        Ok(Some(Order::Wait)) => fs::read(Path::new(DIRECTORY).join(GO)).map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = sprung {
        tracing::error!("the fault point {name} cannot spring: {error}");
    }
}

pub fn point_if(name: &str, is: impl FnOnce() -> bool) {
    if is() {
        point(name);
    }
}

pub async fn point_when_waiting<F: Future>(name: &str, call: F) -> F::Output {
    let mut call = pin!(call);
    let mut waits = false;
    std::future::poll_fn(|context| {
        let poll = call.as_mut().poll(context);
        if poll.is_pending() && !std::mem::replace(&mut waits, true) {
            point(name);
        }
        poll
    })
    .await
}

/// Reads the file that arms a fault point (for example `kill 3`), and counts the number down. At the last passing,
/// removes the file and returns the order. `None`: the point is not armed, or this is not the last passing.
fn order(path: &Path) -> io::Result<Option<Order>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    fs::remove_file(path)?;
    let (word, passings) = text.trim().split_once(' ').unwrap_or((text.trim(), "1"));
    let order = match word {
        "kill" => Order::Signal(Signal::SIGKILL),
        "stop" => Order::Signal(Signal::SIGSTOP),
        "wait" => Order::Wait,
        other => return Err(io::Error::new(ErrorKind::InvalidData, format!("it is armed with {other:?}"))),
    };
    match passings.parse() {
        Ok(0 | 1) => Ok(Some(order)),
        Ok(passings) => {
            let passings: u32 = passings;
            fs::write(path, format!("{word} {}", passings - 1)).map(|()| None)
        }
        Err(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_carried_out_once_and_after_its_passings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let passing = || order(&path).map_err(|error| error.to_string());
        assert_eq!(passing(), Ok(None));
        let kill = Order::Signal(Signal::SIGKILL);
        for (text, expected) in [("kill", kill), ("stop\n", Order::Signal(Signal::SIGSTOP)), ("wait", Order::Wait)] {
            fs::write(&path, text).unwrap();
            assert_eq!((passing(), passing()), (Ok(Some(expected)), Ok(None)));
        }
        fs::write(&path, "kill 3").unwrap();
        assert_eq!([passing(), passing(), passing(), passing()], [Ok(None), Ok(None), Ok(Some(kill)), Ok(None)]);
        for wrong in ["", "explode", "kill x"] {
            fs::write(&path, wrong).unwrap();
            assert!(passing().is_err(), "{wrong:?}");
            assert_eq!(passing(), Ok(None), "an order that makes no sense is no trap for the next life");
        }
    }

    #[tokio::test]
    #[should_panic(expected = "no such point: x")]
    async fn a_call_that_waits_passes() {
        point_when_waiting("x", tokio::task::yield_now()).await;
    }

    #[tokio::test]
    async fn a_call_that_does_not_wait_passes_nothing() {
        assert_eq!(point_when_waiting("x", async { 8 }).await, 8);
    }
}
