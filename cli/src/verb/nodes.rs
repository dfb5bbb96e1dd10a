//! `perilog nodes`: the nodes that the controller knows. Nodes in the same state share a line; a named node, or each
//! node with `--wide`, has its own.

use std::collections::{BTreeMap, HashMap};

use perilog_core::HostList;
use perilog_core::controller::view::NodeView;
use perilog_core::hostlist::by_number;
use serde::Deserialize;
use serde_json::{Value, json};

use owo_colors::Style;

use super::ca::list::days_left;
use crate::columns::{Cell, Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values};

/// The nodes as the controller sees them
///
/// Without names: all nodes; nodes in the same state share a line. With names: a line for each node. STATE shows
/// whether the agent is online, whether the node is drained, and whether a job or an action holds it (perilog why NODE
/// shows which). With --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show only these nodes, one line each.
    #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// Show only nodes in one of these states: online, offline, probing, drained, draining, lifting, held, free.
    #[arg(short = 't', long = "state", value_name = "STATE,...", value_delimiter = ',', value_parser = STATES)]
    states: Vec<String>,
    /// Show a line for each node, with the days until its certificate expires.
    #[arg(long)]
    wide: bool,
}

/// The words of `--state`: the states of [`state`], and `free` for a node that a job can have.
const STATES: [&str; 8] = ["online", "offline", "probing", "drained", "draining", "lifting", "held", "free"];

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let mut answer: Answer<Nodes> = endpoint.ask_all("Nodes", &json!({ "nodes": args.nodes }), &["/nodes"])?;
    answer.choose(&args.states);
    match args {
        Args { wide: true, .. } => out.show(&Wide(answer))?,
        Args { nodes: Some(_), .. } => out.show(&OneByOne(answer))?,
        Args { nodes: None, states, .. } => out.show(&Folded { answer, chosen: !states.is_empty() })?,
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

impl Answer<Nodes> {
    /// Keeps the nodes in one of these states, or all where none is named, and sorts them by the numbers in their
    /// names.
    fn choose(&mut self, states: &[String]) {
        let fits = |node: &NodeView| {
            let is = state_texts(node);
            let free = is[..] == ["online"];
            states.is_empty() || states.iter().any(|state| is.contains(state) || (free && state == "free"))
        };
        let mut kept: Vec<NodeView> = std::mem::take(&mut self.body.nodes).into_iter().filter(fits).collect();
        kept.sort_by(|a, b| by_number(&a.host, &b.host));
        if let Some(Value::Array(raw)) = self.raw.get_mut("nodes") {
            let mut by_host: HashMap<String, Value> = std::mem::take(raw)
                .into_iter()
                .filter_map(|node| Some((node.get("host")?.as_str()?.to_owned(), node)))
                .collect();
            *raw = kept.iter().filter_map(|node| by_host.remove(&node.host)).collect();
        }
        self.body.nodes = kept;
    }
}

impl Nodes {
    fn quiet(&self, page: &mut Page) {
        for node in &self.nodes {
            page.line(text::line(&node.host));
        }
    }
}

/// Returns the state of the agent, followed by each reason that keeps the node from its next job: `online, drained,
/// held`.
fn state(node: &NodeView) -> String {
    state_texts(node).join(", ")
}

fn state_texts(node: &NodeView) -> Vec<String> {
    let drain = node.drain.as_ref().map(|drain| super::drain::state(drain.lifted, drain.confirmed));
    let all = [Some(text::line(&node.state)), drain.map(str::to_owned), node.held.then(|| "held".to_owned())];
    all.into_iter().flatten().collect()
}

/// Returns the colour of a node's state in the list: of its drain, if it has one and its agent is online, else of the
/// agent's state.
fn colour(node: &NodeView) -> Style {
    let drain = node.drain.as_ref().filter(|_| node.state == "online");
    let drain = drain.map(|drain| super::drain::state(drain.lifted, drain.confirmed));
    style::of(drain.unwrap_or(&node.state))
}

const HEADS: [&str; 8] = ["NODE", "STATE", "SINCE", "TASKS", "VERSION", "BOOT", "FROM", "NOTE"];

fn line(node: &NodeView, now_ms: u64) -> [Cell; 8] {
    // The first digits are the kernel's boot id, which a container keeps; the number counts the boots that this
    // controller saw.
    let boot = node.boot.as_deref().map(|id| id.chars().take(8).collect::<String>()).unwrap_or_default();
    let boot = node.boot_number.map_or_else(|| boot.clone(), |n| format!("{boot} (#{n})"));
    [
        cell(text::line(&node.host)),
        styled(state(node), colour(node)),
        cell(text::age(now_ms.saturating_sub(node.since_ms))),
        cell(node.tasks.to_string()),
        cell(node.version.as_deref().map(text::line).unwrap_or_default()),
        cell(text::line(&boot)),
        cell(node.peer.as_deref().map(text::line).unwrap_or_default()),
        cell(node.note.as_deref().map(text::line).unwrap_or_default()),
    ]
}

/// Output of `perilog nodes --wide`: a line for each node, with the number of days that its certificate still lasts.
struct Wide(Answer<Nodes>);

impl Render for Wide {
    fn table(&self, page: &mut Page) {
        let [node, state, since, tasks, version, boot, from, note] = HEADS;
        let heads = [node, state, since, tasks, version, boot, "CERT-DAYS", from, note];
        let mut columns = Columns::new(heads).right(2).right(3).right(6);
        for node in &self.0.body.nodes {
            let until_ms = node.certificate_until_ms;
            let days = until_ms.map_or_else(|| cell(""), |until_ms| days_left(until_ms, page.now_ms));
            let [node, state, since, tasks, version, boot, from, note] = line(node, page.now_ms);
            columns.row([node, state, since, tasks, version, boot, days, from, note]);
        }
        page.uncut(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.0.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.0.body.quiet(page);
    }
}

struct OneByOne(Answer<Nodes>);

impl Render for OneByOne {
    fn table(&self, page: &mut Page) {
        let mut columns = Columns::new(HEADS).right(2).right(3);
        self.0.body.nodes.iter().for_each(|node| columns.row(line(node, page.now_ms)));
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.0.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.0.body.quiet(page);
    }
}

struct Folded {
    answer: Answer<Nodes>,
    /// Whether `--state` chose the nodes.
    chosen: bool,
}

impl Render for Folded {
    fn table(&self, page: &mut Page) {
        let nodes = &self.answer.body.nodes;
        if nodes.is_empty() {
            if self.chosen {
                page.line("no node is in that state");
                return;
            }
            page.line(
                "no node has connected yet; on a node, journalctl -u perilog-agent shows whether the agent runs and \
                 why it cannot connect",
            );
            return;
        }
        // Nodes that need attention come first.
        let mut groups: BTreeMap<(bool, String, &str, &str), Vec<&NodeView>> = BTreeMap::new();
        for node in nodes {
            let (version, note) =
                (node.version.as_deref().unwrap_or_default(), node.note.as_deref().unwrap_or_default());
            groups
                .entry((node.state == "online" && node.drain.is_none() && note.is_empty(), state(node), version, note))
                .or_default()
                .push(node);
        }
        let mut columns =
            Columns::new(["COUNT", "STATE", "SINCE", "TASKS", "VERSION", "NODES", "NOTE"]).right(0).right(2).right(3);
        for ((_, state, version, note), members) in groups {
            let names = HostList::sorted(members.iter().map(|node| node.host.as_str())).to_string();
            let ages = || members.iter().map(|node| page.now_ms.saturating_sub(node.since_ms));
            let (youngest, oldest) = (text::age(ages().min().unwrap_or(0)), text::age(ages().max().unwrap_or(0)));
            columns.row([
                cell(members.len().to_string()),
                styled(state, members.first().map_or(style::PLAIN, |node| colour(node))),
                cell(if youngest == oldest { youngest } else { format!("{youngest}-{oldest}") }),
                cell(members.iter().map(|node| node.tasks).sum::<u64>().to_string()),
                cell(text::line(version)),
                cell(names),
                cell(text::line(note)),
            ]);
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.answer.body.quiet(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    const DAY_MS: u64 = 86_400_000;

    fn answer() -> Answer<Nodes> {
        let drain =
            json!({"host": "n0", "since_ms": 1, "reason": "bad dimm", "by": 0, "confirmed": true, "lifted": false});
        let node = |host: &str, state: &str, age_ms: u64, tasks: u64, note: Value| {
            let drain = if host == "n0" { drain.clone() } else { Value::Null };
            json!({"drain": drain, "held": host == "n1", "host": host, "state": state, "since_ms": DAY_MS - age_ms,
                   "machine": "m", "boot": "5c3f0a11-7777-4", "boot_number": 2,
                   "version": "0.1.0", "peer": "10.0.0.1:5000", "tasks": tasks, "note": note})
        };
        let raw = json!({"nodes": [
            node("n0", "online", 60_000, 1, Value::Null),
            node("n1", "online", 7_380_000, 0, Value::Null),
            node("n2", "offline", 42_000, 1, json!("power failed")),
            node("n3", "online", 60_000, 0, Value::Null),
        ]});
        Answer { body: Nodes::deserialize(&raw).unwrap(), raw }
    }

    #[test]
    fn wide_has_the_days_of_each_certificate() {
        let mut answer = answer();
        answer.body.nodes.truncate(3);
        answer.body.nodes[0].certificate_until_ms = Some(1_500 * DAY_MS + 1);
        answer.body.nodes[1].certificate_until_ms = Some(DAY_MS - 1);
        let [table, ..] = render(&Wide(answer), DAY_MS);
        let cut = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            table.lines().map(cut).collect::<Vec<_>>(),
            [
                "NODE STATE SINCE TASKS VERSION BOOT CERT-DAYS FROM NOTE",
                "n0 online, drained 1m 1 0.1.0 5c3f0a11 (#2) 1499 10.0.0.1:5000",
                "n1 online, held 2h03m 0 0.1.0 5c3f0a11 (#2) ENDED 10.0.0.1:5000",
                "n2 offline 42s 1 0.1.0 5c3f0a11 (#2) 10.0.0.1:5000 power failed",
            ]
        );
    }

    #[test]
    fn all_nodes_are_folded_trouble_first_but_not_named_ones() {
        let [table, json, quiet] = render(&Folded { answer: answer(), chosen: false }, DAY_MS);
        assert_eq!(
            table,
            "COUNT  STATE            SINCE  TASKS  VERSION  NODES  NOTE\n\
             \u{20}   1  offline            42s      1  0.1.0    n2     power failed\n\
             \u{20}   1  online, drained     1m      1  0.1.0    n0\n\
             \u{20}   1  online              1m      0  0.1.0    n3\n\
             \u{20}   1  online, held     2h03m      0  0.1.0    n1\n"
        );
        assert_eq!((json, quiet.as_str()), (answer().raw.to_string(), "n0\nn1\nn2\nn3\n"));
        let [table, ..] = render(&OneByOne(answer()), DAY_MS);
        assert_eq!(
            table.lines().take(3).collect::<Vec<_>>(),
            [
                "NODE  STATE            SINCE  TASKS  VERSION  BOOT           FROM           NOTE",
                "n0    online, drained     1m      1  0.1.0    5c3f0a11 (#2)  10.0.0.1:5000",
                "n1    online, held     2h03m      0  0.1.0    5c3f0a11 (#2)  10.0.0.1:5000",
            ]
        );
    }
}
