//! Bounds on connections: each connection takes a *seat*. No user can keep root from being served, no untrusted
//! user can keep other users out, and waiting clients cannot keep commands out.
//!
//! ```text
//!   a stranger's connection      takes a seat; each stranger has only a few
//!   a trusted connection         takes a seat, and also a waiting seat while its call waits for an event
//!   no seat is left              the connection that is idle for the longest time gives up its seat;
//!                                if none is idle, the newcomer is refused
//! ```
//!
//! There are fewer waiting seats than seats of trusted users. So waiting calls cannot take all seats, and a command
//! still finds one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Maximum numbers of connections at once, by kind of user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of seats for root and the users whom the service trusts ([`super::Service::trusts`]), together.
    pub trusted: usize,
    /// Number of `trusted` seats that are kept for root.
    pub for_root: usize,
    /// Maximum number of calls of trusted users that wait for an event at once. It is below `trusted`, so that some
    /// seats are left for commands.
    pub waiting: usize,
    /// Maximum number of seats for all untrusted users together.
    pub strangers: usize,
    /// Maximum number of seats for one untrusted user.
    pub per_stranger: usize,
}

impl Bounds {
    /// Returns the number of connections that these bounds allow.
    pub const fn connections(&self) -> usize {
        self.trusted + self.strangers
    }
}

impl Default for Bounds {
    /// Returns maximum numbers of connections that fit into the 4096 file descriptors of a node's agent. Each node hook
    /// stays connected to the agent while its local task runs.
    fn default() -> Self {
        Self { trusted: 1_024, for_root: 64, waiting: 768, strangers: 256, per_stranger: 8 }
    }
}

/// The seats of a socket: a bounded number of connections at once.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimits {
    bounds: Bounds,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    trusted: usize,
    waiting: usize,
    strangers: HashMap<u32, usize>,
    /// Connections without a request, by a growing number: the first has been idle longest. Each has its kind of user,
    /// and a handle to tell the connection that it lost its seat.
    idle: BTreeMap<u64, (Holder, Arc<Notify>)>,
    next: u64,
}

/// User of a connection, as the limits on connections distinguish users: a trusted user, or the stranger with this uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Trusted,
    Stranger(u32),
}

/// The seat of a connection; dropping the value frees the seat.
#[derive(Debug)]
pub(super) struct Slot {
    holder: Holder,
    bounds: Bounds,
    taken: Arc<Mutex<Taken>>,
    /// Key of this connection in the table of idle connections; `None` while it has a request.
    idle: Option<u64>,
    /// Notifies the connection that it lost its seat.
    lost: Arc<Notify>,
}

/// The waiting seat of a call that waits for an event; dropping the value frees the waiting seat.
#[derive(Debug)]
pub struct Waiting {
    taken: Option<Arc<Mutex<Taken>>>,
}

/// The error that no seat is free for a client, as a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Full(pub(super) String);

impl ConnectionLimits {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, taken: Arc::default() }
    }

    /// Takes a seat for a connection of this user.
    ///
    /// # Errors
    /// [`Full`], for the client: all seats for users of this kind, or for this stranger, are taken, and no idle
    /// connection may be ended for it.
    pub(super) fn take(&self, uid: u32, trusted: bool) -> Result<Slot, Full> {
        let holder = if trusted { Holder::Trusted } else { Holder::Stranger(uid) };
        let mut taken = lock(&self.taken);
        if let Err(full) = taken.has_room(&self.bounds, holder, uid == 0) {
            taken.evict(holder, &full)?;
        }
        taken.count(holder);
        Ok(Slot { holder, bounds: self.bounds, taken: self.taken.clone(), idle: None, lost: Arc::default() })
    }
}

impl Slot {
    /// Records that the connection has no request. From now on the server may give its seat to a newcomer;
    /// [`Self::lost`] resolves when that happens.
    pub(super) fn idle(&mut self) {
        let mut taken = lock(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.idle.insert(number, (self.holder, self.lost.clone()));
        self.idle = Some(number);
    }

    /// Records that the connection has a request. Returns `false` if a newcomer has taken the connection's seat before
    /// that.
    pub(super) fn busy(&mut self) -> bool {
        let Some(number) = self.idle else { return true };
        let still = lock(&self.taken).idle.remove(&number).is_some();
        if still {
            self.idle = None;
        }
        still
    }

    /// Waits until the server gives the seat of this connection to a newcomer: no seat was left, and this connection
    /// had no request. The server then ends this connection. Cancel safe.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Returns the handle by which a call of this connection takes a waiting seat while it waits for an event.
    pub(super) fn waiters(&self) -> Waiters {
        Waiters { holder: self.holder, most: self.bounds.waiting, taken: self.taken.clone() }
    }
}

/// Handle by which the calls of a connection take waiting seats. The number of these seats limits how many calls of
/// trusted clients wait for an event at once.
#[derive(Debug)]
pub(super) struct Waiters {
    holder: Holder,
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

impl Waiters {
    /// Takes a waiting seat for a call of a trusted user that waits for an event; the number of waiting seats is
    /// bounded. A call of a stranger always gets an empty [`Waiting`], because strangers have few seats anyway.
    pub(super) fn wait(&self) -> Result<Waiting, Full> {
        // Strangers have few seats, so the waiting calls of strangers leave enough seats.
        if self.holder != Holder::Trusted {
            return Ok(Waiting { taken: None });
        }
        let mut taken = lock(&self.taken);
        if taken.waiting >= self.most {
            return Err(Full(format!("{} clients wait already, which is the limit: ask again later", self.most)));
        }
        taken.waiting += 1;
        Ok(Waiting { taken: Some(self.taken.clone()) })
    }
}

impl Taken {
    fn has_room(&self, bounds: &Bounds, holder: Holder, root: bool) -> Result<(), Full> {
        let (taken, most) = match holder {
            Holder::Trusted => (self.trusted, bounds.trusted - if root { 0 } else { bounds.for_root }),
            Holder::Stranger(uid) => {
                let own = self.strangers.get(&uid).copied().unwrap_or(0);
                if own >= bounds.per_stranger {
                    return Err(Full(format!("uid {uid} has {own} connections already, which is the limit")));
                }
                (self.strangers.values().sum(), bounds.strangers)
            }
        };
        match taken < most {
            true => Ok(()),
            false => Err(Full(format!("all {most} connections are in use: ask again later"))),
        }
    }

