//! The report of a campaign, for people and for programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::campaign::Sum;
use crate::plan::{OF_MEMORY, RECOVERIES, Spring, possible};

/// Number of hits that each fault should have at each effect in an hour's campaign: fewer hits prove little. A hit is a
/// fault that struck at an effect of a daemon.
pub const ENOUGH: u64 = 100;

/// Returns the report as text: totals, a table of how often each fault struck at each effect, and the faults that
/// struck there too seldom ([`ENOUGH`]). `first`: the first seed; `elapsed`: the duration of the campaign.
pub fn text(first: u64, sum: &Sum, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let mut text = format!(
        "{} histories from seed {first} in {seconds:.1} s ({:.0}/s)\n  steps     {:>12}, median {} per history\n  \
         faults    {:>12}, median {} per history\n  scripts   {:>12}\n  outcomes  {:>12} committed\n\n",
        sum.histories,
        sum.histories as f64 / seconds.max(0.001),
        sum.steps.sum(),
        sum.steps.median(),
        sum.injected.sum(),
        sum.injected.median(),
        sum.scripts,
        sum.outcomes,
    );
    text.push_str(&table(sum));
    text.push_str(&memory(sum));
    text.push_str(&rare_text(&rare(sum)));
    text
}

/// Returns the faults with few hits as text, a line for each effect. If more than half of all pairs of effect and fault
/// have few hits, as after a short run, returns only their number.
fn rare_text(rare: &[(&'static str, &'static str, u64)]) -> String {
    if rare.is_empty() {
        return format!("\nunder {ENOUGH}: none\n");
    }
    let all = possible().count();
    if rare.len() > all / 2 {
        return format!("\nunder {ENOUGH}: {} of {all}, for so short a run\n", rare.len());
    }
    let mut text = format!("\nunder {ENOUGH}:\n");
    for effect in unique(rare.iter().map(|(effect, _, _)| *effect)) {
        let of = rare.iter().filter(|(other, _, _)| *other == effect);
        let words: Vec<String> = of.map(|(_, word, count)| format!("{word} {count}")).collect();
        let _ = writeln!(text, "  {effect}: {}", words.join(", "));
    }
    text
}

/// Returns as text how often each fault in [`OF_MEMORY`] struck, such as `store lost`. The text also has the number of
/// recoveries that controllers entered and left.
fn memory(sum: &Sum) -> String {
    let width = OF_MEMORY.iter().map(|what| what.len()).max().unwrap_or_default();
    let mut text = "\n".to_owned();
    for what in OF_MEMORY.into_iter().chain(RECOVERIES) {
        let _ = writeln!(text, "{what:width$}  {:>COLUMN$}", sum.memory.get(what).copied().unwrap_or_default());
    }
    text
}

/// Returns, as text, how often each fault struck at each effect of a daemon: a row per effect, a column per fault, and
/// `-` where the fault cannot strike.
fn table(sum: &Sum) -> String {
    let effects: Vec<&str> = unique(possible().map(|(effect, _)| effect));
    let width = effects.iter().map(|effect| effect.len()).max().unwrap_or_default();
    let mut text = format!("{:width$}", "hits");
    for word in Spring::WORDS {
        let _ = write!(text, "  {:>COLUMN$}", word);
    }
    text.push('\n');
    for effect in effects {
        let _ = write!(text, "{effect:width$}");
        for word in Spring::WORDS {
            let can = possible().any(|pair| pair == (effect, word));
            let count = if can { hits(sum, effect, word).to_string() } else { "-".to_owned() };
            let _ = write!(text, "  {count:>COLUMN$}");
        }
        text.push('\n');
    }
    text
}

/// Width of a column in characters: the longest fault name fits.
const COLUMN: usize = 12;

fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    all.filter(|one| seen.insert(*one)).collect()
}

fn hits(sum: &Sum, effect: &str, word: &'static str) -> u64 {
    sum.hits.get(&(effect.to_owned(), word)).copied().unwrap_or_default()
}

fn rare(sum: &Sum) -> Vec<(&'static str, &'static str, u64)> {
    let all = possible().map(|(effect, word)| (effect, word, hits(sum, effect, word)));
    all.filter(|(_, _, count)| *count < ENOUGH).collect()
}

/// Returns the report as JSON. `first`: the first seed; `elapsed`: the duration of the campaign.
pub fn json(first: u64, sum: &Sum, elapsed: Duration) -> Value {
    let hits =
        possible().map(|(effect, word)| json!({"effect": effect, "fault": word, "hits": hits(sum, effect, word)}));
    let failed = sum.failed.iter().map(|(plan, why)| json!({"seed": plan.seed, "violation": why.to_string()}));
    json!({
        "first_seed": first,
        "seconds": elapsed.as_secs_f64(),
        "histories": sum.histories,
        "steps": {"sum": sum.steps.sum(), "median": sum.steps.median()},
        "faults": {"sum": sum.injected.sum(), "median": sum.injected.median()},
        "scripts": sum.scripts,
        "outcomes": sum.outcomes,
        "hits": hits.collect::<Vec<_>>(),
        "memory": sum.memory,
        "enough": ENOUGH,
        "failed": failed.collect::<Vec<_>>(),
    })
}
