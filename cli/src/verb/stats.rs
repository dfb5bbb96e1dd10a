//! `perilog stats`: how often each action and script ran and failed, and the durations.

use perilog_core::{ActionName, Span};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Cell, Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values, when};

/// How often scripts ran and failed, and how long they took
///
/// A line for each script of each action, over the actions that began within --since. The first line of an action is
/// for its whole tasks; FAILED counts those whose outcome is not ok. In the line of a script, each try counts. Not
/// counted are unfinished tasks, tasks that the controller has forgotten (retention), and tasks without a known
/// duration (refused, or lost with their node). With --quiet: ACTION SCRIPT COUNT FAILED MEDIAN-MS, with `-` as SCRIPT
/// for whole tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this action.
    #[arg(value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// Only actions that began since this time: how long ago (90s, 5m, 2h, 7d, 1w; infinity for all), a date, or a date
    /// and time.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = when::ago)]
    since: Span,
    /// `node`: a line for each node instead of each script, for whole tasks; the worst nodes of each action first.
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Node,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let mut parameters = json!({ "action": args.action, "since": args.since.to_exact() });
    if args.by.is_some() {
        // Leaves the parameter out for older controllers, which refuse it.
        parameters["by"] = "node".into();
    }
    let answer: Answer<Stats> = endpoint.ask("Stats", &parameters)?;
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Stats {
    rows: Vec<Row>,
    tasks: u64,
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct Row {
    action: String,
    /// The node of the row; `None`: the row sums up all nodes.
    #[serde(default)]
    host: Option<String>,
    script: Option<String>,
    count: u64,
    failed: u64,
    timed_out: u64,
    min_ms: u64,
    median_ms: u64,
    p95_ms: u64,
    max_ms: u64,
}

impl Render for Answer<Stats> {
    fn table(&self, page: &mut Page) {
        if self.body.rows.is_empty() {
            page.line("no task with a known duration has ended in an action that began in this time (--since)");
            return;
        }
        let what = if self.body.rows.iter().any(|row| row.host.is_some()) { "NODE" } else { "SCRIPT" };
        let heads = ["ACTION", what, "COUNT", "FAILED", "TIMEOUT", "MIN", "MEDIAN", "P95", "MAX"];
        let mut columns = (2..9).fold(Columns::new(heads), Columns::right);
        for row in &self.body.rows {
            let elapsed = |ms| cell(text::elapsed(ms));
            let (action, script) = match &row.script {
                None if row.host.is_some() => (cell(text::line(&row.action)), cell(row.name())),
                None => (styled(text::line(&row.action), style::STRONG), styled("(all of it)", style::QUIET)),
                Some(script) => (cell(""), cell(text::line(script))),
            };
            let (failed, late) = (bad(row.failed), if row.timed_out > 0 { bad(row.timed_out) } else { cell("") });
            let count = cell(row.count.to_string());
            let times = [row.min_ms, row.median_ms, row.p95_ms, row.max_ms].map(elapsed);
            let [min, median, p95, max] = times;
            columns.row([action, script, count, failed, late, min, median, p95, max]);
        }
        page.columns(columns);
        if self.body.truncated {
            let tasks = text::count(self.body.tasks, "task");
            page.line(
                style::CARE
                    .style(format!("only the newest {tasks} were counted; a shorter --since counts all of its tasks")),
            );
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        for row in &self.body.rows {
            page.line(format_args!(
                "{} {} {} {} {}",
                text::line(&row.action),
                row.name(),
                row.count,
                row.failed,
                row.median_ms
            ));
        }
    }
}

impl Row {
    /// Returns the node or the script of the row; `-` for a row about whole tasks.
    fn name(&self) -> String {
        self.host.as_deref().or(self.script.as_deref()).map_or_else(|| "-".to_owned(), text::line)
    }
}

fn bad(count: u64) -> Cell {
    styled(count.to_string(), if count > 0 { style::BAD } else { style::QUIET })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::{people, render};

    fn answer(raw: Value) -> Answer<Stats> {
        Answer { body: Stats::deserialize(&raw).unwrap(), raw }
    }

    #[test]
    fn an_action_comes_before_its_scripts() {
        let row = |script: Option<&str>, failed: u64, timed_out: u64| {
            json!({"action": "prolog", "script": script, "count": 400, "failed": failed, "timed_out": timed_out,
                "min_ms": 8, "median_ms": 420, "p95_ms": 4_260, "max_ms": 252_000})
        };
        let some =
            answer(json!({"rows": [row(None, 2, 1), row(Some("10-mount.sh"), 2, 0)], "tasks": 400, "truncated": true}));
        let [table, json, quiet] = render(&some, 0);
        assert_eq!(
            table,
            "ACTION  SCRIPT       COUNT  FAILED  TIMEOUT  MIN  MEDIAN   P95  MAX\n\
             prolog  (all of it)    400       2        1  8ms   420ms  4.2s  4m12s\n\
             \u{20}       10-mount.sh    400       2           8ms   420ms  4.2s  4m12s\n\
             only the newest 400 tasks were counted; a shorter --since counts all of its tasks\n"
        );
        assert_eq!(
            (json, quiet.as_str()),
            (some.raw.to_string(), "prolog - 400 2 420\nprolog 10-mount.sh 400 2 420\n")
        );
        let mut by_node = row(None, 2, 0);
        by_node["host"] = "n3".into();
        let by_node = answer(json!({"rows": [by_node], "tasks": 400, "truncated": false}));
        let [table, _, quiet] = render(&by_node, 0);
        assert_eq!(
            (table.as_str(), quiet.as_str()),
            (
                "ACTION  NODE  COUNT  FAILED  MIN  MEDIAN   P95  MAX\n\
                 prolog  n3      400       2  8ms   420ms  4.2s  4m12s\n",
                "prolog n3 400 2 420\n"
            )
        );
        let none = answer(json!({"rows": [], "tasks": 0, "truncated": false}));
        assert_eq!(
            people(&none, 0),
            "no task with a known duration has ended in an action that began in this time (--since)\n"
        );
    }
}
