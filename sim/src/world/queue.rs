//! The queue of a world's events, in the order of their times. Events of equal times keep the order of their insertion.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::event::Event;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Due>>,
    last: u64,
}

#[derive(Debug)]
struct Due {
    at_ms: u64,
    number: u64,
    /// The event, boxed because small elements move up and down the heap faster.
    event: Box<Event>,
}

impl Queue {
    pub(crate) fn push(&mut self, at_ms: u64, event: Event) {
        self.last += 1;
        self.heap.push(Reverse(Due { at_ms, number: self.last, event: Box::new(event) }));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at_ms, *due.event))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}
