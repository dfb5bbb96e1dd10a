//! `perilog jobs`: the newest actions of all jobs, open and ended, with what went wrong.

use perilog_core::{ActionName, Attempt, HostList, JobId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell, word};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values, when};

/// Recent jobs, ended or not: what ran and what failed
///
/// A line for each prolog, epilog or other action, the newest first: when it began, its verdict (open: not ended yet),
/// how long it took, its nodes, and what failed where. For one job: perilog show. For unfinished work: perilog ps. With
/// --quiet: the job ids.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this action.
    #[arg(value_name = "ACTION", value_parser = values::action_of_all)]
    action: Option<ActionName>,
    /// Only actions that began or ended since this time: how long ago (90s, 5m, 2h, 7d, 1w; infinity), today,
    /// yesterday, a date, or a date and time.
    #[arg(short = 'S', long = "since", value_name = "TIME", default_value = "24h", value_parser = when::parse)]
    since_ms: u64,
    /// Only actions whose verdict is not ok.
    #[arg(long)]
    failed: bool,
    /// At most so many lines.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    lines: u32,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let Args { action, since_ms, failed, lines } = args;
    let parameters = json!({"action": action, "since_ms": since_ms, "failed": failed, "limit": lines});
    let mut answer: Answer<Jobs> = endpoint.ask_all("Jobs", &parameters, &["/jobs"])?;
    answer.raw["truncated"] = answer.body.truncated.into();
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Jobs {
    jobs: Vec<Row>,
    #[serde(default)]
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct Row {
    job: JobId,
    attempt: Attempt,
    action: String,
    state: String,
    began_ms: u64,
    ended_ms: Option<u64>,
    hosts: HostList,
    bad: HostList,
    #[serde(default)]
    result: Option<String>,
    #[serde(default)]
    script: Option<String>,
    #[serde(default)]
    line: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

impl Row {
    /// Returns the nodes of the action, and what failed on which of them.
    fn reported(&self) -> String {
        let fault = self.result.as_ref().map(|result| {
            let script = self.script.as_deref().map(|script| format!("{}: ", text::line(script))).unwrap_or_default();
            let line = self.line.as_deref().map(|line| format!(": {}", text::quoted(line))).unwrap_or_default();
            format!("{script}{}{line}", text::line(result))
        });
        let why = fault.or_else(|| self.why.as_deref().map(text::line)).filter(|why| !why.is_empty());
        match why {
            Some(why) if self.bad.is_empty() || self.bad == self.hosts => format!("{}: {why}", self.hosts),
            Some(why) => format!("{} of {}: {why}", HostList::sorted(self.bad.iter()), self.hosts),
            None => self.hosts.to_string(),
        }
    }
}

impl Render for Answer<Jobs> {
    fn table(&self, page: &mut Page) {
        let Jobs { jobs, truncated } = &self.body;
        if jobs.is_empty() {
            page.line("no action began or ended in that time; to look further back: perilog jobs --since 7d");
            return;
        }
        let mut columns = Columns::new(["BEGAN", "JOB", "ATTEMPT", "ACTION", "STATE", "TOOK", "NODES"]).right(5);
        for row in jobs {
            let elapsed = row.ended_ms.map_or_else(
                || text::age(page.now_ms.saturating_sub(row.began_ms)),
                |ended_ms| text::elapsed(ended_ms.saturating_sub(row.began_ms)),
            );
            let attempt = if row.attempt == Attempt::FIRST { String::new() } else { row.attempt.to_string() };
            columns.row([
                cell(when::second(row.began_ms)),
                cell(row.job.as_str()),
                cell(attempt),
                cell(text::line(&row.action)),
                word(&text::line(&row.state)),
                cell(elapsed),
                cell(row.reported()),
            ]);
        }
        page.columns(columns);
        if *truncated {
            let shown = text::count(jobs.len() as u64, "action");
            page.line(style::CARE.style(format!("These are the newest {shown}. Show more of them with -n.")));
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let mut seen = std::collections::HashSet::new();
        for row in self.body.jobs.iter().filter(|row| seen.insert(&row.job)) {
            page.line(&row.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    #[test]
    fn what_failed_is_shown_beside_its_nodes() {
        let row = |job: &str, attempt: &str, state: &str, more: Value| {
            let mut row = json!({"job": job, "attempt": attempt, "userid": null, "action": "prolog", "state": state,
                                 "began_ms": 60_000, "ended_ms": 74_500, "hosts": "n[0-3]", "bad": ""});
            if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
                row.extend(more);
            }
            row
        };
        let raw = json!({"jobs": [
            row("f3", "1", "open", json!({"ended_ms": null})),
            row("f2", "0", "failed", json!({"bad": "n3", "result": "failed (exit 7)", "script": "20-gpu",
                                            "line": "no\u{1b}[2J device"})),
            row("f2", "0", "lost", json!({"bad": "n[0-3]", "result": "lost (offline)"})),
            row("f1", "0", "cancelled", json!({"why": "by an operator"})),
            row("f1", "0", "ok", json!({})),
        ], "truncated": true});
        let [table, json, quiet] =
            render(&Answer { body: Jobs::deserialize(&raw).unwrap(), raw: raw.clone() }, 100_000);
        let began = when::second(60_000);
        let lines: Vec<String> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                format!("{began} f3 1 prolog open 40s n[0-3]"),
                format!(
                    "{began} f2 prolog failed 14.5s n3 of n[0-3]: 20-gpu: failed (exit 7): \"no\\u{{1b}}[2J device\""
                ),
                format!("{began} f2 prolog lost 14.5s n[0-3]: lost (offline)"),
                format!("{began} f1 prolog cancelled 14.5s n[0-3]: by an operator"),
                format!("{began} f1 prolog ok 14.5s n[0-3]"),
                "These are the newest 5 actions. Show more of them with -n.".to_owned(),
            ]
        );
        assert_eq!((json, quiet.as_str()), (raw.to_string(), "f3\nf2\nf1\n"));
    }
}
