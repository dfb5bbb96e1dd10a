//! Bounds on greeting peers, which have shown a certificate and have not sent all of Hello. A Hello waits in memory
//! until its last page, so the listener admits few peers per certificate, and few large Hellos at a time.
//!
//! * **Two places for a certificate.** One place belongs to the address of the session that the machine welcomed last.
//!   All other addresses share the other place. Before the first welcome all addresses share both.
//! * **A turn for each address.** A peer in a shared place has half a second before a peer of another address takes the
//!   place. Other addresses wait in the order of their first peer, and each address waits once: a newer peer replaces
//!   the older peer of its address and has its place or its turn. So a true agent waits for at most one turn of each
//!   address of a thief.
//! * **Eight large Hellos.** At most eight peers send a Hello of more than one page at the same time. A ninth waits
//!   after its first page.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perilog_core::defect;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// Number of peers with one certificate that may normally send their Hello at the same time.
const OF_ONE: usize = 2;
/// Maximum number of addresses of one certificate that wait for a place. At half a second a turn, the last of them has
/// its turn within 16 seconds, while its agent waits 20 seconds for the controller's preamble.
const WAITING: usize = 32;
/// Time that a peer has for its Hello while peers of other addresses wait. An agent sends its Hello at once.
const TURN: Duration = Duration::from_millis(500);
/// Maximum number of Hellos with more than one page that peers send at the same time.
const LARGE: usize = 8;

#[derive(Debug)]
pub(super) struct Greetings {
    of: Mutex<HashMap<String, Places>>,
    pub(super) large: Arc<Semaphore>,
}

/// The peers that show the same certificate, and have not sent all of Hello: those that may send it now, and those that
/// wait. If a thief has the certificate's key, not all of them need be the true agent.
#[derive(Debug, Default)]
struct Places {
    /// Address of the session that the machine welcomed last; `None`: it has welcomed none yet.
    home: Option<IpAddr>,
    greeters: Vec<Greeter>,
    /// Peers that wait until they may send their Hello, in the order of their turns.
    waiting: VecDeque<Greeter>,
    /// Wakes the waiting peers whenever a peer comes, is welcomed or leaves, so that each checks whether its turn has
    /// come.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Greeter {
    address: IpAddr,
    number: u64,
    /// The time at which the turn of this address began.
    since: Instant,
    /// Held while the peer may stay. Dropping the sender tells the peer's session to end.
    _stay: oneshot::Sender<()>,
}

/// The registration of a peer that waits for its turn, or sends its Hello. Dropping this value ends the registration,
/// so that the next peer gets its turn.
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

impl Places {
    /// Adds a peer. If a peer of the same address is registered, the new peer replaces it, in its place or in the
    /// queue. Otherwise a peer of the address `home` may send its Hello at once. A peer of any other address joins the
    /// end of the queue, or is turned away if [`WAITING`] addresses wait already.
    fn add(&mut self, greeter: Greeter) {
        let of_address = |other: &Greeter| other.address == greeter.address;
        if let Some(waiting) = self.waiting.iter_mut().find(|other| of_address(other)) {
            *waiting = greeter;
        } else if let Some(standing) = self.greeters.iter_mut().find(|other| of_address(other)) {
            *standing = Greeter { since: standing.since, ..greeter };
        } else if self.home == Some(greeter.address) {
            self.greeters.push(greeter);
        } else if self.waiting.len() < WAITING {
            self.waiting.push_back(greeter);
        }
    }

    /// Moves waiting peers into free places, and into places of peers whose turn is over (those peers are sent away).
    /// Returns the time at which the next turn ends; `None` if no peer waits.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        let home = self.home;
        let shared = if home.is_some() { OF_ONE - 1 } else { OF_ONE };
        while !self.waiting.is_empty() {
            let others = self.greeters.iter().filter(|greeter| Some(greeter.address) != home);
            if others.clone().count() >= shared
                && let Some((until, number)) = others.map(|greeter| (greeter.since + TURN, greeter.number)).min()
            {
                let until = if defect!(NoTurnToGreet) { now } else { until };
                if until > now {
                    return Some(until);
                }
                self.greeters.retain(|greeter| greeter.number != number);
                continue;
            }
            let next = self.waiting.pop_front().map(|greeter| Greeter { since: now, ..greeter });
            self.greeters.extend(next);
        }
        None
    }
}

