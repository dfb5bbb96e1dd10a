//! Report of `cargo xtask mutate`, for people or as JSON for programs. People get each defect's result as soon as its
//! hunt is over, and at the end the number of found defects and the names of the others.

use serde_json::{Value, json};

use super::Defect;

/// Result of the hunt for a defect: the seed or the test that found it, or nothing.
#[derive(Debug)]
pub(super) enum Found {
    Seed { seed: u64, violation: String, histories: u64, seconds: f64 },
    Test { name: String, seconds: f64 },
    Nothing { seconds: f64, why: String },
}

/// A seed whose history violates an invariant even without a defect.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) seed: u64,
    pub(super) violation: String,
}

impl Found {
    pub(super) fn nothing(seconds: f64, why: &str) -> Self {
        Self::Nothing { seconds, why: why.to_owned() }
    }

    pub(super) const fn is_red(&self) -> bool {
        !matches!(self, Self::Nothing { .. })
    }
}

pub(super) fn line(defect: &Defect, found: &Found) -> String {
    let Defect { name, wrong, .. } = defect;
    let by = match found {
        Found::Seed { seed, violation, histories, seconds } => {
            let plural = if *histories == 1 { "y" } else { "ies" };
            format!("seed {seed}, after {histories} histor{plural}, {seconds:.1} s\n    {violation}")
        }
        Found::Test { name, seconds } => format!("{name}, {seconds:.1} s with it and without"),
        Found::Nothing { seconds, why } => format!("NOT FOUND in {seconds:.1} s: {why}"),
    };
    format!("{name}: {wrong}\n    {by}")
}

pub(super) fn end(defects: &[Defect], found: &[Found], alarms: &[Alarm]) -> String {
    let missed = defects.iter().zip(found).filter(|(_, found)| !found.is_red());
    let missed: Vec<&str> = missed.map(|(defect, _)| defect.name.as_str()).collect();
    let all = defects.len();
    let mut text = match missed.as_slice() {
        [] => format!("{all} of {all} defects found"),
        missed => format!("{} of {all} defects found; not found: {}", all - missed.len(), missed.join(", ")),
    };
    for Alarm { seed, violation } in alarms {
        text.push_str(&format!("\nVIOLATED without any defect by seed {seed}: {violation}"));
    }
    text
}

pub(super) fn json(defects: &[Defect], found: &[Found], alarms: &[Alarm]) -> Value {
    let row = |(defect, found): (&Defect, &Found)| {
        let Defect { name, wrong, breaks, .. } = defect;
        let by = match found {
            Found::Seed { seed, violation, histories, seconds } => {
                json!({"seed": seed, "violation": violation, "histories": histories, "seconds": seconds})
            }
            Found::Test { name, seconds } => json!({"test": name, "seconds": seconds}),
            Found::Nothing { seconds, why } => json!({"why": why, "seconds": seconds}),
        };
        json!({"defect": name, "wrong": wrong, "breaks": breaks, "found": found.is_red(), "by": by})
    };
    let alarm = |alarm: &Alarm| json!({"without": true, "seed": alarm.seed, "violation": alarm.violation});
    defects.iter().zip(found).map(row).chain(alarms.iter().map(alarm)).collect()
}
