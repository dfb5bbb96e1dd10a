//! How many connections there may be, so that no user can keep the others, or root, from being served.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many connections there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of all users together. Those beyond wait in the listen queue.
    pub connections: usize,
    /// Of one user other than root. Those beyond are closed at once.
    pub per_user: usize,
    /// Of `connections`, how many only root can have.
    pub for_root: usize,
}

impl Default for Bounds {
    /// Fits within the 1024 descriptors that a service has unless its unit says more.
    fn default() -> Self {
        Self { connections: 768, per_user: 256, for_root: 64 }
    }
}

/// The seats that are taken.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    bounds: Bounds,
    taken: Arc<Mutex<HashMap<u32, usize>>>,
}

/// One taken seat; free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    uid: u32,
    taken: Arc<Mutex<HashMap<u32, usize>>>,
}

impl Seats {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, taken: Arc::default() }
    }

    /// A seat for a user, if there is one. Root always has one: the caller accepts no more than `connections`.
    pub(super) fn take(&self, uid: u32) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = taken.iter().filter(|(uid, _)| **uid != 0).map(|(_, count)| count).sum();
        let own = taken.get(&uid).copied().unwrap_or(0);
        let room = own < self.bounds.per_user && others < self.bounds.connections.saturating_sub(self.bounds.for_root);
        if uid != 0 && !room {
            return None;
        }
        taken.insert(uid, own + 1);
        Some(Seat { uid, taken: self.taken.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Users without a seat are forgotten: the map is no larger than the number of seats.
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_the_seats_of_others_and_root_always_has_one() {
        let seats = Seats::new(Bounds { connections: 5, per_user: 2, for_root: 1 });
        let mut held = vec![seats.take(7).unwrap(), seats.take(7).unwrap()];
        assert!(seats.take(7).is_none());
        held.push(seats.take(8).unwrap());
        held.push(seats.take(8).unwrap());
        assert!(seats.take(9).is_none(), "the last is root's");
        held.push(seats.take(0).unwrap());
        held.remove(0);
        assert!(seats.take(9).is_some());
        drop(held);
        assert!(seats.taken.lock().unwrap().is_empty());
    }
}
