//! `cargo xtask mutate` shows that the simulator and the tests notice faults. It switches on one deliberate defect
//! after the other (core/src/defect.rs), and names the seed of the simulator, or the test, that failed.
//!
//! A defect counts as found if a seed or a test fails with it and passes without it. The same program runs both times:
//! only builds with the feature `defects` and debug assertions can have a defect, and they have none unless requested.
//! These builds use the same target directory as all other builds of cargo, so the next ordinary build replaces their
//! programs.

mod hunt;
mod report;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::stages::print_line;
use crate::tidy::{self, TABLE};
use crate::{Usage, cargo};

use hunt::{Simulator, Tests};
use report::Found;

const HELP: &str = "\
usage: cargo xtask mutate [NAME...] [--from S] [--json FILE]

Each of the named defects, or all: fresh seeds (from S on) until one does not hold, or the test that is to see it.
";

/// Maximum number of histories in which the simulator looks for one defect. The simulator plays seeds that differ each
/// time, or those from `--from` on; a defect that none of these histories shows counts as not found. The limit is no
/// time, because a busy machine plays fewer histories in a minute. The rarest defects show in one of a few thousand.
const LIMIT: u64 = 100_000;

/// A row of the table of defects, as the simulator prints it.
#[derive(Debug)]
struct Defect {
    name: String,
    wrong: String,
    breaks: String,
    hunt: Hunt,
}

#[derive(Debug)]
enum Hunt {
    Simulator,
    Unit { program: String, filter: String },
    Nodes { module: String },
}

#[derive(Debug, Default)]
struct Arguments<'a> {
    names: Vec<&'a str>,
    from: Option<&'a str>,
    json: Option<&'a str>,
}

/// Runs `cargo xtask mutate`. Returns `false` if a defect was not found, or a test fails without a defect.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let arguments = parse(arguments)?;
    let known = tidy::defects_of(&std::fs::read_to_string(cargo::root().join(TABLE)).context(TABLE)?);
    if let Some(name) = arguments.names.iter().find(|name| !known.contains(**name)) {
        return Err(Usage(format!("there is no defect {name}; those that there are stand in {TABLE}")).into());
    }
    let simulator = Simulator::build()?;
    let mut defects = read_table(&simulator.table()?)?;
    defects.retain(|defect| arguments.names.is_empty() || arguments.names.contains(&defect.name.as_str()));
    // Defects for seeds first; those whose tests boot nodes last.
    defects.sort_by_key(|defect| match defect.hunt {
        Hunt::Simulator => 0,
        Hunt::Unit { .. } => 1,
        Hunt::Nodes { .. } => 2,
    });
    let mut tests: Option<Tests> = None;
    let (mut found, mut alarms) = (Vec::new(), Vec::new());
    for defect in &defects {
        let by = match &defect.hunt {
            Hunt::Simulator => simulator.hunt(&defect.name, arguments.from, &mut alarms)?,
            Hunt::Unit { program, filter } => Tests::once(&mut tests)?.unit(&defect.name, program, filter)?,
            Hunt::Nodes { module } => Tests::once(&mut tests)?.on_nodes(&defect.name, module)?,
        };
        print_line(&report::line(defect, &by))?;
        found.push(by);
    }
    print_line(&report::end(&defects, &found, &alarms))?;
    if let Some(file) = arguments.json {
        let text = format!("{:#}\n", report::json(&defects, &found, &alarms));
        std::fs::write(file, text).with_context(|| format!("writing {file}"))?;
    }
    Ok(found.iter().all(Found::is_red) && alarms.is_empty())
}

fn parse<'a>(words: &[&'a str]) -> Result<Arguments<'a>> {
    let mut arguments = Arguments::default();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--from" => arguments.from = Some(value(word, words.next())?),
            "--json" => arguments.json = Some(value(word, words.next())?),
            word if word.starts_with('-') => return Err(usage(&format!("{word}: not understood"))),
            name => arguments.names.push(name),
        }
    }
    Ok(arguments)
}

fn value<'a>(option: &str, value: Option<&'a str>) -> Result<&'a str> {
    value.filter(|value| !value.starts_with("--")).ok_or_else(|| usage(&format!("{option} has no value")))
}

fn usage(why: &str) -> anyhow::Error {
    Usage(format!("mutate: {why}\n{HELP}")).into()
}

fn read_table(text: &str) -> Result<Vec<Defect>> {
    let rows: Vec<Value> = serde_json::from_str(text).context("the simulator's table of defects")?;
    rows.iter().map(|row| read_row(row).with_context(|| format!("a row of the table of defects: {row}"))).collect()
}

fn read_row(row: &Value) -> Option<Defect> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let hunt = match &row["hunt"] {
        Value::String(_) => Hunt::Simulator,
        hunt if hunt["unit"].is_object() => {
            Hunt::Unit { program: text(&hunt["unit"]["program"])?, filter: text(&hunt["unit"]["filter"])? }
        }
        hunt => Hunt::Nodes { module: text(&hunt["nodes"]["module"])? },
    };
    Some(Defect { name: text(&row["name"])?, wrong: text(&row["wrong"])?, breaks: text(&row["breaks"])?, hunt })
}
