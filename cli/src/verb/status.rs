//! `perilog status`: whether the controller runs, how much work is open, and notes for the operator.

use perilog_core::controller::view::StatusView;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Cell, Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text};

/// State of the controller: nodes, work, and what you should know
///
/// With --quiet: only the exit status.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let answer: Answer<Status> = endpoint.ask("Status", &json!({}))?;
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Status {
    status: StatusView,
}

/// Returns the cluster's name, or the cluster's id if an older controller sends no name.
pub(super) fn cluster(status: &StatusView) -> &str {
    if status.name.is_empty() { &status.cluster } else { &status.name }
}

impl Render for Answer<Status> {
    fn table(&self, page: &mut Page) {
        let status = &self.body.status;
        let mut columns = Columns::headless();
        let mut line = |head: &str, what: Cell| columns.row([styled(head, style::QUIET), what]);
        line("controller", cell(format!("perilog {}, epoch {}", text::line(&status.version), status.epoch)));
        line("cluster", cell(text::line(cluster(status))));
        let away = status.nodes.saturating_sub(status.online);
        let count = |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
        let (away, drained, held) = (
            count(away, "offline (perilog nodes)"),
            count(status.drained, "drained (perilog drain)"),
            count(status.held, "held (perilog ps --held)"),
        );
        let trouble = !away.is_empty() || !drained.is_empty();
        let nodes = format!("{} online{away}{drained}{held}", status.online);
        line("nodes", if trouble { styled(nodes, style::CARE) } else { cell(nodes) });
        let work = match status.actions_open {
            0 => "nothing open".to_owned(),
            n => format!(
                "{} open over {} (perilog ps)",
                text::count(n, "action"),
                text::count(status.tasks_open, "task")
            ),
        };
        line("work", cell(format!("{}, {work}", text::count(status.jobs, "job"))));
        if status.outbox > 0 {
            line(
                "outbox",
                cell(format!(
                    "{} that the release hook has not carried out yet (perilog ps)",
                    text::count(status.outbox, "release")
                )),
            );
        }
        for note in &status.notes {
            line("note", styled(text::line(note), style::CARE));
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::people;

    #[test]
    fn what_is_wrong_is_shown() {
        let status = |name: &str, online: u64, drained: u64, open: u64, outbox: u64, notes: &[&str]| {
            let raw = json!({"status": {"version": "0.1.0", "cluster": "5f", "name": name, "epoch": 3, "nodes": 4,
                                        "online": online, "drained": drained, "held": drained * 2, "jobs": 7,
                "actions_open": open, "tasks_open": open * 4, "outbox": outbox, "notes": notes}});
            people(&Answer { body: Status::deserialize(&raw).unwrap(), raw }, 0)
        };
        assert_eq!(
            status("", 4, 0, 0, 0, &[]),
            "controller  perilog 0.1.0, epoch 3\n\
             cluster     5f\n\
             nodes       4 online\n\
             work        7 jobs, nothing open\n"
        );
        assert_eq!(
            status("tuolumne", 3, 1, 1, 1, &["the disk under the store is full"]),
            "controller  perilog 0.1.0, epoch 3\n\
             cluster     tuolumne\n\
             nodes       3 online, 1 offline (perilog nodes), 1 drained (perilog drain), 2 held (perilog ps --held)\n\
             work        7 jobs, 1 action open over 4 tasks (perilog ps)\n\
             outbox      1 release that the release hook has not carried out yet (perilog ps)\n\
             note        the disk under the store is full\n"
        );
    }
}
