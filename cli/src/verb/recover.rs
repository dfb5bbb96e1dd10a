//! `perilog controller recover`: the list of jobs that a store in recovery waits for, and an operator's vouching.

use perilog_core::controller::view::RecoveryView;
use perilog_core::{Attempt, HostName, JobId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell};
use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page};
use crate::text;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Be the controller that agents obey, whatever epoch they have obeyed before. First make sure that no other
    /// controller runs: this check keeps two controllers from commanding one node.
    #[arg(long, conflicts_with_all = ["confirm", "all", "attempt", "forget"])]
    take_over: bool,
    /// Forget all reports of this host about tasks that the store does not have. The host's session ends, and its agent
    /// reports anew what it has. First revoke a stolen key.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["confirm", "all", "attempt", "word"])]
    forget: Option<HostName>,
    /// Give your word for this job.
    #[arg(long, value_name = "JOB", conflicts_with = "all", requires = "word")]
    confirm: Option<JobId>,
    /// Only this attempt.
    #[arg(long, value_name = "N", requires = "confirm")]
    attempt: Option<Attempt>,
    /// Give your word for all jobs of the list.
    #[arg(long, requires = "word")]
    all: bool,
    #[command(flatten)]
    word: Words,
}

#[derive(Debug, clap::Args)]
#[group(id = "word", multiple = false)]
struct Words {
    /// The job is over, and its nodes still belong to it: its epilog runs, and its nodes are released.
    #[arg(long)]
    over: bool,
    /// The job goes on, and so does its unfinished work.
    #[arg(long)]
    running: bool,
    /// The job is over, and its nodes were released, perhaps to other jobs: the controller runs nothing of it, and
    /// tells no hook.
    #[arg(long)]
    gone: bool,
}

impl Words {
    const fn said(&self) -> Option<&'static str> {
        match (self.over, self.running, self.gone) {
            (true, ..) => Some("over"),
            (_, true, _) => Some("running"),
            (.., true) => Some("gone"),
            _ => None,
        }
    }
}

pub(crate) fn run(args: &Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    if args.take_over {
        let answer: Answer<TookOver> = door.ask("Recover", &json!({ "take_over": true }))?;
        out.show(&answer)?;
    } else if let Some(host) = &args.forget {
        let answer: Answer<Forgotten> = door.ask("Recover", &json!({ "forget": host }))?;
        out.show(&answer)?;
    } else if args.confirm.is_some() || args.all {
        let parameters =
            json!({ "confirm": args.word.said(), "job": args.confirm, "attempt": args.attempt, "all": args.all });
        let answer: Answer<Confirmed> = door.ask("Recover", &parameters)?;
        out.show(&answer)?;
    } else if args.word.said().is_some() {
        return Err(Fault::Usage("of which job? --confirm JOB, or --all".to_owned()));
    } else {
        let answer: Answer<Listed> = door.ask("Recover", &json!({}))?;
        out.show(&answer)?;
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct TookOver {
    epoch: u64,
}

impl Faces for Answer<TookOver> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!(
            "this controller has epoch {} now; agents that it has heard come back under it within seconds (perilog \
             nodes)",
            self.body.epoch
        ));
        page.line("one that has obeyed a higher epoch is in perilog status when it dials: then take over again");
        page.line("what it owes waits for a word: perilog controller recover");
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.body.epoch);
    }
}

#[derive(Debug, Deserialize)]
struct Forgotten {
    tasks: u64,
}

impl Faces for Answer<Forgotten> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("forgot {} that the store does not know", text::count(self.body.tasks, "task")));
        page.line("the host's agent comes back within seconds, and tells what it has (perilog nodes)");
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.body.tasks);
    }
}

#[derive(Debug, Deserialize)]
struct Confirmed {
    tasks: u64,
}

impl Faces for Answer<Confirmed> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("your word counts for {}", text::count(self.body.tasks, "attempt")));
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, _: &mut Page) {}
}

