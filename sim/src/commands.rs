//! Commands of `cargo xtask sim`: print one history, play the trace of a controller, shrink a failing plan to the
//! smallest one, search for failing seeds, or list the deliberate defects.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use perilog_core::Span;
use perilog_core::controller::trace::{self, Replayed};
use perilog_sim::campaign::{self, Sum};
use perilog_sim::history::Trace;
use perilog_sim::plan::Plan;
use perilog_sim::report;
use perilog_sim::shrink::shrink;

use crate::defects;

/// Number of failed plans after which a campaign ends. One cause often fails the plans of many seeds, and `--keep`
/// shrinks each of them.
const MOST_FAILED: usize = 5;
/// Interval at which a campaign reports its progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Options that accompany a command.
#[derive(Debug, Default)]
struct Options {
    /// The first seed of the campaign; `None`: a random seed.
    from: Option<u64>,
    /// The file for the report in JSON; `None`: no such report.
    json: Option<PathBuf>,
    /// The directory for the smallest plans of failed seeds; `None`: the campaign shrinks and keeps no plan.
    keep: Option<PathBuf>,
    /// Whether the campaign ends at the first violation.
    first: bool,
}

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The command line cannot be understood; with the reason.
    Usage(String),
    Failed(String),
}

/// Runs the command of the command line; returns `false` if a history violated an invariant.
pub(crate) fn run(arguments: &[&str]) -> Result<bool, Trouble> {
    let usage = Trouble::Usage;
    let (options, arguments) = options(arguments).map_err(usage)?;
    let done = match arguments.as_slice() {
        ["--seed", seed] => history(&campaign::plan_of(number("--seed", seed).map_err(usage)?)),
        ["--plan", file] => read(Path::new(file)).and_then(|plan| history(&plan)),
        ["--replay", file] => replay(Path::new(file)),
        ["--shrink", seed, file] => {
            let plan = shrink(&campaign::plan_of(number("--shrink", seed).map_err(usage)?));
            write(Path::new(file), &plan).and_then(|()| history(&plan))
        }
        ["--for", span] => {
            let span: Span = span.parse().map_err(|e| usage(format!("--for {span}: {e}")))?;
            let limit = span.as_duration().unwrap_or(Duration::MAX);
            if limit.is_zero() {
                return Err(usage("--for: no time, no history".to_owned()));
            }
            let began = now();
            search(&options, |_| began.elapsed() < limit)
        }
        ["--count", count] => match number("--count", count).map_err(usage)? {
            0 => return Err(usage("--count 0: no history, and so nothing is known".to_owned())),
            count => search(&options, |done| done < count),
        },
        ["--defects"] => defects::table().map(|text| print(&text)).map(|()| true),
        [] => return Err(usage("what is to be done?".to_owned())),
        other => return Err(usage(format!("{}: not understood", other.join(" ")))),
    };
    done.map_err(Trouble::Failed)
}

fn options<'a>(arguments: &[&'a str]) -> Result<(Options, Vec<&'a str>), String> {
    let (mut options, mut rest) = (Options::default(), Vec::new());
    let mut arguments = arguments.iter().copied();
    while let Some(word) = arguments.next() {
        let mut value = || {
            let value = arguments.next().filter(|value| !value.starts_with("--"));
            value.ok_or_else(|| format!("{word} has no value"))
        };
        match word {
            "--from" => options.from = Some(number(word, value()?)?),
            "--json" => options.json = Some(value()?.into()),
            "--keep" => options.keep = Some(value()?.into()),
            "--first" => options.first = true,
            "--defect" => defects::switch_on(value()?)?,
            _ => rest.push(word),
        }
    }
    Ok((options, rest))
}

fn number(option: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("{option} {text}: {e}"))
}

