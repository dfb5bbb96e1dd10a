//! Tests of whole histories, which are runs of a simulated world: from fixed seeds, and from kept plans that once
//! violated an invariant.

use std::path::Path;

use perilog_sim::campaign;
use perilog_sim::history::Trace;
use perilog_sim::plan::{self, Plan};

/// Number of seeds that the first test runs: enough to notice a broken machine. `perilog-sim --for` hunts for rare
/// violations.
const SEEDS: u64 = 80;

#[test]
fn what_was_promised_holds_in_the_histories_of_these_seeds() {
    let sum = campaign::run(1, 2, 1, |done| done < SEEDS, |_| {});
    let failed: Vec<String> = sum.failed.iter().map(|(plan, why)| format!("--seed {}: {why}", plan.seed)).collect();
    assert!(failed.is_empty(), "{failed:?}");
    // A world in which nothing happens proves nothing.
    assert!(sum.scripts > SEEDS && sum.outcomes > SEEDS && sum.injected.median() > 0, "{sum:?}");
}

#[test]
fn a_thousand_nodes_come_to_their_verdicts() {
    let history = campaign::survive(&plan::breadth(1), Trace::unread());
    assert_eq!(history.violation, None);
    assert!(history.scripts >= 1_000, "{}", history.scripts);
}

#[test]
fn one_plan_is_one_history_byte_for_byte() {
    for seed in 1..8 {
        let plan = campaign::plan_of(seed);
        let (once, again) = (perilog_sim::run(&plan, Trace::read()), perilog_sim::run(&plan, Trace::read()));
        assert!(once.trace.text() == again.trace.text(), "seed {seed}");
        // The history is the same whether or not anybody reads it.
        let unread = perilog_sim::run(&plan, Trace::unread());
        assert_eq!((unread.trace.steps, unread.scripts), (once.trace.steps, once.scripts), "seed {seed}");
    }
}

#[test]
fn a_kept_plan_is_the_plan_that_was_made() {
    let plan = campaign::plan_of(7);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn what_once_went_wrong_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "json")) {
        let plan: Plan = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert!(!plan.story.is_empty(), "{} has no story", file.display());
        let history = campaign::survive(&plan, Trace::unread());
        assert_eq!(history.violation, None, "{}: {}", file.display(), plan.story);
    }
}

/// Only programs with the feature `defects` contain defects (`cargo xtask mutate`). In every other program `defect!` is
/// a constant, usable in another constant.
#[cfg(not(feature = "defects"))]
#[test]
fn without_the_feature_no_defect_can_be_on() {
    const ON: bool = perilog_core::defect!(AckBeforeCommit) || perilog_core::defect!(NoTombstone);
    assert!(!std::hint::black_box(ON));
}
