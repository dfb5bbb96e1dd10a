//! Campaign: runs many histories from fresh seeds on all cores, for a period or up to a number.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{History, Trace, Violation};
use crate::plan::{self, Plan};

/// Number of seeds from one world with a thousand nodes to the next.
const BREADTH_EVERY: u64 = 2_000;

/// Totals over the histories (simulated runs) of a campaign, such as the number of scripts that ran and of faults that
/// the simulator injected. Also contains the plans that violated an invariant.
#[derive(Debug, Default)]
pub struct Sum {
    pub histories: u64,
    pub steps: Spread,
    pub scripts: u64,
    pub outcomes: u64,
    pub injected: Spread,
    /// The number of times that a fault struck at an effect, by the names of effect and fault (`plan::Spring::as_str`).
    pub hits: BTreeMap<(String, &'static str), u64>,
    /// Number of times that each fault of memory struck, by its name, such as `store lost`: a fault of memory gives a
    /// side another memory than the other side expects ([`crate::plan::Fault::of_memory`]). Also the number of
    /// recoveries that controllers entered and left ([`crate::plan::RECOVERIES`]).
    pub memory: BTreeMap<&'static str, u64>,
    /// Plans that violated an invariant, each with the violation.
    pub failed: Vec<(Plan, Violation)>,
}

/// Distribution of a count, such as the number of steps, over many histories.
#[derive(Debug, Default)]
pub struct Spread {
    /// Number of histories, by the value that the count had in them.
    counts: BTreeMap<u64, u64>,
}

impl Spread {
    fn add(&mut self, number: u64) {
        *self.counts.entry(number).or_default() += 1;
    }

    /// Returns the sum of the counted number over all histories.
    pub fn sum(&self) -> u64 {
        self.counts.iter().map(|(number, times)| number * times).sum()
    }

    pub fn median(&self) -> u64 {
        let half = self.counts.values().sum::<u64>() / 2;
        let mut before = 0;
        let passes = |(_, times): &(&u64, &u64)| {
            before += **times;
            before > half
        };
        self.counts.iter().find(passes).map_or(0, |(number, _)| *number)
    }
}

impl Sum {
    fn add(&mut self, plan: &Plan, history: History) {
        self.histories += 1;
        self.steps.add(history.trace.steps);
        self.scripts += history.scripts;
        self.outcomes += history.outcomes;
        self.injected.add(history.injected);
        for (hit, count) in history.hits {
            *self.hits.entry(hit).or_default() += count;
        }
        for (what, count) in history.memory {
            *self.memory.entry(what).or_default() += count;
        }
        if let Some(violation) = history.violation {
            self.failed.push((plan.clone(), violation));
        }
    }
}

/// Returns the plan of a seed: a few nodes with many events, or, once in `BREADTH_EVERY` seeds, a thousand nodes.
pub fn plan_of(seed: u64) -> Plan {
    if seed % BREADTH_EVERY == BREADTH_EVERY - 1 { plan::breadth(seed) } else { plan::depth(seed) }
}

/// Runs a plan; a panic of a machine becomes a violation.
pub fn survive(plan: &Plan, trace: Trace) -> History {
    catch_unwind(AssertUnwindSafe(|| crate::run(plan, trace))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        let violation = Violation { invariant: "panic".to_owned(), text, at_ms: 0 };
        let (hits, memory) = (BTreeMap::new(), BTreeMap::new());
        let trace = Trace::unread();
        History { trace, violation: Some(violation), injected: 0, scripts: 0, outcomes: 0, hits, memory }
    })
}

/// Runs the plans of the seeds from `first` on, on `threads` threads. Ends when `go_on` returns `false`, or when
/// `most_failed` histories have failed. Calls `received` with the sum after each history.
pub fn run(
    first: u64,
    threads: usize,
    most_failed: usize,
    go_on: impl Fn(u64) -> bool + Sync,
    received: impl Fn(&Sum) + Sync,
) -> Sum {
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
                    received(&sum);
                    if sum.failed.len() >= most_failed {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}
