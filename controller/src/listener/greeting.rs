//! Peers that greet: they have shown a certificate, and have not sent all of Hello. A Hello waits in memory until its
//! last page, so the listener admits few per certificate, and few large ones at a time.
//!
//! * **Two for a certificate**: the node's last session and its replacement. A third peer takes the place of the oldest
//!   one from its own address, or of the oldest of all: a thief cannot keep the true agent from greeting.
//! * **Eight with more than a page.** The ninth waits with its second page.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

/// Peers of one certificate that may be greeting.
const OF_ONE: usize = 2;
/// Hellos of more than a page that may be on their way to the machine.
const LARGE: usize = 8;

#[derive(Debug)]
pub(super) struct Greetings {
    of: Mutex<HashMap<String, Vec<Greeter>>>,
    pub(super) large: Arc<Semaphore>,
}

#[derive(Debug)]
struct Greeter {
    address: IpAddr,
    number: u64,
    /// Dropped: it has to go.
    _stay: oneshot::Sender<()>,
}

/// A peer's place among those that greet; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place<'a> {
    greetings: &'a Greetings,
    name: String,
    number: u64,
    stay: oneshot::Receiver<()>,
}

impl Default for Greetings {
    fn default() -> Self {
        Self { of: Mutex::default(), large: Arc::new(Semaphore::new(LARGE)) }
    }
}

impl Greetings {
    /// `number`: of this connection alone.
    pub(super) fn enter(&self, name: &str, address: IpAddr, number: u64) -> Place<'_> {
        let (keep, stay) = oneshot::channel();
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let greeters = of.entry(name.to_owned()).or_default();
        if greeters.len() >= OF_ONE {
            let same = greeters.iter().position(|greeter| greeter.address == address);
            greeters.remove(same.unwrap_or(0));
        }
        greeters.push(Greeter { address, number, _stay: keep });
        Place { greetings: self, name: name.to_owned(), number, stay }
    }
}

impl Place<'_> {
    /// Returns when another peer with this certificate needs the place.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.stay).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut of = self.greetings.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(greeters) = of.get_mut(&self.name) {
            greeters.retain(|greeter| greeter.number != self.number);
            if greeters.is_empty() {
                of.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_greeter_replaces_the_oldest_of_its_address() {
        let greetings = Greetings::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let (agent, thief) = (at("10.0.0.1"), at("10.0.0.66"));
        let is_gone = |place: &mut Place| place.stay.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let mut first = greetings.enter("n0", thief, 1);
        let mut second = greetings.enter("n0", thief, 2);
        assert!(!is_gone(&mut first) && !is_gone(&mut second));
        let mut own = greetings.enter("n0", agent, 3);
        assert!(is_gone(&mut first) && !is_gone(&mut second));
        drop(first);
        for number in 4..1_000 {
            let mut other = greetings.enter("n0", thief, number);
            assert!(is_gone(&mut second) && !is_gone(&mut other) && !is_gone(&mut own), "{number}");
            second = other;
        }
        // Other certificates have places of their own, and a freed place is free for any peer.
        let mut others = [greetings.enter("n1", thief, 1_000), greetings.enter("n1", thief, 1_001)];
        assert!(!others.iter_mut().any(is_gone) && !is_gone(&mut own));
        drop((own, second, others));
        assert!(greetings.of.lock().unwrap().is_empty());
    }
}
