//! `perilog ps`: unfinished work, oldest first, with its age and the reason to wait.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use perilog_core::Span;
use perilog_core::controller::view::PsRow;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell, word};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::verb::recover;
use crate::{style, text, values};

/// Unfinished work: age, state, reason
///
/// The oldest first; ranks in the same state share a line. --held adds what running jobs hold. A job that holds named
/// resources but no rank is always shown, because its resource manager may have forgotten it. With --quiet: the job
/// ids.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(hide = true, value_name = "NAME", value_parser = elsewhere)]
    name: Option<Infallible>,
    /// Only work older than this.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    older_than: Option<Span>,
    /// Also list what jobs and actions hold, and until when.
    #[arg(long)]
    held: bool,
    /// List the attempts that are abandoned since the controller's store was restored or lost, each with the command to
    /// type if its job is over.
    #[arg(long, conflicts_with_all = ["older_than", "held"])]
    abandoned: bool,
}

/// Refuses any name as an argument of `ps`. The error names the verbs that show a node or a job.
fn elsewhere(name: &str) -> Result<Infallible, String> {
    let name = text::line(name);
    Err(format!("perilog ps takes no name; for a node: perilog why {name}; for a job: perilog show {name}"))
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if args.abandoned {
        recover::list(endpoint, out)?;
        return Ok(Exit::Ok);
    }
    let older_than = args.older_than.map(Span::to_exact);
    let answer: Answer<Ps> =
        endpoint.ask_all("Ps", &json!({ "older_than": older_than, "held": args.held }), &["/rows"])?;
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
pub(super) struct Ps {
    pub(super) rows: Vec<PsRow>,
    /// Notes for the operator about the whole list, such as a recovery.
    #[serde(default)]
    notes: Vec<String>,
}

/// Returns the hosts and named resources of a row, such as `n[0-2],rabbit1`.
pub(super) fn over(row: &PsRow) -> String {
    let hosts = row.hosts.to_string();
    let names = row.resources.iter().map(ToString::to_string);
    let all: Vec<String> = std::iter::once(hosts).filter(|hosts| !hosts.is_empty()).chain(names).collect();
    all.join(",")
}

impl Render for Answer<Ps> {
    fn table(&self, page: &mut Page) {
        for note in &self.body.notes {
            page.line(style::CARE.style(text::line(note)));
        }
        let mut rows: Vec<&PsRow> = self.body.rows.iter().collect();
        if rows.is_empty() {
            page.line("nothing waits, nothing runs");
            return;
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.age_ms));
        // The verb shows no attempts, unless two attempts of one job are in the list.
        let mut attempts = HashMap::new();
        let several = rows
            .iter()
            .filter(|row| row.job.is_some())
            .any(|row| *attempts.entry(&row.job).or_insert(row.attempt) != row.attempt);
        let mut columns = Columns::new(["AGE", "JOB", "ATTEMPT", "ACTION", "NODES", "STATE", "WHY"]).right(0);
        for row in rows {
            let attempt = if several { row.attempt.to_string() } else { String::new() };
            let why = if row.local { format!("{} (a local task)", text::line(&row.why)) } else { text::line(&row.why) };
            columns.row([
                cell(text::age(row.age_ms)),
                cell(row.job.as_ref().map_or("-", perilog_core::JobId::as_str)),
                cell(attempt),
                cell(row.action.as_str()),
                cell(over(row)),
                word(&text::line(&row.state)),
                cell(why),
            ]);
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let mut seen = HashSet::new();
        for job in self.body.rows.iter().filter_map(|row| row.job.as_ref()).filter(|job| seen.insert(*job)) {
            page.line(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_pointed_to_its_own_verb() {
        let error = crate::command().try_get_matches_from(["perilog", "ps", "n2"]).unwrap_err().to_string();
        assert!(error.contains("for a node: perilog why n2; for a job: perilog show n2"), "{error}");
    }
    use crate::out::tests::{people, render};

    fn answer(rows: Value) -> Answer<Ps> {
        let raw = json!({ "rows": rows });
        Answer { body: Ps::deserialize(&raw).unwrap(), raw }
    }

    #[test]
    fn the_oldest_comes_first_and_empty_is_shown() {
        let row = |job: &str, attempt: &str, state: &str, why: &str, age_ms: u64| {
            json!({"job": job, "attempt": attempt, "action": "prolog", "ranks": "0-2", "hosts": "n[0-2]",
                   "state": state, "why": why,
                   "age_ms": age_ms, "local": false})
        };
        let some = answer(json!([
            row("f1", "0", "running", "20-gpu.sh (2 of 5): \u{1b}[2Jtesting", 12_000),
            row("f27", "0", "overdue", "10-mount.sh is past its limit of 10m", 7_380_000)
        ]));
        let [table, json, quiet] = render(&some, 0);
        assert_eq!(
            table,
            "  AGE  JOB  ACTION  NODES   STATE    WHY\n\
             2h03m  f27  prolog  n[0-2]  overdue  10-mount.sh is past its limit of 10m\n\
             \u{20} 12s  f1   prolog  n[0-2]  running  20-gpu.sh (2 of 5): \\u{1b}[2Jtesting\n"
        );
        assert_eq!(json, some.raw.to_string());
        assert_eq!(quiet, "f1\nf27\n");
        assert_eq!(people(&answer(json!([])), 0), "nothing waits, nothing runs\n");
        let requeued = answer(json!([row("f1", "0", "running", "x", 1), row("f1", "1", "waiting", "y", 0)]));
        assert!(people(&requeued, 0).contains("ATTEMPT"));
    }
}
