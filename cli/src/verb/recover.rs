//! `perilog controller recover` and `perilog ps --abandoned`: what a restore has left, and the take-over.

use perilog_core::controller::view::RecoveryView;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::text;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make agents accept this controller, whatever epoch they have accepted before. First make sure that no other
    /// controller runs: the epoch keeps two controllers from commanding one node, and this option overrides it.
    #[arg(long)]
    take_over: bool,
}

pub(crate) fn run(args: &Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if args.take_over {
        let answer: Answer<TakenOver> = endpoint.ask("Recover", &json!({ "take_over": true }))?;
        out.show(&answer)?;
    } else {
        list(endpoint, out)?;
    }
    Ok(Exit::Ok)
}

/// Prints the abandoned attempts, the tasks that the store does not know, and the hosts that are not welcomed.
pub(crate) fn list(endpoint: &Endpoint, mut out: Out) -> Result<(), Fault> {
    let answer: Answer<Listed> =
        endpoint.ask_all("Recover", &json!({}), &["/recovery/abandoned", "/recovery/unknown"])?;
    out.show(&answer)
}

#[derive(Debug, Deserialize)]
struct TakenOver {
    epoch: u64,
}

impl Render for Answer<TakenOver> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("this controller has epoch {} now", self.body.epoch));
        page.line("the agents that know this controller connect again within seconds; see perilog nodes");
        page.line("if perilog status shows that an agent has accepted a higher epoch, repeat this command");
        page.line(
            "the open attempts of this store are on hold until a hook, an edge or a user asks for them again; see \
             perilog ps --abandoned",
        );
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.body.epoch);
    }
}

#[derive(Debug, Deserialize)]
struct Listed {
    recovery: RecoveryView,
}

impl Render for Answer<Listed> {
    fn table(&self, page: &mut Page) {
        let view = &self.body.recovery;
        if let Some(row) = &view.recovery {
            let age = text::age(page.now_ms.saturating_sub(row.since_ms));
            page.line(format_args!("recovery began {age} ago: {}", text::line(&row.why)));
            if row.ended_ms.is_none() {
                page.line(
                    "waiting hooks and edges ask for their jobs again within a minute; after that, the nodes of every \
                     other job",
                );
                page.line("are drained until that job ends, or an operator types its command");
            }
        }
        if let Some(accepted_epoch) = view.accepted_epoch {
            page.line(format_args!(
                "nodes have accepted epoch {accepted_epoch}, but this controller has epoch {}; if no other controller \
                 runs, type perilog controller recover --take-over",
                view.epoch
            ));
        }
        if !view.suspects.is_empty() {
            page.line(format_args!(
                "refused, because they accepted commits that this store never made: {}; if no other controller runs, \
                 type perilog controller recover --take-over",
                text::line(&view.suspects.to_string())
            ));
        }
        if view.abandoned.is_empty() && view.unknown.is_empty() {
            page.line("nothing is abandoned");
            return;
        }
        if !view.abandoned.is_empty() {
            let mut columns = Columns::new(["JOB", "ATTEMPT", "NODES", "FROM", "NOT ENDED", "IF THE JOB IS OVER"]);
            for of in &view.abandoned {
                let open: Vec<&str> = of.open.iter().map(perilog_core::ActionName::as_str).collect();
                columns.row([
                    cell(of.job.as_str()),
                    cell(of.attempt.to_string()),
                    cell(of.hosts.to_string()),
                    cell(match of.source.as_deref() {
                        _ if !of.stored => "not in the copy".to_owned(),
                        Some(source) => text::line(source),
                        None => "a hook or a person".to_owned(),
                    }),
                    cell(open.join(", ")),
                    cell(text::line(&of.command)),
                ]);
            }
            page.columns(columns);
            page.line(
                "a job that still runs (squeue, flux jobs) needs no command: its hook or edge asks for it when it ends",
            );
        }
        if !view.unknown.is_empty() {
            let mut columns = Columns::new(["NODES", "JOB", "ATTEMPT", "TASK", "STATE"]);
            for of in &view.unknown {
                columns.row([
                    cell(of.hosts.to_string()),
                    cell(of.job.as_str()),
                    cell(of.attempt.to_string()),
                    cell(of.action.as_str()),
                    cell(text::line(&of.state)),
                ]);
            }
            page.columns(columns);
            page.line("the store does not know these tasks; if they may be forgotten, type perilog undrain NODES");
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let view = &self.body.recovery;
        let unknown = view.unknown.iter().map(|of| of.job.as_str());
        let jobs: std::collections::BTreeSet<&str> =
            view.abandoned.iter().map(|of| of.job.as_str()).chain(unknown).collect();
        jobs.into_iter().for_each(|job| page.line(job));
    }
}
