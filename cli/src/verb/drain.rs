//! `perilog drain` and `perilog undrain`: drain nodes, lift drains, and show the drained nodes, each with the time and
//! the reason of its drain.

use std::collections::HashSet;

use perilog_core::HostList;
use perilog_core::controller::io::DrainRow;
use perilog_core::controller::view::PsRow;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ps::Ps;
use super::reached::reach;
use crate::columns::{Columns, cell};
use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page, aside};
use crate::{text, values};

/// Show drained nodes, or drain nodes
///
/// Without arguments: the drained nodes, since when and why. With nodes and a reason: drain them. An existing reason
/// stays; the latest problem found there since is shown under it. With --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts, requires = "reason")]
    nodes: Option<HostList>,
    /// Why, in words.
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    /// Drain also hosts that the controller has never heard of.
    #[arg(long, requires = "reason")]
    force: bool,
}

/// Lift the drain of nodes
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
    match (args.nodes, args.reason) {
        (Some(nodes), Some(reason)) => {
            let mut parameters = json!({"nodes": nodes, "reason": reason});
            // Leaves out the parameter for older controllers, which refuse it.
            if args.force {
                parameters["force"] = true.into();
            }
            let none = format!("{nodes}: drained already; the first reason stays, and yours is added");
            let some = format!("drained {nodes}");
            reach(door, &mut out, "Drain", &parameters, &some, &none)?;
        }
        _ => out.show(&Drained(door.ask("Drains", &json!({}))?))?,
    }
    Ok(Exit::Ok)
}

pub(crate) fn lift(args: Lift, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let some = format!("{}: drain lifted", args.nodes);
    let mut parameters = json!({"nodes": args.nodes});
    // Leaves out the parameter for older controllers, which refuse it.
    if args.forget {
        parameters["forget"] = true.into();
    }
    reach(door, &mut out, "Undrain", &parameters, &some, &some)?;
    // The drain is lifted in any case, so a controller that goes away now is no failure.
    if let Ok(open) = door.ask::<Ps>("Ps", &json!({})) {
        let lifted: HashSet<&str> = args.nodes.iter().collect();
        open.body.rows.iter().filter_map(|row| still_there(row, &lifted)).for_each(aside);
    }
    Ok(Exit::Ok)
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
            page.line("nobody is drained");
            return;
        }
        let mut columns = Columns::new(["SINCE", "STATE", "NODE", "BY", "REASON"]);
        for drain in drains {
            let state = state(drain);
            let node = text::line(drain.host.as_str());
            let mut row = |at_ms, state: &str, by: Option<u32>, reason: &str| {
                let by = by.map_or_else(|| "perilog".to_owned(), |uid| format!("uid {uid}"));
                let since = cell(crate::when::second(at_ms));
                columns.row([since, cell(state.to_owned()), cell(node.clone()), cell(by), cell(text::line(reason))]);
            };
            row(drain.since_ms, state, drain.by, &drain.reason);
            if let Some(again) = &drain.again {
                row(again.at_ms, "also", again.by, &again.reason);
            }
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.0.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        for drain in &self.0.body.drains {
            page.line(text::line(drain.host.as_str()));
        }
    }
}
