//! What the command line asks for: read one history, keep the smallest that fails, or search for one that does.

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use perilog_core::Span;
use perilog_sim::campaign::{self, Sum};
use perilog_sim::history::Trace;
use perilog_sim::plan::Plan;
use perilog_sim::shrink::shrink;

/// Failures after which a campaign ends: each is shrunk, and one cause often fails many seeds.
const MOST_FAILED: usize = 5;

/// Does it; `false`: a history did not hold.
pub(crate) fn run(arguments: &[&str]) -> Result<bool, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    match arguments {
        ["--seed", seed] => history(&campaign::plan_of(number(seed)?)),
        ["--plan", file] => history(&read(file)?),
        ["--shrink", seed, file] => keep(&shrink(&campaign::plan_of(number(seed)?)), file),
        ["--for", span, from @ ..] => {
            let span: Span = span.parse().map_err(|e| format!("{e}"))?;
            let limit = span.as_duration().unwrap_or(Duration::MAX);
            let began = now();
            campaign(first(from)?, |_| began.elapsed() < limit)
        }
        ["--count", count, from @ ..] => {
            let count = number(count)?;
            campaign(first(from)?, |done| done < count)
        }
        _ => Err("what is to be done?".to_owned()),
    }
}

/// Seeds that nobody has seen yet, unless they are named.
fn first(from: &[&str]) -> Result<u64, String> {
    match from {
        [] => Ok(fresh_seed()),
        ["--from", seed] => seed.parse().map_err(|e| format!("{seed}: {e}")),
        other => Err(format!("{}: not understood", other.join(" "))),
    }
}

fn history(plan: &Plan) -> Result<bool, String> {
    let history = perilog_sim::run(plan, Trace::read());
    say(history.trace.text());
    say(&match &history.violation {
        Some(violation) => format!("violated: {violation}\n"),
        None => format!("held: {} steps, {} scripts ran\n", history.trace.steps, history.scripts),
    });
    Ok(history.violation.is_none())
}

fn campaign(first: u64, go_on: impl Fn(u64) -> bool + Sync) -> Result<bool, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // A panic is reported as a violation of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let began = now();
    let sum = campaign::run(first, threads, MOST_FAILED, go_on);
    say(&report(first, &sum, began.elapsed()));
    Ok(sum.failed.is_empty())
}

fn report(first: u64, sum: &Sum, took: Duration) -> String {
    let mut text = format!(
        "{} histories from seed {first} in {:.1} s: {} steps, {} scripts ran, {} outcomes committed, faults per history {} (median)\n",
        sum.histories,
        took.as_secs_f64(),
        sum.steps,
        sum.scripts,
        sum.outcomes,
        sum.median_injected()
    );
    for ((effect, spring), count) in &sum.hits {
        text.push_str(&format!("  {count:>8}  {effect} ({spring})\n"));
    }
    for (plan, violation) in &sum.failed {
        text.push_str(&format!("FAILED: --seed {}: {violation}\n", plan.seed));
    }
    text
}

fn read(file: &str) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))
}

fn keep(plan: &Plan, file: &str) -> Result<bool, String> {
    let text = serde_json::to_string_pretty(plan).map_err(|e| e.to_string())?;
    std::fs::write(file, text + "\n").map_err(|e| format!("{file}: {e}"))?;
    history(plan)
}

fn say(text: &str) {
    // Whoever does not read on has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
}

#[allow(
    clippy::disallowed_methods,
    reason = "a campaign lasts for so long by the clock on the wall; no history ever sees it"
)]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "a seed that is new every time")]
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Apart from the seeds of any other campaign of the same day.
    since.as_secs().wrapping_mul(1_000_000)
}