fn history(plan: &Plan) -> Result<bool, String> {
    let history = perilog_sim::run(plan, Trace::read());
    print(history.trace.text());
    print(&match &history.violation {
        Some(violation) => format!("violated: {violation}\n"),
        None => format!("held: {} steps, {} scripts ran\n", history.trace.steps, history.scripts),
    });
    Ok(history.violation.is_none())
}

/// Plays the trace of a controller that a log contains. Returns `false` if the machine and the trace differ.
fn replay(file: &Path) -> Result<bool, String> {
    let log = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let done = trace::replay(log.lines(), &mut |line| print(&format!("{line}\n")));
    let Replayed { skipped, batches, inputs, compared, differences } =
        done.map_err(|e| format!("{}: {e}", file.display()))?;
    if skipped > 0 {
        print(&format!(
            "the trace begins in the middle: its first {skipped} lines, up to a \"begin\", were not played\n"
        ));
    }
    let what = format!("{batches} batches, {inputs} inputs, {compared} records and effects");
    print(&match differences {
        0 => format!("no difference: {what}\n"),
        differences => format!("{differences} differences: {what}\n"),
    });
    Ok(differences == 0)
}

fn search(options: &Options, go_on: impl Fn(u64) -> bool + Sync) -> Result<bool, String> {
    // Creates directory and file before the search, so that a mistake shows before hours pass.
    if let Some(keep) = &options.keep {
        std::fs::create_dir_all(keep).map_err(|e| format!("--keep {}: {e}", keep.display()))?;
    }
    if let Some(file) = &options.json {
        std::fs::File::create(file).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    let first = options.from.unwrap_or_else(fresh_seed);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // The campaign reports a panic as a violation of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let most_failed = if options.first { 1 } else { MOST_FAILED };
    let began = now();
    let reported = Mutex::new(began);
    let watched = io::stderr().is_terminal();
    let sum = campaign::run(first, threads, most_failed, go_on, |sum| {
        let Ok(mut reported) = reported.lock() else { return };
        if watched && reported.elapsed() >= PROGRESS {
            *reported = now();
            let seconds = began.elapsed().as_secs();
            let (histories, faults, failed) = (sum.histories, sum.injected.sum(), sum.failed.len());
            complain(&format!("{seconds:>6} s  {histories} histories, {faults} faults, {failed} violations"));
        }
    });
    let elapsed = began.elapsed();
    print(&report::text(first, &sum, elapsed));
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report::json(first, &sum, elapsed));
        std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    print_failed(&sum, options.keep.as_deref())?;
    Ok(sum.failed.is_empty())
}

/// Prints the violation and the seed of each failed plan. With `keep`, also shrinks each plan, and writes the smallest
/// plan found to a file in this directory.
fn print_failed(sum: &Sum, keep: Option<&Path>) -> Result<(), String> {
    for (plan, violation) in &sum.failed {
        print(&format!("\nVIOLATED by seed {}: {violation}\n", plan.seed));
        let Some(keep) = keep else {
            print(&format!("  to read it: --seed {}\n", plan.seed));
            continue;
        };
        let mut small = shrink(plan);
        small.story = format!("Seed {}: {violation}", plan.seed);
        let file = keep.join(format!("seed-{}.json", plan.seed));
        write(&file, &small)?;
        let (steps, traps, file) = (small.steps.len(), small.traps.len(), file.display());
        print(&format!("  shrunk to {steps} steps and {traps} traps; to read it: cargo xtask sim --plan {file}\n"));
    }
    Ok(())
}

fn read(file: &Path) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))
}

fn write(file: &Path, plan: &Plan) -> Result<(), String> {
    let text = serde_json::to_string_pretty(plan).map_err(|e| e.to_string())?;
    std::fs::write(file, text + "\n").map_err(|e| format!("{}: {e}", file.display()))
}

fn print(text: &str) {
    // A reader who closed the pipe has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
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
    // The seeds of two campaigns on one day differ.
    since.as_secs().wrapping_mul(1_000_000)
}