impl Greetings {
    /// Registers a connection that waits for its turn to send Hello; dropping the returned value ends the registration.
    /// `name`: the first host in the peer's certificate; `number`: unique among all connections.
    pub(super) fn enter(&self, name: &str, address: IpAddr, number: u64) -> Place<'_> {
        let (keep, stay) = oneshot::channel();
        let mut of = self.lock();
        let places = of.entry(name.to_owned()).or_default();
        places.add(Greeter { address: network(address), number, since: Instant::now(), _stay: keep });
        places.advance(Instant::now());
        places.changed.notify_waiters();
        Place { greetings: self, name: name.to_owned(), number, stay }
    }

    /// Records the address of the session that the machine welcomed. From now on a peer of this address may send its
    /// Hello without waiting for a turn.
    pub(super) fn welcomed(&self, name: &str, address: IpAddr) {
        let mut of = self.lock();
        let places = of.entry(name.to_owned()).or_default();
        let home = network(address);
        places.home = Some(home);
        if let Some(at) = places.waiting.iter().position(|greeter| greeter.address == home) {
            places.greeters.extend(places.waiting.remove(at));
        }
        places.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Places>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until this peer may send its Hello. Returns `false` if the controller sends the peer away instead, for
    /// example because a newer peer of its address replaced it, or because too many addresses wait already.
    pub(super) async fn turn(&mut self) -> bool {
        loop {
            let (changed, until) = {
                let mut of = self.greetings.lock();
                let Some(places) = of.get_mut(&self.name) else { return false };
                let until = places.advance(Instant::now());
                if places.greeters.iter().any(|greeter| greeter.number == self.number) {
                    return true;
                }
                // Every change from now on counts, also before the first poll.
                (places.changed.clone().notified_owned(), until)
            };
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = over => {}
                _ = &mut self.stay => return false,
            }
        }
    }

    /// Waits until the controller gives this peer's place to another peer with the same certificate.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.stay).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut of = self.greetings.lock();
        if let Some(places) = of.get_mut(&self.name) {
            places.greeters.retain(|greeter| greeter.number != self.number);
            places.waiting.retain(|greeter| greeter.number != self.number);
            places.advance(Instant::now());
            places.changed.notify_waiters();
            if places.greeters.is_empty() && places.waiting.is_empty() && places.home.is_none() {
                of.remove(&self.name);
            }
        }
    }
}