    /// Ends the longest-idle connection of the newcomer's kind (trusted or stranger), so that the newcomer can take its
    /// seat. A stranger that already has connections can only replace one of its own.
    ///
    /// # Errors
    /// A copy of `full`, if no such connection is idle.
    fn evict(&mut self, newcomer: Holder, full: &Full) -> Result<(), Full> {
        let own_only = match newcomer {
            Holder::Stranger(uid) => self.strangers.contains_key(&uid),
            Holder::Trusted => true,
        };
        let fits = |holder: &Holder| match (holder, newcomer) {
            (Holder::Trusted, Holder::Trusted) => true,
            (Holder::Stranger(of), Holder::Stranger(uid)) => *of == uid || !own_only,
            _ => false,
        };
        let oldest = self.idle.iter().find(|(_, (holder, _))| fits(holder)).map(|(number, _)| *number);
        let (holder, lost) = oldest.and_then(|number| self.idle.remove(&number)).ok_or_else(|| full.clone())?;
        self.discount(holder);
        lost.notify_one();
        Ok(())
    }

    fn count(&mut self, holder: Holder) {
        match holder {
            Holder::Trusted => self.trusted += 1,
            Holder::Stranger(uid) => *self.strangers.entry(uid).or_default() += 1,
        }
    }

    fn discount(&mut self, holder: Holder) {
        match holder {
            Holder::Trusted => self.trusted -= 1,
            // Forgets users without a seat: the map is no larger than the number of seats.
            Holder::Stranger(uid) => {
                if let Some(count) = self.strangers.get_mut(&uid) {
                    *count -= 1;
                    if *count == 0 {
                        self.strangers.remove(&uid);
                    }
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        // A seat that was given away counts for the new holder.
        if self.idle.is_none_or(|number| taken.idle.remove(&number).is_some()) {
            taken.discount(self.holder);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(taken) = &self.taken {
            lock(taken).waiting -= 1;
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { trusted: 3, for_root: 1, waiting: 2, strangers: 3, per_stranger: 2 };

    #[test]
    fn no_user_takes_the_connections_of_others_and_root_always_has_one() {
        let limits = ConnectionLimits::new(BOUNDS);
        let mut held = vec![limits.take(7, false).unwrap(), limits.take(7, false).unwrap()];
        assert!(limits.take(7, false).unwrap_err().to_string().contains("uid 7 has 2"));
        held.push(limits.take(8, false).unwrap());
        assert!(limits.take(9, false).is_err(), "strangers have three");
        held.push(limits.take(5, true).unwrap());
        held.push(limits.take(5, true).unwrap());
        assert!(limits.take(5, true).is_err(), "the last is root's");
        held.push(limits.take(0, true).unwrap());
        assert!(limits.take(0, true).is_err());
        held.remove(0);
        assert!(limits.take(9, false).is_ok());
        drop(held);
        let taken = lock(&limits.taken);
        assert!(taken.trusted == 0 && taken.strangers.is_empty() && taken.idle.is_empty());
    }

    #[tokio::test]
    async fn a_new_connection_replaces_the_longest_idle_one() {
        let limits = ConnectionLimits::new(BOUNDS);
        let mut held: Vec<Slot> = (0..3).map(|_| limits.take(0, true).unwrap()).collect();
        held[2].idle();
        held[1].idle();
        let newcomer = limits.take(0, true).unwrap();
        held[2].lost().await;
        assert!(!held[2].busy() && held[1].busy() && held[0].busy());
        assert!(limits.take(0, true).is_err(), "no connection is idle");
        // Dropping the first holder does not free a seat that was given away.
        held.remove(2);
        assert!(limits.take(0, true).is_err());
        drop(newcomer);
        assert!(limits.take(0, true).is_ok());
    }

    #[test]
    fn those_that_wait_leave_connections_to_commands() {
        let limits = ConnectionLimits::new(BOUNDS);
        let held: Vec<Slot> = (0..3).map(|_| limits.take(0, true).unwrap()).collect();
        let first = held[0].waiters().wait().unwrap();
        let _second = held[1].waiters().wait().unwrap();
        assert!(held[2].waiters().wait().unwrap_err().to_string().contains("2 clients wait"));
        drop(first);
        assert!(held[2].waiters().wait().is_ok());
    }
}
