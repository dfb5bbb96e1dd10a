//! The timeline as a table.

use super::{Action, Task, Timeline};
use crate::columns::{Columns, cell, word};
use crate::out::{Page, Render};
use crate::{style, text, when};

/// Number of the slowest ranks of an action that the table shows without `--all`.
const SLOWEST: usize = 20;

impl Render for Timeline {
    fn table(&self, page: &mut Page) {
        let attempt = self.attempt.as_ref();
        let number = attempt.map(|view| format!("  attempt {}", view.attempt)).unwrap_or_default();
        page.line(format_args!("job {}{number}", style::STRONG.style(&self.job)));
        if self.actions.is_empty() {
            page.line("  no action");
        }
        for action in &self.actions {
            page.blank();
            show(action, self.all, page);
        }
    }

    fn json(&self) -> Option<serde_json::Value> {
        None
    }

    fn quiet(&self, page: &mut Page) {
        for (action, task) in self.actions.iter().flat_map(|action| action.tasks.iter().map(move |task| (action, task)))
        {
            page.line(format_args!("{} {} {}", action.name, task.rank, task.elapsed_ms));
        }
    }
}

fn show(action: &Action, all: bool, page: &mut Page) {
    let state = action.verdict.as_deref().unwrap_or("open");
    let lasted = match action.ended_ms {
        Some(ended) => format!("took {}", text::elapsed(ended.saturating_sub(action.began_ms))),
        None => format!("for {}", text::age(page.now_ms.saturating_sub(action.began_ms))),
    };
    page.line(format_args!(
        "{}  {}  {}",
        style::STRONG.style(&action.name),
        style::worded(state, state),
        style::QUIET.style(format!("{}, {lasted}", when::second(action.began_ms)))
    ));
    scripts(action, page);
    ranks(action, all, page);
    let mut columns = Columns::headless();
    for row in &action.open {
        let why = format!("{}  ({})", text::line(&row.why), text::age(row.age_ms));
        columns.row([word(&text::line(&row.state)), cell(crate::verb::ps::over(row)), cell(why)]);
    }
    page.indented(2, columns);
    if !action.unreported.is_empty() {
        let line = format!("no times of scripts are known for {} (perilog show)", text::ranks(&action.unreported));
        page.line(format_args!("  {}", style::QUIET.style(line)));
    }
}

fn scripts(action: &Action, page: &mut Page) {
    let mut columns = Columns::new(["SCRIPT", "RUNS", "FAILED", "MIN", "MEDIAN", "MAX", "SLOWEST ON"]);
    for column in 1..6 {
        columns = columns.right(column);
    }
    for name in &action.scripts {
        let of = |task: &'_ Task| task.steps.iter().filter(|step| step.script == *name).map(|s| s.elapsed_ms).max();
        let steps = || action.tasks.iter().flat_map(|task| &task.steps).filter(|step| step.script == *name);
        let mut times: Vec<u64> = steps().map(|step| step.elapsed_ms).collect();
        times.sort_unstable();
        let failed = steps().filter(|step| step.failed()).count();
        let slowest = action.tasks.iter().max_by_key(|task| of(task));
        let (Some(min), Some(max)) = (times.first(), times.last()) else { continue };
        let median = times[(times.len() - 1) / 2];
        let failed = if failed > 0 { crate::columns::styled(failed.to_string(), style::BAD) } else { cell("") };
        columns.row([
            cell(text::line(name)),
            cell(times.len().to_string()),
            failed,
            cell(text::elapsed(*min)),
            cell(text::elapsed(median)),
            cell(text::elapsed(*max)),
            cell(slowest.map(host).unwrap_or_default()),
        ]);
    }
    page.indented(2, columns);
}

fn ranks(action: &Action, all: bool, page: &mut Page) {
    let mut tasks: Vec<&Task> = action.tasks.iter().collect();
    tasks.sort_by_key(|task| (std::cmp::Reverse(task.elapsed_ms), task.rank));
    let shown = if all { tasks.len() } else { SLOWEST };
    let mut columns = Columns::new(["RANK", "NODE", "OUTCOME", "AFTER", "TOOK", "SCRIPTS"]).right(0).right(3).right(4);
    for task in tasks.iter().take(shown) {
        let steps: Vec<String> = task
            .steps
            .iter()
            .map(|step| match step.label() {
                label if label.is_empty() => format!("{} {}", text::line(&step.script), text::elapsed(step.elapsed_ms)),
                label => format!("{} {} ({label})", text::line(&step.script), text::elapsed(step.elapsed_ms)),
            })
            .collect();
        columns.row([
            cell(task.rank.to_string()),
            cell(host(task)),
            word(&text::line(&task.outcome)),
            cell(after(task)),
            cell(text::elapsed(task.elapsed_ms)),
            cell(steps.join(", ")),
        ]);
    }
    page.indented(2, columns);
    if let Some(more) = tasks.len().checked_sub(shown).filter(|more| *more > 0) {
        page.line(format_args!("  {}", style::QUIET.style(format!("and the {more} fastest (--all)"))));
    }
}

fn host(task: &Task) -> String {
    task.host.as_deref().map_or_else(|| "?".to_owned(), text::line)
}

/// Formats the time from the request to the start of the task; negative if the node's clock is behind.
fn after(task: &Task) -> String {
    match task.began_ms.checked_sub(task.asked_ms) {
        Some(after) => text::elapsed(after),
        None => format!("-{}", text::elapsed(task.asked_ms - task.began_ms)),
    }
}
