//! `perilog timeline`: the duration of each rank and each script of a job, as a table and as a drawing.

mod svg;
mod table;

use std::path::{Path, PathBuf};

use perilog_core::controller::view::{ActionView, AttemptView, JobView, PsRow};
use perilog_core::{ActionName, Attempt, IdSet, JobId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::attempts::RequestedAttempts;
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::log::Events;
use crate::out::{Out, OutputFormat, Page, Render};
use crate::values;

/// How long each rank and script of a job took
///
/// For each action: its scripts, then its ranks, the slowest first, then unfinished work. AFTER is the time from the
/// request of the action to the start of the task on its node; it compares the clocks of two hosts. With --svg also a
/// drawing for any browser: a line for each rank, each script in its colour, failures framed in red; point at a bar to
/// see its details. With --quiet: ACTION RANK MS for each task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only this action.
    #[arg(value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// Number of the attempt; default: the newest requested one in which an action began.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// All ranks, not only the slowest twenty of each action.
    #[arg(long)]
    all: bool,
    /// Also write the drawing to this file; `-` writes only the drawing, to standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(mut args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if args.attempt.is_none() {
        args.attempt = meant(&args.job, endpoint)?;
    }
    let drawn_only = args.svg.as_deref() == Some(Path::new("-"));
    let parameters = json!({ "job": args.job, "attempt": args.attempt, "action": args.action });
    let mut tasks = Vec::new();
    endpoint.follow(&mut endpoint.open()?, "Timeline", &parameters, |answer: Answer<Part>| {
        if out.format == OutputFormat::Json && !drawn_only {
            out.show(&Raw(answer.raw))?;
        }
        tasks.extend(answer.body.tasks);
        Ok::<_, Fault>(())
    })?;
    if out.format == OutputFormat::Json && args.svg.is_none() {
        return Ok(Exit::Ok);
    }
    // Adds unfinished work, and the verdicts.
    let shown: Answer<Show> = endpoint.ask("Show", &json!({ "job": args.job }))?;
    let timeline = Timeline::new(shown.body.job, tasks, &args);
    let now_ms = perilog_host::clock::wall_ms();
    match &args.svg {
        Some(_) if drawn_only => return out.text(&svg::draw(&timeline, now_ms)).map(|()| Exit::Ok),
        Some(path) => std::fs::write(path, svg::draw(&timeline, now_ms)).map_err(|source| Fault::File {
            what: "cannot write",
            path: path.clone(),
            source,
        })?,
        None => {}
    }
    if out.format != OutputFormat::Json {
        out.show(&timeline)?;
    }
    Ok(Exit::Ok)
}

/// Returns the attempt to show: the newest requested one of those that began an action. `None`: none did, and the
/// controller chooses an attempt or refuses.
fn meant(job: &JobId, endpoint: &Endpoint) -> Result<Option<Attempt>, Fault> {
    let shown: Answer<Show> = endpoint.ask("Show", &json!({ "job": job }))?;
    let views = shown.body.job.attempts.iter().filter(|view| !view.actions.is_empty());
    let begun: Vec<Attempt> = views.map(|view| view.attempt).collect();
    let mut asked = RequestedAttempts::default();
    if begun.len() > 1 {
        let parameters = json!({"job": job, "after": 0, "follow": false});
        endpoint.follow(&mut endpoint.open()?, "Events", &parameters, |answer: Answer<Events>| {
            answer.body.events.iter().for_each(|entry| asked.note(entry));
            Ok::<_, Fault>(())
        })?;
    }
    Ok(asked.meant(begun.into_iter()))
}

#[derive(Debug, Deserialize)]
struct Part {
    tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
struct Show {
    job: JobView,
}

struct Raw(Value);

impl Render for Raw {
    fn table(&self, _page: &mut Page) {}

