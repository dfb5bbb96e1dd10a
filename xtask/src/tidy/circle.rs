//! Circles in a graph of names.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the names that stand in a circle or between two circles: those that are left without all that lead to no
/// other name, and all to which no other name leads. Empty: there is no circle. `leads`: for each name, those to which
/// it leads.
pub(super) fn circle(leads: &BTreeMap<String, BTreeSet<String>>) -> Vec<&str> {
    let mut left: BTreeSet<&str> = leads.keys().map(String::as_str).collect();
    loop {
        let leads_on = |name: &str| leads.get(name).into_iter().flatten().any(|other| left.contains(other.as_str()));
        let is_reached = |name: &str| left.iter().any(|other| leads.get(*other).is_some_and(|of| of.contains(name)));
        let next: BTreeSet<&str> = left.iter().copied().filter(|name| leads_on(name) && is_reached(name)).collect();
        if next.len() == left.len() {
            return next.into_iter().collect();
        }
        left = next;
    }
}
