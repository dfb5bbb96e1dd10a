//! `perilog skew`: scripts that differ between nodes.

use perilog_core::{ActionName, HostList, Span};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values, when};

/// Scripts that differ between nodes, by their last run there
///
/// Compares, for each node and action, the digests of the scripts that ran in the newest task within --since. The most
/// common version comes first, then the others; `missing` stands for nodes on which the action ran without that script.
/// Exits with 1 if versions differ. With --quiet: the nodes that differ from the majority.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this action.
    #[arg(value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// Only actions that began since this time: how long ago (90s, 5m, 2h, 7d, 1w; infinity for all), a date, or a date
    /// and time.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = when::ago)]
    since: Span,
}

/// Number of SHA-256 digits that distinguish two scripts for people; --json has all digits.
const DIGEST: usize = 12;

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let answer: Answer<Skew> =
        endpoint.ask("Skew", &json!({ "action": args.action, "since": args.since.to_exact() }))?;
    out.show(&answer)?;
    Ok(if answer.body.rows.is_empty() { Exit::Ok } else { Exit::Failed })
}

#[derive(Debug, Deserialize)]
struct Skew {
    rows: Vec<Row>,
    nodes: u64,
    scripts: u64,
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct Row {
    action: String,
    script: String,
    versions: Vec<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    digest: Option<String>,
    nodes: u64,
    hosts: HostList,
    last_ms: u64,
}

impl Render for Answer<Skew> {
    fn table(&self, page: &mut Page) {
        let Skew { rows, nodes, scripts, truncated } = &self.body;
        let (seen, over) = (text::count(*scripts, "script"), text::count(*nodes, "node"));
        match (rows.is_empty(), nodes) {
            (true, 0) => page.line("no task has ended in that time: there is nothing to compare"),
            (true, _) => page.line(format_args!("{seen} on {over}: all the same")),
            (false, _) => {
                let heads = ["ACTION", "SCRIPT", "VERSION", "COUNT", "LAST RAN", "NODES"];
                let mut columns = Columns::new(heads).right(3).right(4);
                for row in rows {
                    for (at, version) in row.versions.iter().enumerate() {
                        let first = |name: &str| cell(if at == 0 { text::line(name) } else { String::new() });
                        let style = if at == 0 { style::PLAIN } else { style::CARE };
                        let digest = version.digest.as_deref().map_or_else(
                            || "missing".to_owned(),
                            |digest| text::line(digest).chars().take(DIGEST).collect(),
                        );
                        let age = page.now_ms.saturating_sub(version.last_ms);
                        columns.row([
                            first(&row.action),
                            first(&row.script),
                            styled(digest, style),
                            cell(version.nodes.to_string()),
                            cell(format!("{} ago", text::age(age))),
                            styled(version.hosts.to_string(), style),
                        ]);
                    }
                }
                page.columns(columns);
                let differ = match rows.len() {
                    1 => "1 script differs".to_owned(),
                    n => format!("{n} scripts differ"),
                };
                page.line(style::QUIET.style(format!("{differ} between nodes, of {seen} on {over}.")));
            }
        }
        if *truncated {
            page.line(
                style::CARE.style("only the newest tasks were compared; a shorter --since compares all of its tasks"),
            );
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let odd = self.body.rows.iter().flat_map(|row| row.versions.iter().skip(1));
        let mut names: Vec<&str> = odd.flat_map(|version| version.hosts.iter()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().for_each(|name| page.line(text::line(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::{people, render};

    fn answer(raw: Value) -> Answer<Skew> {
        Answer { body: Skew::deserialize(&raw).unwrap(), raw }
    }

    #[test]
    fn the_odd_ones_are_listed_below_what_most_have() {
        let version = |digest: Option<&str>, nodes: u64, hosts: &str, last_ms: u64| -> Value {
            json!({"digest": digest, "nodes": nodes, "hosts": hosts, "last_ms": last_ms})
        };
        let (most, odd) = ("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "e3b0c44298fc1c14");
        let versions =
            [version(Some(most), 2, "n[0,2]", 60_000), version(Some(odd), 1, "n7", 0), version(None, 1, "n3", 61_000)];
        let some = answer(json!({"rows": [{"action": "prolog", "script": "10-mount.sh", "versions": versions}],
            "nodes": 4, "scripts": 9, "truncated": false}));
        let [table, json, quiet] = render(&some, 120_000);
        assert_eq!(
            table,
            "ACTION  SCRIPT       VERSION       COUNT  LAST RAN  NODES\n\
             prolog  10-mount.sh  5891b5b522d5      2    1m ago  n[0,2]\n\
             \u{20}                    e3b0c44298fc      1    2m ago  n7\n\
             \u{20}                    missing           1   59s ago  n3\n\
             1 script differs between nodes, of 9 scripts on 4 nodes.\n"
        );
        assert_eq!((json, quiet.as_str()), (some.raw.to_string(), "n3\nn7\n"));
        let none = |nodes: u64| answer(json!({"rows": [], "nodes": nodes, "scripts": 3, "truncated": false}));
        assert_eq!(people(&none(4), 0), "3 scripts on 4 nodes: all the same\n");
        assert!(people(&none(0), 0).contains("nothing to compare"));
    }
}
