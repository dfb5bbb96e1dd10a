//! Many histories: fresh seeds on all cores, for a while or a number of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{History, Trace, Violation};
use crate::plan::{self, Plan};

/// One in so many worlds is of a thousand nodes.
const BREADTH_EVERY: u64 = 2_000;

/// What many histories added up to.
#[derive(Debug, Default)]
pub struct Sum {
    pub histories: u64,
    pub steps: u64,
    pub scripts: u64,
    pub outcomes: u64,
    /// Faults of each history.
    pub injected: Vec<u32>,
    pub hits: BTreeMap<(String, &'static str), u64>,
    /// Plans that violated something, and what.
    pub failed: Vec<(Plan, Violation)>,
}

impl Sum {
    fn add(&mut self, plan: &Plan, history: History) {
        self.histories += 1;
        self.steps += history.trace.steps;
        self.scripts += history.scripts;
        self.outcomes += history.outcomes;
        self.injected.push(u32::try_from(history.injected).unwrap_or(u32::MAX));
        for (hit, count) in history.hits {
            *self.hits.entry(hit).or_default() += count;
        }
        if let Some(violation) = history.violation {
            self.failed.push((plan.clone(), violation));
        }
    }

    pub fn median_injected(&self) -> u32 {
        let mut all = self.injected.clone();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

/// The plan of a seed.
pub fn plan_of(seed: u64) -> Plan {
    if seed % BREADTH_EVERY == BREADTH_EVERY - 1 { plan::breadth(seed) } else { plan::depth(seed) }
}

/// A panic of a machine is a violation like any other.
pub fn survive(plan: &Plan, trace: Trace) -> History {
    catch_unwind(AssertUnwindSafe(|| crate::run(plan, trace))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        let violation = Violation { invariant: "panic".to_owned(), text, at_ms: 0 };
        let hits = BTreeMap::new();
        History { trace: Trace::unread(), violation: Some(violation), injected: 0, scripts: 0, outcomes: 0, hits }
    })
}

/// Seeds from `first` on, on `threads` threads, until `go_on` says no or `most_failed` have failed.
pub fn run(first: u64, threads: usize, most_failed: usize, go_on: impl Fn(u64) -> bool + Sync) -> Sum {
    let (next, stop, sum) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) || !go_on(number) {
                        return;
                    }
                    let plan = plan_of(first.wrapping_add(number));
                    let history = survive(&plan, Trace::unread());
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.add(&plan, history);
                    if sum.failed.len() >= most_failed {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}
