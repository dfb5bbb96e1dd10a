//! `perilog drain` and `perilog undrain`: drain nodes, lift drains, and show the drained nodes, each with the time and
//! the reason of its drain.

use std::collections::{BTreeMap, HashSet};

use perilog_core::HostList;
use perilog_core::controller::io::DrainRow;
use perilog_core::controller::view::PsRow;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ps::Ps;
use crate::columns::{Columns, cell, word};
use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page, aside};
use crate::{text, values};

/// Show drained nodes, or drain nodes
///
/// Without arguments: the drained nodes; nodes with the same state and reason share a line, with the time of the first
/// of them. With nodes and a reason: drain them. An existing reason stays; the latest problem found there since is
/// shown under it. With --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// Why, in words.
    #[arg(value_name = "REASON", requires = "nodes")]
    reason: Option<String>,
    /// Why, in words: the same as REASON.
    #[arg(long = "reason", value_name = "TEXT", id = "why", conflicts_with = "reason", requires = "nodes")]
    why: Option<String>,
    /// Drain also hosts that the controller has never heard of.
    #[arg(long, requires = "nodes")]
    force: bool,
}

/// Lift the drain of nodes
///
/// Nodes that are not drained stay as they are, and are named.
#[derive(Debug, clap::Args)]
pub(crate) struct Lift {
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: HostList,
    /// Drop the drain at once, without the drain hook: for hosts that the resource manager does not know, or that an
    /// operator undrained there.
    #[arg(long)]
    forget: bool,
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let Some(nodes) = args.nodes else {
        out.show(&Drained(door.ask("Drains", &json!({}))?))?;
        return Ok(Exit::Ok);
    };
    let Some(reason) = args.reason.or(args.why) else {
        let text = format!("say why {nodes} is to be drained: perilog drain {nodes} \"REASON\"");
        return Err(Fault::Usage(text));
    };
    let mut parameters = json!({"nodes": nodes, "reason": reason});
    // Leaves out the parameter for older controllers, which refuse it.
    if args.force {
        parameters["force"] = true.into();
    }
    let answer: Answer<Changed> = door.ask("Drain", &parameters)?;
    let already = "drained already; the first reason stays, and yours is added";
    out.show(&Told { nodes, done: "drained", already, answer })?;
    Ok(Exit::Ok)
}

pub(crate) fn lift(args: Lift, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let mut parameters = json!({"nodes": args.nodes});
    // Leaves out the parameter for older controllers, which refuse it.
    if args.forget {
        parameters["forget"] = true.into();
    }
    let answer: Answer<Changed> = door.ask("Undrain", &parameters)?;
    out.show(&Told { nodes: args.nodes.clone(), done: "drain lifted", already: "not drained", answer })?;
    // The drain is lifted in any case, so a controller that goes away now is no failure.
    if let Ok(open) = door.ask::<Ps>("Ps", &json!({})) {
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
    /// Hosts whose drain was lifted before, and whose drain hook has not carried that out.
    #[serde(default)]
    lifting: HostList,
}

/// The reply to `Drain` or `Undrain`, for output: a line for the hosts that changed, and a line for those that did not.
struct Told {
    nodes: HostList,
    done: &'static str,
    already: &'static str,
    answer: Answer<Changed>,
}

impl Faces for Told {
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
                "{lifting}: drain lifted already, and the drain hook has not carried that out; to drop it without the \
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
        "{there}: {} of job {job} is still there, {state}, for {age}: {why} (perilog why {first})",
        row.action
    ))
}

#[derive(Debug, Deserialize)]
struct Drains {
    drains: Vec<DrainRow>,
}

/// Returns the state of a drain: `draining`, `drained` or `lifting`.
pub(super) const fn state(drain: &DrainRow) -> &'static str {
    match (drain.lifted, drain.confirmed) {
        (true, _) => "lifting",
        (false, true) => "drained",
        (false, false) => "draining",
    }
}

struct Drained(Answer<Drains>);

impl Faces for Drained {
    fn table(&self, page: &mut Page) {
        let drains = &self.0.body.drains;
        if drains.is_empty() {
            page.line("no node is drained");
            return;
        }
        let mut alike: BTreeMap<_, Vec<&DrainRow>> = BTreeMap::new();
        for drain in drains {
            let again = drain.again.as_ref().map(|again| (&again.reason, again.by));
            alike.entry((state(drain), &drain.reason, drain.by, again)).or_default().push(drain);
        }
        let first = |group: &[&DrainRow]| group.iter().map(|drain| drain.since_ms).min().unwrap_or(0);
        let mut alike: Vec<_> = alike.into_iter().collect();
        alike.sort_by_key(|(_, group)| first(group));
        let mut columns = Columns::new(["SINCE", "STATE", "COUNT", "NODES", "BY", "REASON"]).right(2);
        for ((state, reason, by, again), group) in alike {
            let nodes = HostList::sorted(group.iter().map(|drain| drain.host.as_str())).to_string();
            let mut row = |at_ms, state, by: Option<u32>, reason: &str| {
                let by = by.map_or_else(|| "perilog".to_owned(), |uid| format!("uid {uid}"));
                let (since, count) = (cell(crate::when::second(at_ms)), cell(group.len().to_string()));
                columns.row([since, word(state), count, cell(nodes.clone()), cell(by), cell(text::line(reason))]);
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
        HostList::sorted(self.0.body.drains.iter().map(|drain| drain.host.as_str()))
            .iter()
            .for_each(|host| page.line(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::faces;
    use crate::when;

    /// Regression test: 321 drains with four reasons were 322 lines, in the order m1, m10, m100.
    #[test]
    fn drains_with_one_reason_share_a_line() {
        let drain = |host: String, since_ms: u64, reason: &str, again: Value| {
            json!({"host": host, "since_ms": since_ms, "reason": reason, "by": null, "confirmed": true, "lifted": false,
                   "again": again})
        };
        let mut drains: Vec<Value> =
            (0..300).map(|n| drain(format!("m{n}"), 60_000 + n, "offline", Value::Null)).collect();
        drains.push(drain("n2".to_owned(), 5_000, "dimm", Value::Null));
        let again = json!({"reason": "epilog: 10-umount: failed (exit 1)", "by": 0, "at_ms": 70_000});
        drains.push(drain("m300".to_owned(), 90_000, "offline", again));
        drains.sort_by_key(|drain| drain["host"].as_str().unwrap().to_owned());
        let raw = json!({ "drains": drains });
        let [table, _, quiet] = faces(&Drained(Answer { body: Drains::deserialize(&raw).unwrap(), raw }), 0);
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
}
