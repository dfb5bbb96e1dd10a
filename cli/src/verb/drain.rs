//! `perilog drain` and `perilog undrain`: drain nodes, lift drains, and show the drained nodes, each with the time and
//! the reason of its drain.

use std::collections::{BTreeMap, HashMap, HashSet};

use perilog_core::HostList;
use perilog_core::controller::view::{DrainView, PsRow};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ps::Ps;
use crate::columns::{Columns, cell, word};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render, aside};
use crate::{text, values};

/// Show drained nodes, or drain nodes
///
/// Without arguments: shows the drained nodes. Nodes with the same state, reasons and author share a line, with the
/// time of the first of them. With nodes and a reason: drains the nodes. A drained node keeps its first reason; the
/// newest later one is on a second line, with `also` as STATE. With --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// The reason, in words.
    #[arg(value_name = "REASON", requires = "nodes")]
    reason: Option<String>,
    /// The reason, in words; the same as REASON.
    #[arg(long = "reason", value_name = "TEXT", id = "why", conflicts_with = "reason", requires = "nodes")]
    why: Option<String>,
    /// Drain also hosts that have never connected to the controller.
    #[arg(long, requires = "nodes")]
    force: bool,
}

/// Undrain nodes
///
/// Nodes that are not drained stay as they are; the output names them.
#[derive(Debug, clap::Args)]
pub(crate) struct Lift {
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: HostList,
    /// Undrain at once, without the drain hook; for hosts that the resource manager does not know, or that an operator
    /// undrained there.
    #[arg(long)]
    forget: bool,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let Some(nodes) = args.nodes else {
        out.show(&Drained::of(endpoint, endpoint.ask_all("Drains", &json!({}), &["/drains"])?)?)?;
        return Ok(Exit::Ok);
    };
    let Some(reason) = args.reason.or(args.why) else {
        let text = format!("give the reason of the drain: perilog drain {nodes} \"REASON\"");
        return Err(Fault::Usage(text));
    };
    let mut parameters = json!({"nodes": nodes, "reason": reason});
    // Leaves out the parameter for older controllers, which refuse it.
    if args.force {
        parameters["force"] = true.into();
    }
    let answer: Answer<Changed> = endpoint.ask("Drain", &parameters)?;
    let already = "drained already; the first reason stays, and yours is recorded as a later one";
    out.show(&Report { nodes, done: "drained", already, answer })?;
    Ok(Exit::Ok)
}

pub(crate) fn lift(args: Lift, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let mut parameters = json!({"nodes": args.nodes});
    // Leaves out the parameter for older controllers, which refuse it.
    if args.forget {
        parameters["forget"] = true.into();
    }
    let answer: Answer<Changed> = endpoint.ask("Undrain", &parameters)?;
    out.show(&Report { nodes: args.nodes.clone(), done: "drain lifted", already: "not drained", answer })?;
    // The drain is lifted in any case, so a controller that goes away now is no failure.
    if let Ok(open) = endpoint.ask_all::<Ps>("Ps", &json!({}), &["/rows"]) {
        let lifted: HashSet<&str> = args.nodes.iter().collect();
        open.body.rows.iter().filter_map(|row| still_there(row, &lifted)).for_each(aside);
    }
    Ok(Exit::Ok)
}

/// The reply to `Drain` or `Undrain`.
#[derive(Debug, Deserialize)]
struct Changed {
    /// Hosts that were drained before, or had no drain to lift. Empty from an older controller.
    #[serde(default)]
    already: HostList,
    /// Hosts whose drain an earlier request lifted, which the drain hook has not carried out yet.
    #[serde(default)]
    lifting: HostList,
}

/// The reply to `Drain` or `Undrain`, for output: a line for the hosts that changed, and a line for those that did not.
struct Report {
    nodes: HostList,
    done: &'static str,
    already: &'static str,
    answer: Answer<Changed>,
}

