//! The counters of the metrics page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perilog_core::controller::Effect;
use perilog_core::message::ToAgent;
use perilog_core::task::Step;
use perilog_core::{Event, IdSet};

use crate::store::Ran;

/// Maximum number of actions with counters of their own.
const ACTIONS: usize = 32;
/// Maximum number of scripts with counters of their own, over all actions: more than a site has. Each script has some
/// 20 series, and a Prometheus accepts that many series from one controller.
const SCRIPTS: usize = 256;
/// Label for all actions past [`ACTIONS`], and for all scripts past [`SCRIPTS`].
const OTHER: &str = "other";

/// All values of [`perilog_core::outcome::Outcome::as_str`].
const OUTCOMES: [&str; 8] = ["ok", "tolerable", "failed", "timeout", "cancelled", "lost", "refused", "resolved"];

/// Upper bounds, in seconds, of the histograms of scripts and tasks. A script takes milliseconds or, when a file server
/// hangs, hours.
const SCRIPT_SECONDS: &[f64] =
    &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0];
/// Upper bounds, in seconds, of the histogram of commits. A commit is one fsync; slow commits show a disk in trouble.
const COMMIT_SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Debug)]
pub(super) struct Counts {
    /// Names of the actions that have counters of their own.
    actions: BTreeSet<Arc<str>>,
    /// Number of ended tasks, by action and outcome.
    pub(super) ended: BTreeMap<(Arc<str>, String), u64>,
    pub(super) overdue: BTreeMap<Arc<str>, u64>,
    /// Number of files that runners skipped, by action.
    pub(super) skipped: BTreeMap<Arc<str>, u64>,
    /// Number of tasks without a script to run, by action.
    pub(super) empty: BTreeMap<Arc<str>, u64>,
    pub(super) tasks: BTreeMap<Arc<str>, Histogram>,
    /// Counters of each script, by action and script.
    pub(super) scripts: BTreeMap<(Arc<str>, Arc<str>), Script>,
    pub(super) commits: Histogram,
    pub(super) commits_failed: u64,
    pub(super) connects: u64,
    pub(super) disconnects: u64,
    pub(super) store_full: bool,
    /// Number of runs of a hook's command, by hook; `true`: the command succeeded.
    pub(super) hooks: BTreeMap<(&'static str, bool), u64>,
}

#[derive(Debug)]
pub(super) struct Script {
    pub(super) seconds: Histogram,
    pub(super) failed: u64,
}

impl Default for Counts {
    fn default() -> Self {
        let hooks = ["release", "drain"].into_iter().flat_map(|hook| [true, false].map(|ok| ((hook, ok), 0)));
        Self {
            actions: BTreeSet::new(),
            ended: BTreeMap::new(),
            overdue: BTreeMap::new(),
            skipped: BTreeMap::new(),
            empty: BTreeMap::new(),
            tasks: BTreeMap::new(),
            scripts: BTreeMap::new(),
            commits: Histogram::new(COMMIT_SECONDS),
            commits_failed: 0,
            connects: 0,
            disconnects: 0,
            store_full: false,
            // Series exist from the start, so that their first increase is visible.
            hooks: hooks.collect(),
        }
    }
}

impl Counts {
    pub(super) fn ran(&mut self, ran: &Ran) {
        let action = self.action(ran.action.as_deref().unwrap_or(OTHER));
        let tasks = self.tasks.entry(action.clone()).or_insert_with(|| Histogram::new(SCRIPT_SECONDS));
        tasks.observe(seconds(ran.elapsed_ms));
        *self.skipped.entry(action.clone()).or_default() += ran.skipped;
        *self.empty.entry(action.clone()).or_default() += u64::from(ran.empty);
        ran.steps.iter().for_each(|step| self.step(&action, step));
    }

    fn step(&mut self, action: &Arc<str>, step: &Step) {
        let mut key = (action.clone(), Arc::from(step.script.as_str()));
        if !self.scripts.contains_key(&key) && self.scripts.len() >= SCRIPTS {
            key.1 = OTHER.into();
        }
        let fresh = || Script { seconds: Histogram::new(SCRIPT_SECONDS), failed: 0 };
        let script = self.scripts.entry(key).or_insert_with(fresh);
        script.seconds.observe(seconds(step.elapsed_ms));
        script.failed += u64::from(!step.status.is_some_and(perilog_core::ExitStatus::is_success));
    }

    pub(super) fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Send { message: ToAgent::Welcome { .. }, .. } => self.connects += 1,
            Effect::Publish { event, .. } => self.event(event),
            _ => {}
        }
    }

    /// Counts the ranks that an event of a job's log reports as ended or overdue. Each event arrives once.
    fn event(&mut self, event: &Event) {
        if !matches!(event.name(), "action-start" | "finish" | "overdue") {
            return;
        }
        let text = |key: &str| event.context()?.get(key)?.as_str();
        let Some(action) = text("action") else { return };
        let action = self.action(action);
        let ranks = text("ranks").and_then(|ranks| ranks.parse::<IdSet>().ok()).map_or(0, |ranks| ranks.len());
        match event.name() {
            "finish" => {
                let outcome = text("outcome").unwrap_or("unknown").to_owned();
                *self.ended.entry((action, outcome)).or_default() += ranks;
            }
            "overdue" => *self.overdue.entry(action).or_default() += ranks,
            _ => {}
        }
    }

    /// Returns the label under which an action is counted: its name, or `other` past [`ACTIONS`]. The counters of a new
    /// action, without its histograms, begin at zero: for Prometheus, a series that begins with 1 has never risen, and
    /// the first overdue task would raise no alert.
    pub(super) fn action(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.actions.get(name) {
            return known.clone();
        }
        let name: Arc<str> = if self.actions.len() >= ACTIONS { OTHER.into() } else { name.into() };
        if self.actions.insert(name.clone()) {
            for counter in [&mut self.overdue, &mut self.skipped, &mut self.empty] {
                counter.insert(name.clone(), 0);
            }
            self.ended.extend(OUTCOMES.map(|outcome| ((name.clone(), outcome.to_owned()), 0)));
        }
        name
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

/// A histogram of durations, in the form of Prometheus: the number of durations in each bucket, and their sum.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    pub(super) bounds: &'static [f64],
    /// Number of observed values by bucket: values up to each bound and above the bound before. The last number counts
    /// the values above all bounds.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, seconds: f64) {
        let at = self.bounds.iter().position(|bound| seconds <= *bound).unwrap_or(self.bounds.len());
        self.counts[at] += 1;
        self.sum += seconds;
    }
}