#[derive(Debug, Deserialize)]
struct Listed {
    recovery: RecoveryView,
}

impl Faces for Answer<Listed> {
    fn table(&self, page: &mut Page) {
        let view = &self.body.recovery;
        match view.recovery.as_ref() {
            Some(row) if row.ended_ms.is_none() => {
                let age = text::age(page.now_ms.saturating_sub(row.since_ms));
                page.line(format_args!("in recovery for {age}: {}", text::line(&row.why)));
                page.line("nothing that was owed begins, is told or given back until somebody vouched for it");
            }
            _ => page.line("not in recovery"),
        }
        if let Some(obeyed) = view.obeyed {
            page.line(format_args!(
                "nodes have obeyed epoch {obeyed}, this controller has {}: is another controller at work? if none is: \
                 perilog controller recover --take-over",
                view.epoch
            ));
        }
        if !view.suspects.is_empty() {
            page.line(format_args!(
                "not welcomed, for they tell of commits that nobody else knows: {}; if their store was lost: perilog \
                 controller recover --take-over",
                text::line(&view.suspects.join(", "))
            ));
        }
        let mut columns = Columns::new(["JOB", "ATTEMPT", "NODES", "FROM", "STATE", "OPEN"]);
        for of in &view.attempts {
            let others = of.beside.iter().map(|(job, hosts)| format!("; job {job} has {hosts} now"));
            let state = format!("waits for a word{}", others.collect::<String>());
            let open: Vec<&str> = of.open.iter().map(perilog_core::ActionName::as_str).collect();
            columns.row([
                cell(of.job.as_str()),
                cell(of.attempt.to_string()),
                cell(of.hosts.to_string()),
                cell(of.source.as_deref().map(text::line).unwrap_or_else(|| "by hand".to_owned())),
                cell(state),
                cell(open.join(", ")),
            ]);
        }
        for of in &view.orphans {
            columns.row([
                cell(of.job.as_str()),
                cell(of.attempt.to_string()),
                cell(text::line(&of.host)),
                cell("the node"),
                cell(format!("unknown here, {}", text::line(&of.state))),
                cell(of.action.as_str()),
            ]);
        }
        if view.attempts.is_empty() && view.orphans.is_empty() {
            if view.recovery.as_ref().is_some_and(|row| row.ended_ms.is_none()) {
                page.line("nothing waits for a word: it is over once the nodes have told what they have");
            }
            return;
        }
        page.columns(columns);
        page.line("");
        let from: std::collections::BTreeSet<&str> =
            view.attempts.iter().filter_map(|of| of.source.as_deref()).collect();
        for source in from {
            let source = text::line(source);
            page.line(format_args!(
                "rows FROM {source}: its edge says it within seconds of its connection; wait for that"
            ));
        }
        page.line("say what each is: perilog controller recover --confirm JOB, or --all, and one of");
        page.line("  --running  it goes on, and so does what it was owed");
        page.line("  --over     it is over, and its nodes are still its own: its epilog runs, they are given back");
        page.line("  --gone     it is over, and its nodes were given back: nothing of it begins, nobody is told");
        let jobs: Vec<&JobId> = view.attempts.iter().map(|of| &of.job).collect();
        if let Some(twice) = jobs.iter().enumerate().find_map(|(at, job)| jobs[..at].contains(job).then_some(job)) {
            page.line(format_args!("{twice} waits with two attempts: name one with --attempt N"));
        }
        if view.attempts.iter().any(|of| !of.beside.is_empty()) {
            page.line("where another job has a node now, --over runs this one's epilog beside it, and --gone does not");
        }
        page.line("hooks say it too, as each job goes on: job add, run, job finish");
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        let view = &self.body.recovery;
        let orphans = view.orphans.iter().map(|of| of.job.as_str());
        let jobs: std::collections::BTreeSet<&str> =
            view.attempts.iter().map(|of| of.job.as_str()).chain(orphans).collect();
        jobs.into_iter().for_each(|job| page.line(job));
    }
}