impl Render for Report {
    fn table(&self, page: &mut Page) {
        let Changed { already, lifting } = &self.answer.body;
        let before: HashSet<&str> = already.iter().chain(lifting.iter()).collect();
        let done = HostList::sorted(self.nodes.iter().filter(|host| !before.contains(host)));
        if !done.is_empty() {
            page.line(format_args!("{done}: {}", self.done));
        }
        if !already.is_empty() {
            page.line(format_args!("{already}: {}", self.already));
        }
        if !lifting.is_empty() {
            page.line(format_args!(
                "{lifting}: undrained already, but the drain hook has not carried that out; to undrain without the \
                 hook: perilog undrain {lifting} --forget"
            ));
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

/// Returns a warning if `row`, a row of `perilog ps`, shows an overdue script or a lingering process on a host of
/// `lifted`, the hosts whose drain was just lifted; otherwise `None`.
fn still_there(row: &PsRow, lifted: &HashSet<&str>) -> Option<String> {
    let job = row.job.as_ref().filter(|_| matches!(row.state.as_str(), "overdue" | "lingering"))?;
    let there = HostList::from_names(row.hosts.iter().filter(|host| lifted.contains(host))).ok()?;
    let (state, age, why) = (&row.state, text::age(row.age_ms), text::line(&row.why));
    let first = there.get(0)?;
    Some(format!(
        "{there}: {} of job {job} has been {state} there for {age}: {why}; see perilog why {first}",
        row.action
    ))
}

#[derive(Debug, Deserialize)]
struct Drains {
    drains: Vec<DrainView>,
}

/// Returns the state of a drain: `draining`, `drained` or `lifting`.
pub(super) const fn state(lifted: bool, confirmed: bool) -> &'static str {
    match (lifted, confirmed) {
        (true, _) => "lifting",
        (false, true) => "drained",
        (false, false) => "draining",
    }
}

struct Drained(Answer<Drains>);

impl Drained {
    /// Joins rows of several pages that differ in nothing but the hosts.
    fn of(endpoint: &Endpoint, mut answer: Answer<Drains>) -> Result<Self, Fault> {
        let Some(Value::Array(rows)) = answer.raw.get_mut("drains") else { return Ok(Self(answer)) };
        let mut alike: Vec<(Value, Vec<String>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (mut row, view) in std::mem::take(rows).into_iter().zip(&answer.body.drains) {
            row["hosts"] = Value::Null;
            let place = *places.entry(row.to_string()).or_insert(alike.len());
            if place == alike.len() {
                alike.push((row, Vec::new()));
            }
            alike[place].1.extend(view.hosts.iter().map(str::to_owned));
        }
        rows.extend(alike.into_iter().map(|(mut row, hosts)| {
            row["hosts"] = json!(HostList::sorted(hosts.iter().map(String::as_str)));
            row
        }));
        Ok(Self(endpoint.read(answer.raw)?))
    }
}

impl Render for Drained {
    fn table(&self, page: &mut Page) {
        let drains = &self.0.body.drains;
        if drains.is_empty() {
            page.line("no node is drained");
            return;
        }
        let mut alike: BTreeMap<_, Vec<&DrainView>> = BTreeMap::new();
        for drain in drains {
            let again = drain.again.as_ref().map(|again| (&again.reason, again.by));
            alike
                .entry((state(drain.lifted, drain.confirmed), &drain.reason, drain.by, again))
                .or_default()
                .push(drain);
        }
        let first = |group: &[&DrainView]| group.iter().map(|drain| drain.since_ms).min().unwrap_or(0);
        let mut alike: Vec<_> = alike.into_iter().collect();
        alike.sort_by_key(|(_, group)| first(group));
        let mut columns = Columns::new(["SINCE", "STATE", "COUNT", "NODES", "BY", "REASON"]).right(2);
        for ((state, reason, by, again), group) in alike {
            let nodes = HostList::sorted(group.iter().flat_map(|drain| drain.hosts.iter()));
            let mut row = |at_ms, state, by: Option<u32>, reason: &str| {
                let by = by.map_or_else(|| "perilog".to_owned(), |uid| format!("uid {uid}"));
                let (since, count) = (cell(crate::when::second(at_ms)), cell(nodes.len().to_string()));
                columns.row([since, word(state), count, cell(nodes.to_string()), cell(by), cell(text::line(reason))]);
            };
            row(first(&group), state, by, reason);
            if let Some((reason, by)) = again {
                let at_ms = group.iter().filter_map(|drain| Some(drain.again.as_ref()?.at_ms)).min();
                row(at_ms.unwrap_or(0), "also", by, reason);
            }
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.0.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        HostList::sorted(self.0.body.drains.iter().flat_map(|drain| drain.hosts.iter()))
            .iter()
            .for_each(|host| page.line(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;
    use crate::when;

    /// Regression test: 321 drains with four reasons were 322 lines, in the order m1, m10, m100.
    #[test]
    fn drains_with_one_reason_share_a_line() {
        let drain = |host: String, since_ms: u64, reason: &str, again: Value| {
            json!({"hosts": host, "since_ms": since_ms, "reason": reason, "by": null, "confirmed": true,
                   "lifted": false, "again": again})
        };
        let mut drains: Vec<Value> =
            (0..300).map(|n| drain(format!("m{n}"), 60_000 + n, "offline", Value::Null)).collect();
        drains.push(drain("n2".to_owned(), 5_000, "dimm", Value::Null));
        let again = json!({"reason": "epilog: 10-umount: failed (exit 1)", "by": 0, "at_ms": 70_000});
        drains.push(drain("m300".to_owned(), 90_000, "offline", again));
        drains.sort_by_key(|drain| drain["hosts"].as_str().unwrap().to_owned());
        let raw = json!({ "drains": drains });
        let [table, _, quiet] = render(&Drained(Answer { body: Drains::deserialize(&raw).unwrap(), raw }), 0);
        let [first, second, third, also] = [5_000, 60_000, 90_000, 70_000].map(when::second);
        let lines: Vec<String> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                format!("{first} drained 1 n2 perilog dimm"),
                format!("{second} drained 300 m[0-299] perilog offline"),
                format!("{third} drained 1 m300 perilog offline"),
                format!("{also} also 1 m300 uid 0 epilog: 10-umount: failed (exit 1)"),
            ]
        );
        assert!(quiet.starts_with("m0\nm1\nm2\nm3\n") && quiet.ends_with("m300\nn2\n"), "{quiet}");
    }

    #[test]
    fn equal_rows_of_two_pages_are_one_row() {
        let row = |hosts: &str, reason: &str| {
            json!({"hosts": hosts, "since_ms": 1, "reason": reason, "by": null, "confirmed": true, "lifted": false,
                   "later": 1})
        };
        let raw = json!({"drains": [row("n[0,10]", "fan"), row("n9", "dimm"), row("n[1-2]", "fan")]});
        let endpoint = Endpoint { daemon: crate::endpoint::Daemon::Controller, path: "/none".into() };
        let drained = Drained::of(&endpoint, Answer { body: Drains::deserialize(&raw).unwrap(), raw }).unwrap();
        let [_, json, quiet] = render(&drained, 0);
        assert_eq!(json, json!({"drains": [row("n[0-2,10]", "fan"), row("n9", "dimm")]}).to_string());
        assert_eq!(quiet, "n0\nn1\nn2\nn9\nn10\n");
    }
}
