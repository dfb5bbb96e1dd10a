//! Peers that greet: they have shown a certificate, and have not sent all of Hello. A Hello waits in memory until its
//! last page, so the listener admits few per certificate, and few large Hellos at a time.
//!
//! * **Two for a certificate.** One place belongs to the address of the session that the machine welcomed last. All
//!   other addresses share the other place, so a thief cannot keep the true agent from greeting. Before the first
//!   welcome a peer replaces the peer from its own address. If no such peer greets and both places are taken, it
//!   replaces the oldest peer.
//! * **Eight with more than a page.** The ninth waits with its second page.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};

/// Maximum number of greeting peers with one certificate.
const OF_ONE: usize = 2;
/// Maximum number of Hellos of more than a page on their way to the machine.
const LARGE: usize = 8;

#[derive(Debug)]
pub(super) struct Greetings {
    of: Mutex<HashMap<String, Places>>,
    pub(super) large: Arc<Semaphore>,
}

/// The addresses from which peers with one certificate connect.
#[derive(Debug, Default)]
struct Places {
    /// Address of the session that the machine welcomed last.
    home: Option<IpAddr>,
    greeters: Vec<Greeter>,
}

#[derive(Debug)]
struct Greeter {
    address: IpAddr,
    number: u64,
    /// Dropping the sender tells the peer to leave.
    _stay: oneshot::Sender<()>,
}

/// A peer's place while the peer greets; dropping this value frees the place.
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
    /// Takes a place for a connection that has not said Hello yet; `number` is unique among all connections.
    pub(super) fn enter(&self, name: &str, address: IpAddr, number: u64) -> Place<'_> {
        let (keep, stay) = oneshot::channel();
        let mut of = self.lock();
        let Places { home, greeters } = of.entry(name.to_owned()).or_default();
        let shares = |of: IpAddr| of == address || home.is_some_and(|home| home != of && home != address);
        greeters.retain(|greeter| !shares(greeter.address));
        if greeters.len() >= OF_ONE {
            greeters.remove(0);
        }
        greeters.push(Greeter { address, number, _stay: keep });
        Place { greetings: self, name: name.to_owned(), number, stay }
    }

    /// Records the address of the session that the machine welcomed, and reserves a place for this address.
    pub(super) fn welcomed(&self, name: &str, address: IpAddr) {
        self.lock().entry(name.to_owned()).or_default().home = Some(address);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Places>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Returns when another peer with this certificate takes the place of this connection.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.stay).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut of = self.greetings.lock();
        if let Some(places) = of.get_mut(&self.name) {
            places.greeters.retain(|greeter| greeter.number != self.number);
            if places.greeters.is_empty() && places.home.is_none() {
                of.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_gone(place: &mut Place) -> bool {
        place.stay.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_greeter_replaces_one_of_its_address_or_the_oldest() {
        let greetings = Greetings::default();
        let (agent, thief) = (at("10.0.0.1"), at("10.0.0.66"));
        let mut own = greetings.enter("n0", agent, 1);
        let mut last = greetings.enter("n0", thief, 2);
        for number in 3..1_000 {
            let mut other = greetings.enter("n0", thief, number);
            assert!(is_gone(&mut last) && !is_gone(&mut other) && !is_gone(&mut own), "{number}");
            last = other;
        }
        // Other certificates have places of their own, and a freed place is free for any peer.
        let mut others = [greetings.enter("n1", thief, 1_000), greetings.enter("n1", agent, 1_001)];
        assert!(!others.iter_mut().any(is_gone) && !is_gone(&mut own));
        let _third = greetings.enter("n0", at("10.0.0.67"), 1_002);
        assert!(is_gone(&mut own) && !is_gone(&mut last));
        drop((own, last, others, _third));
        assert!(greetings.lock().is_empty());
    }

    #[test]
    fn the_address_that_was_welcomed_last_keeps_its_place() {
        let greetings = Greetings::default();
        let (agent, moved) = (at("10.0.0.1"), at("10.0.0.2"));
        let thief = |number: u64| at(&format!("10.0.1.{}", number % 200));
        let mut last = greetings.enter("n0", thief(0), 0);
        greetings.welcomed("n0", agent);
        let mut own = greetings.enter("n0", agent, 1_000);
        for number in 1..1_000 {
            let mut other = greetings.enter("n0", thief(number), number);
            assert!(is_gone(&mut last) && !is_gone(&mut other) && !is_gone(&mut own), "{number}");
            last = other;
        }
        // The agent dials again: it gets its own place, and disturbs no other peer.
        let mut again = greetings.enter("n0", agent, 1_001);
        assert!(is_gone(&mut own) && !is_gone(&mut again) && !is_gone(&mut last));
        // The node gets another address.
        greetings.welcomed("n0", moved);
        let mut own = greetings.enter("n0", moved, 1_002);
        let mut other = greetings.enter("n0", thief(0), 1_003);
        assert!(is_gone(&mut again) && is_gone(&mut last) && !is_gone(&mut own) && !is_gone(&mut other));
    }
}