    fn json(&self) -> Option<Value> {
        Some(self.0.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

/// A finished task. Times are in milliseconds; `asked_ms` is by the controller's clock, `began_ms` by the node's clock.
#[derive(Debug, Clone, Deserialize)]
struct Task {
    attempt: Attempt,
    action: ActionName,
    asked_ms: u64,
    rank: u32,
    host: Option<String>,
    outcome: String,
    began_ms: u64,
    elapsed_ms: u64,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Deserialize)]
struct Step {
    script: String,
    #[serde(rename = "try")]
    nth: u32,
    /// When the try began, in milliseconds after the task began.
    after_ms: u64,
    elapsed_ms: u64,
    /// Exit status as a shell gives it, 128 + N for signal N; `None`: the script did not end.
    status: Option<u8>,
    tolerable: bool,
    timed_out: bool,
}

impl Step {
    fn failed(&self) -> bool {
        self.status != Some(0)
    }

    /// Returns the end of a try for people, such as `exit 1, try 2`; empty for a first try that plainly ended with 0.
    fn label(&self) -> String {
        let status = match self.status {
            None => "did not end".to_owned(),
            Some(0) => String::new(),
            Some(status @ 129..=192) => format!("signal {}", perilog_core::outcome::signal_name(status - 128)),
            Some(status) => format!("exit {status}"),
        };
        let mut words = vec![status];
        words.extend((self.nth > 1).then(|| format!("try {}", self.nth)));
        words.extend(self.timed_out.then(|| "past its limit".to_owned()));
        words.extend(self.tolerable.then(|| "tolerable".to_owned()));
        words.retain(|word| !word.is_empty());
        words.join(", ")
    }
}

/// The actions of an attempt, with the tasks of each.
struct Timeline {
    job: JobId,
    attempt: Option<AttemptView>,
    actions: Vec<Action>,
    all: bool,
}

/// An action of the timeline: its ended tasks, and its unfinished work.
struct Action {
    name: ActionName,
    began_ms: u64,
    /// The word of the verdict; `None`: the action is open.
    verdict: Option<String>,
    ended_ms: Option<u64>,
    tasks: Vec<Task>,
    open: Vec<PsRow>,
    /// Names of scripts, in the order of their first appearance.
    scripts: Vec<String>,
    /// Ranks that ended without a result of their scripts: lost, refused, resolved.
    unreported: IdSet,
}

impl Action {
    fn of(view: &ActionView, tasks: Vec<Task>) -> Self {
        let mut unreported = view.ok.clone();
        let left_out = view.more.iter().map(|more| &more.ranks);
        for ranks in view.ended.iter().map(|row| &row.ranks).chain(left_out) {
            unreported.extend_with(ranks);
        }
        unreported.subtract(&tasks.iter().map(|task| task.rank).collect());
        Self {
            name: view.name.clone(),
            began_ms: view.began_ms,
            verdict: view.verdict.map(|verdict| verdict.as_str().to_owned()),
            ended_ms: view.ended_ms,
            scripts: scripts(&tasks),
            tasks,
            open: view.open.clone(),
            unreported,
        }
    }
}

fn scripts(tasks: &[Task]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in tasks.iter().flat_map(|task| &task.steps) {
        if !names.contains(&step.script) {
            names.push(step.script.clone());
        }
    }
    names
}

impl Timeline {
    fn new(job: JobView, tasks: Vec<Task>, args: &Args) -> Self {
        let reported = tasks.first().map(|task| task.attempt);
        let wanted = args.attempt.or(reported);
        let attempt = match wanted {
            Some(wanted) => job.attempts.into_iter().find(|view| view.attempt == wanted),
            None => job.attempts.into_iter().max_by_key(|view| view.attempt),
        };
        let mut views: Vec<&ActionView> = attempt.iter().flat_map(|view| &view.actions).collect();
        views.retain(|view| args.action.as_ref().is_none_or(|action| view.name == *action));
        views.sort_by_key(|view| view.began_ms);
        let mut by_action = std::collections::HashMap::<ActionName, Vec<Task>>::new();
        for task in tasks {
            by_action.entry(task.action.clone()).or_default().push(task);
        }
        let of = |view: &ActionView| Action::of(view, by_action.remove(&view.name).unwrap_or_default());
        let actions = views.into_iter().map(of).collect();
        Self { job: args.job.clone(), attempt, actions, all: args.all }
    }
}

#[cfg(test)]
mod tests;
