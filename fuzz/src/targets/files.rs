//! Contents of files.

use std::fmt::Debug;
use std::path::Path;

use perilog_agent::config::Config as Agent;
use perilog_controller::config::Config as Controller;
use perilog_core::boot::BootRecord;
use perilog_core::drop_ins::Overriding;
use perilog_core::judge::{Evidence, judge};
use perilog_core::task::{Claim, Ended, Intent, RunResult, StepRecord, Tombstone, UnitFacts};
use perilog_core::{AcceptedEpoch, InvocationId, Outcome};
use perilog_flux::config::Config as Edge;
use perilog_host::config::ConfigError;
use perilog_host::fuzz::configuration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Input;

/// Most problems that a report of a configuration has for each file, and for all files together.
const PROBLEMS: usize = 64;

pub(super) fn agent(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    match input.parse(|| Agent::parse("agent.toml", text)) {
        Ok(config) => {
            if let Ok(printed) = config.print() {
                let again = Agent::parse("agent.toml", &printed).expect("a configuration as it is printed");
                assert_eq!(again.print().as_ref(), Ok(&printed));
            }
        }
        Err(error) => check_report(&error, 1),
    }
}

pub(super) fn controller(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    match input.parse(|| perilog_host::config::parse::<Controller>("controller.toml", text)) {
        Ok(config) => {
            let printed = config.to_toml();
            let again: Controller =
                perilog_host::config::parse("controller.toml", &printed).expect("a configuration as it is printed");
            assert_eq!(again.to_toml(), printed);
        }
        Err(error) => check_report(&error, 1),
    }
}

pub(super) fn edge(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    if let Err(error) = input.parse(|| perilog_host::config::parse::<Edge>("flux.toml", text)) {
        check_report(&error, 1);
    }
}

/// Files between NULs: the main file, then its drop-ins. The first byte says whose.
pub(super) fn drop_ins(input: &Input<'_>) {
    let Some((whose, text)) = input.bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let names: Vec<String> = (0..).zip(text.split('\0')).map(|(at, _)| format!("{at}.toml")).collect();
    let files: Vec<(&Path, &str)> = names.iter().map(Path::new).zip(text.split('\0')).collect();
    let error = input.parse(|| match whose % 3 {
        0 => configuration::<Agent>(&files).err(),
        1 => configuration::<Controller>(&files).err(),
        _ => configuration::<Edge>(&files).err(),
    });
    if let Some(error) = error {
        check_report(&error, files.len());
    }
}

/// Checks the report of a configuration's problems: it is bounded, and no byte of the file reaches a terminal as a
/// command.
fn check_report(error: &ConfigError, files: usize) {
    assert!(!error.problems().is_empty() && error.problems().len() <= PROBLEMS * (files + 1));
    let text = error.to_string();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}

/// All records of a spool: each line is parsed as each of them.
pub(super) fn spool(input: &Input<'_>) {
    let steps = input.parse(|| perilog_agent::fuzz::steps(input.bytes));
    assert!(steps.len() <= input.bytes.len());
    for line in input.parts(b'\n') {
        same::<Intent>(input, line);
        same::<Claim>(input, line);
        same::<RunResult>(input, line);
        same::<Ended>(input, line);
        same::<Tombstone>(input, line);
        same::<StepRecord>(input, line);
        same::<BootRecord>(input, line);
        same::<AcceptedEpoch>(input, line);
    }
}

/// Parses a record, and its own text again.
fn same<T: DeserializeOwned + Serialize + PartialEq + Debug>(input: &Input<'_>, line: &[u8]) {
    if let Ok(record) = input.parse(|| serde_json::from_slice::<T>(line)) {
        let text = serde_json::to_string(&record).expect("a record is JSON");
        assert_eq!(serde_json::from_str::<T>(&text).ok().as_ref(), Some(&record), "{text}");
    }
}

/// Lines: an intent, a claim, a result, the facts of a unit, then steps. A line that is none of that counts as missing.
pub(super) fn judged(input: &Input<'_>) {
    let mut lines = input.parts(b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let Ok(intent) = serde_json::from_slice::<Intent>(line()) else { return };
    let claim: Option<Claim> = serde_json::from_slice(line()).ok();
    let result: Option<RunResult> = serde_json::from_slice(line()).ok();
    let unit: Option<UnitFacts> = serde_json::from_slice(line()).ok().map(facts);
    let steps: Vec<StepRecord> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for cancelled in [false, true] {
        let evidence = Evidence {
            unit: unit.as_ref(),
            claim: claim.as_ref(),
            result: result.as_ref(),
            steps: &steps,
            tails: &[],
            lingering: &[],
            cancelled,
        };
        let ended = input.parse(|| judge(&evidence, &intent, 1_800_000_000_000));
        if matches!(ended.outcome, Outcome::Ok) {
            // Unknown is never success: a runner claimed the task, or systemd knows its unit; a claim of the agent ends
            // it otherwise.
            assert!(matches!(claim, Some(Claim::Runner(_)) | None), "{claim:?} is ok");
            let begun = steps.iter().any(|step| matches!(step, StepRecord::Begin { .. }));
            assert!(result.is_some() || unit.is_some() || begun, "ok without evidence");
        }
    }
}

/// Facts of a unit in a form that can be parsed.
#[derive(Deserialize)]
struct Facts(bool, bool, String, String, String, u32, i32, i32, Option<InvocationId>);

fn facts(facts: Facts) -> UnitFacts {
    let Facts(loaded, job_pending, active, sub, result, main_pid, main_code, main_status, invocation) = facts;
    let known = UnitFacts { loaded, job_pending, active, sub, result, main_pid, ..UnitFacts::default() };
    UnitFacts { main_code, main_status, invocation, ..known }
}

pub(super) fn unit_drop_ins(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let paths: Vec<&str> = text.split('\n').collect();
    let found = input.parse(|| Overriding::among(paths.iter().copied()));
    assert!(found.of_tasks.len() + found.of_others.len() <= paths.len());
    assert!(found.of_tasks.iter().chain(&found.of_others).all(|path| paths.contains(&path.as_str())));
}
