//! `perilog doctor --nodes`: what doctor finds on each of these nodes, asked there over ssh(1).
//!
//! doctor does not ask through the agents, because it must also find why an agent is away. An agent that runs doctor as
//! root for the controller would also be one more way into every node. ssh follows the site's own permissions, and
//! needs no daemon of perilog.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perilog_core::HostList;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Level, shell};
use crate::columns::{Columns, cell, styled};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{remote, style, text};

/// Maximum number of nodes asked at once: a handshake costs this host some milliseconds of one core, and ssh-agent(1)
/// refuses many at once.
const AT_ONCE: usize = 16;
/// Time limit for one node. On the node, doctor itself may wait 10 s for a service that hangs, more than once.
const LIMIT: Duration = Duration::from_secs(90);

/// A finding in the `--json` output of doctor on a node. Members that a later version adds are ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Finding {
    level: String,
    about: String,
    what: String,
    #[serde(default)]
    todo: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    findings: Vec<Finding>,
}

pub(super) fn run(nodes: &HostList, mut out: Out) -> Result<Exit, Fault> {
    let hosts: Vec<String> = nodes.iter().map(str::to_owned).collect();
    let fleet = Fleet(ask_all(&hosts, ask));
    out.show(&fleet)?;
    Ok(if fleet.is_wrong() { Exit::Failed } else { Exit::Ok })
}

/// Asks all hosts, [`AT_ONCE`] at a time; returns the answers in the order of `hosts`.
fn ask_all(hosts: &[String], ask: impl Fn(&str) -> Vec<Finding> + Sync) -> Vec<(String, Vec<Finding>)> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(host) = hosts.get(at) else { return };
                    let findings = ask(host);
                    answers.lock().unwrap_or_else(PoisonError::into_inner).insert(at, (host.clone(), findings));
                }
            });
        }
    });
    answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn ask(host: &str) -> Vec<Finding> {
    // BatchMode: password prompts of sixteen ssh would wait for ever on one terminal. ControlMaster: a master
    // connection in the background would keep the pipes of the answer open.
    let mut arguments = vec!["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=no"];
    arguments.extend(["-n", "--", host]);
    arguments.push("perilog --json doctor node");
    let unreachable = |what: String| {
        let todo = format!("perilog why {host}");
        vec![Finding { level: Level::Wrong.as_str().to_owned(), about: "ssh".to_owned(), what, todo }]
    };
    match shell::ask_within(LIMIT, remote::SSH, &arguments) {
        Err(why) => unreachable(why),
        Ok(output) => match serde_json::from_str::<Answer>(&output.stdout) {
            Ok(answer) => answer.findings,
            Err(_) => {
                let last = output.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no answer");
                unreachable(text::line(last))
            }
        },
    }
}

/// Each node with its findings, for output.
struct Fleet(Vec<(String, Vec<Finding>)>);

impl Fleet {
    fn is_wrong(&self) -> bool {
        self.0.iter().any(|(_, findings)| findings.iter().any(Finding::is_wrong))
    }
}

impl Finding {
    fn is_wrong(&self) -> bool {
        self.level == Level::Wrong.as_str()
    }

    fn is_warning(&self) -> bool {
        self.level == Level::Warning.as_str()
    }
}

impl Render for Fleet {
    /// Prints each problem once, with all nodes that have it: wrong ones first, then warnings. A last line names all
    /// nodes without a problem.
    fn table(&self, page: &mut Page) {
        let mut shared: BTreeMap<(bool, &Finding), Vec<&str>> = BTreeMap::new();
        let mut well = Vec::new();
        for (host, findings) in &self.0 {
            let bad: Vec<&Finding> = findings.iter().filter(|of| of.is_wrong() || of.is_warning()).collect();
            if bad.is_empty() {
                well.push(host.as_str());
            }
            for finding in bad {
                shared.entry((!finding.is_wrong(), finding)).or_default().push(host);
            }
        }
        let list =
            |hosts: &[&str]| HostList::from_names(hosts).map_or_else(|_| hosts.join(","), |list| list.to_string());
        let mut columns = Columns::headless();
        for ((warning, finding), hosts) in &shared {
            let style = if *warning { style::CARE } else { style::BAD };
            let (about, what) = (text::line(&finding.about), text::line(&finding.what));
            columns.row([styled(&finding.level, style), cell(list(hosts)), cell(about), cell(what)]);
            if !finding.todo.is_empty() {
                let todo = format!("-> {}", text::line(&finding.todo));
                columns.row([cell(""), cell(""), cell(""), styled(todo, style::STRONG)]);
            }
        }
        page.columns(columns);
        if !well.is_empty() {
            page.line(format_args!("nothing is wrong on {}", list(&well)));
        }
    }

    fn json(&self) -> Option<Value> {
        let all = self.0.iter().flat_map(|(host, findings)| {
            findings.iter().map(
                move |of| json!({"host": host, "level": of.level, "about": of.about, "what": of.what, "todo": of.todo}),
            )
        });
        Some(json!({ "findings": all.collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        let wrong = self.0.iter().filter(|(_, findings)| findings.iter().any(Finding::is_wrong));
        wrong.for_each(|(host, _)| page.line(text::line(host)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    fn finding(level: Level, what: &str, todo: &str) -> Finding {
        let about = "scripts".to_owned();
        Finding { level: level.as_str().to_owned(), about, what: what.to_owned(), todo: todo.to_owned() }
    }

    #[test]
    fn nodes_share_the_line_of_a_finding_wrong_ones_first() {
        let open = || finding(Level::Wrong, "prolog.d: others can write it", "chmod go-w prolog.d");
        let fleet = Fleet(vec![
            ("n0".to_owned(), vec![finding(Level::Ok, "fine", "")]),
            ("n1".to_owned(), vec![finding(Level::Warning, "a limit is low", ""), open()]),
            ("n2".to_owned(), vec![open()]),
            ("n3".to_owned(), vec![finding(Level::Skipped, "no flux", "")]),
        ]);
        let [table, json, quiet] = render(&fleet, 0);
        assert_eq!(
            table,
            "wrong    n[1-2]  scripts  prolog.d: others can write it\n\
             \u{20}                         -> chmod go-w prolog.d\n\
             warning  n1      scripts  a limit is low\n\
             nothing is wrong on n[0,3]\n"
        );
        assert!(fleet.is_wrong() && json.contains("\"host\":\"n2\""));
        assert_eq!(quiet, "n1\nn2\n");
        assert!(!Fleet(vec![("n0".to_owned(), vec![finding(Level::Warning, "x", "")])]).is_wrong());
    }

    /// Asks a thousand hosts: at most [`AT_ONCE`] calls run at a time.
    #[test]
    fn all_nodes_are_asked_and_few_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let hosts: Vec<String> = (0..1_000).map(|at| format!("n{at}")).collect();
        let answers = ask_all(&hosts, |host| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            vec![finding(Level::Ok, host, "")]
        });
        assert!((1..=AT_ONCE).contains(&most.into_inner()));
        assert!(answers.iter().map(|(host, _)| host).eq(&hosts));
        assert!(answers.iter().all(|(host, findings)| findings[0].what == *host));
    }
}