/// Returns the part of an address that identifies its host: an IPv4 address itself, but of an IPv6 address only the /64
/// network, because one host may use any number of addresses in it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_gone(place: &mut Place<'_>) -> bool {
        place.stay.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    fn greets(greetings: &Greetings, place: &Place<'_>) -> bool {
        let of = greetings.lock();
        of.get(&place.name).is_some_and(|places| places.greeters.iter().any(|greeter| greeter.number == place.number))
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeter_replaces_the_one_of_its_address_alone() {
        let greetings = Greetings::default();
        let (agent, attacker) = (at("10.0.0.1"), at("10.0.0.66"));
        let mut own = greetings.enter("n0", agent, 1);
        let mut last = greetings.enter("n0", attacker, 2);
        for number in 3..1_000 {
            let mut other = greetings.enter("n0", attacker, number);
            assert!(is_gone(&mut last) && !is_gone(&mut other) && !is_gone(&mut own), "{number}");
            last = other;
        }
        // Other certificates have places of their own, and a freed place is free for any peer.
        let mut others = [greetings.enter("n1", attacker, 1_000), greetings.enter("n1", agent, 1_001)];
        assert!(!others.iter_mut().any(is_gone) && !is_gone(&mut own));
        let third = greetings.enter("n0", at("10.0.0.67"), 1_002);
        assert!(!greets(&greetings, &third));
        drop(last);
        assert!(greets(&greetings, &third) && greets(&greetings, &own));
        drop((own, others, third));
        assert!(greetings.lock().is_empty());
    }

    /// An agent waits at most one turn of each address of a thief that uses the same certificate. The thief dials again
    /// and again from each of its addresses.
    #[tokio::test(start_paused = true)]
    async fn a_new_address_waits_for_a_turn_of_each_other_address() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        for (attackers, home) in [(1, None), (2, None), (8, None), (WAITING - 1, None), (8, Some("10.0.9.9"))] {
            let greetings = Greetings::default();
            home.into_iter().for_each(|home| greetings.welcomed("n0", at(home)));
            let address = |n: usize| at(&format!("10.0.1.{n}"));
            let mut number = 0;
            let mut enter = |of: IpAddr| {
                number += 1;
                greetings.enter("n0", of, number)
            };
            let mut of_attacker: Vec<_> = (0..attackers).map(|n| enter(address(n))).collect();
            let mut agent = enter(at("10.0.0.1"));
            let began = Instant::now();
            while !greets(&greetings, &agent) {
                for (n, place) in of_attacker.iter_mut().enumerate() {
                    // The thief dials again from every address, whether it has lost its place or not.
                    *place = enter(address(n));
                }
                assert!(!is_gone(&mut agent), "{attackers} {home:?}");
                let _ = tokio::time::timeout(Duration::from_millis(50), agent.turn()).await;
            }
            let waited = began.elapsed();
            println!("{attackers} addresses of an attacker, home {home:?}: waited {waited:?}");
            let shared = if home.is_some() { 1 } else { 2 };
            let turns = u32::try_from(attackers.div_ceil(shared)).unwrap();
            assert!(waited <= TURN * turns, "{attackers} {home:?}: {waited:?}");
            // The agent keeps its turn, though the thief dials all the time.
            for _ in 0..100 {
                for (n, place) in of_attacker.iter_mut().enumerate() {
                    *place = enter(address(n));
                }
            }
            assert!(!is_gone(&mut agent) && greets(&greetings, &agent));
        }
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_as_one() {
        assert_eq!(network(at("2001:db8:1:2:3:4:5:6")), network(at("2001:db8:1:2::1")));
        assert_ne!(network(at("2001:db8:1:3::1")), network(at("2001:db8:1:2::1")));
        assert_ne!(network(at("10.0.0.1")), network(at("10.0.0.2")));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_addresses_wait_and_the_next_is_turned_away() {
        let greetings = Greetings::default();
        let mut places: Vec<_> = (0..=OF_ONE + WAITING)
            .map(|n| greetings.enter("n0", at(&format!("10.0.1.{n}")), u64::try_from(n).unwrap()))
            .collect();
        let mut last = places.pop().unwrap();
        assert!(is_gone(&mut last) && !places.iter_mut().any(is_gone));
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_that_was_welcomed_last_keeps_its_place() {
        let greetings = Greetings::default();
        let (agent, moved) = (at("10.0.0.1"), at("10.0.0.2"));
        greetings.welcomed("n0", agent);
        let mut own = greetings.enter("n0", agent, 1_000);
        let mut attackers = Vec::new();
        for number in 1..1_000 {
            attackers.push(greetings.enter("n0", at(&format!("10.0.1.{}", number % 200)), number));
            assert!(greets(&greetings, &own) && !is_gone(&mut own), "{number}");
        }
        // The agent dials again: it gets its own place at once.
        let again = greetings.enter("n0", agent, 1_001);
        assert!(is_gone(&mut own) && greets(&greetings, &again));
        // The node gets another address.
        greetings.welcomed("n0", moved);
        let own = greetings.enter("n0", moved, 1_002);
        assert!(greets(&greetings, &own));
    }
}
