//! `perilog why`: the chain from a node to the stuck task on it, and the next command to type.

use perilog_core::controller::view::{PsRow, WhyTask, WhyView};
use perilog_core::message::Phase;
use perilog_core::{Attempt, HostName, JobId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::show::{details, last_line};
use crate::columns::{Columns, cell, styled};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values, when};

/// Why a node is not free, and what to type next
///
/// Shows whether it is drained, and why; which job or action holds it, and until when; the unfinished tasks on it, with
/// script, age and last output; and the commands to type next. With --quiet: the units of unfinished tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "NODE", value_parser = values::one_host)]
    node: HostName,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let answer: Answer<Why> = endpoint.ask("Why", &json!({ "node": args.node }))?;
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Why {
    why: WhyView,
}

impl Render for Answer<Why> {
    fn table(&self, page: &mut Page) {
        let WhyView { node, open, failed, held, next } = &self.body.why;
        let mut known = vec![format!("for {}", text::age(page.now_ms.saturating_sub(node.since_ms)))];
        known.extend(node.boot_number.map(|n| format!("boot #{n}")));
        known.extend(node.version.as_deref().map(|version| format!("perilog {}", text::line(version))));
        known.extend(node.peer.as_deref().map(|peer| format!("from {}", text::line(peer))));
        page.line(format_args!(
            "{}  {}  {}",
            style::STRONG.style(text::line(&node.host)),
            style::worded(&node.state, &text::line(&node.state)),
            style::QUIET.style(known.join(", "))
        ));
        if let Some(note) = &node.note {
            page.line(format_args!("  {}", style::CARE.style(text::line(note))));
        }
        if let Some(drain) = &node.drain {
            let mut reason = |word: &str, since_ms: u64, reason: &str, by: Option<u32>| {
                let by = by.map(|uid| format!(" (by uid {uid})")).unwrap_or_default();
                let (word, since) = (style::CARE.style(word), when::second(since_ms));
                page.line(format_args!("  {word} since {since}: {}{by}", text::line(reason)));
            };
            reason(super::drain::state(drain.lifted, drain.confirmed), drain.since_ms, &drain.reason, drain.by);
            if let Some(again) = &drain.again {
                reason("also", again.at_ms, &again.reason, again.by);
            }
        }
        for row in held {
            let by = match row.action.as_str() {
                "job" => format!("job {}", job_of(row)),
                action => format!("{action} of {}", job_of(row)),
            };
            let why = format!("{} ({})", text::line(&row.why), text::age(row.age_ms));
            page.line(format_args!("  {} by {by}: {why}", style::STRONG.style("held")));
        }
        if open.is_empty() {
            let free = node.state == "online" && node.drain.is_none() && held.is_empty();
            page.line(if free {
                "  free: it is not drained, no job holds it, and no script runs"
            } else {
                "  no script runs here"
            });
        }
        for (at, command) in next.iter().enumerate() {
            let head = style::QUIET.style(if at == 0 { "next" } else { "or  " });
            page.line(format_args!("  {head}  {}", text::line(command)));
        }
        // The verb shows no attempts, unless the list has another attempt than the job's first.
        let all = || open.iter().chain(failed);
        let requeued = |job: &JobId| all().any(|task| task.job == *job && task.attempt != Attempt::FIRST);
        for task in open {
            page.blank();
            task.show(page, requeued(&task.job), &text::age(task.age_ms));
        }
        if !failed.is_empty() {
            page.blank();
            page.line("earlier failures, newest first:");
        }
        for task in failed {
            page.blank();
            task.show(page, requeued(&task.job), &format!("{} ago", text::age(task.age_ms)));
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        for task in &self.body.why.open {
            page.line(text::line(&task.unit));
        }
    }
}

fn job_of(row: &PsRow) -> &str {
    row.job.as_ref().map_or("-", JobId::as_str)
}

trait Chain {
    fn show(&self, page: &mut Page, requeued: bool, age: &str);
}

impl Chain for WhyTask {
    /// Prints the task's state, then a line each for its script, the reason, its unit and the commands to type next.
    /// `requeued`: shows the attempt too. `age`: the task's age as text.
    fn show(&self, page: &mut Page, requeued: bool, age: &str) {
        let outcome = self.ended.as_ref().map(|ended| ended.outcome.to_string());
        let (state, word) = match (&self.ended, &outcome) {
            (Some(ended), Some(outcome)) => (outcome.as_str(), ended.outcome.as_str()),
            _ => (self.state.as_str(), self.state.as_str()),
        };
        page.line(format_args!(
            "  {} of {}, rank {}{}: {} {}",
            style::STRONG.style(&self.action),
            style::STRONG.style(&self.job),
            self.rank,
            if requeued { format!(", attempt {}", self.attempt) } else { String::new() },
            style::worded(word, &text::line(state)),
            style::QUIET.style(age)
        ));
        let mut columns = Columns::headless();
        let mut link = |head: &str, what: String| columns.row([styled(head, style::QUIET), cell(what)]);
        match &self.phase {
            Some(Phase::Running { script, index, of, progress }) => {
                link("script", format!("{} ({index} of {of})", text::line(script)));
                progress.iter().for_each(|message| link("says", text::quoted(message)));
            }
            Some(Phase::Overdue { script, limit_ms, doing }) => {
                link("script", format!("{}, limit {}", text::line(script), text::age(*limit_ms)));
                if !doing.is_empty() {
                    link("doing", text::line(doing));
                }
            }
            Some(Phase::Lingering { processes }) => {
                for process in processes {
                    link("process", format!("{} {}", process.pid, text::line(&process.command)));
                }
            }
            _ => {}
        }
        let is_shown = matches!(&self.phase, Some(Phase::Running { script, index, of, .. })
            if self.why == format!("{script} ({index} of {of})"));
        if !self.why.is_empty() && self.ended.is_none() && !is_shown {
            link("why", text::line(&self.why));
        }
        if let Some(last) = self.ended.as_ref().and_then(last_line) {
            link("last line", text::quoted(&last));
        }
        if !self.unit.is_empty() {
            link("unit", text::line(&self.unit));
        }
        for (at, command) in self.next.iter().enumerate() {
            link(if at == 0 { "next" } else { "or" }, text::line(command));
        }
        page.indented(4, columns);
        if let Some(ended) = &self.ended {
            details(ended, "", page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::people;

    fn why(node: Value, held: Value, next: Value) -> String {
        with_open(node, json!([]), held, next)
    }

    fn with_open(node: Value, open: Value, held: Value, next: Value) -> String {
        let mut of = json!({"host": "n0", "state": "online", "since_ms": 20_000, "machine": "m", "boot": "b",
                            "boot_number": 1,
            "version": "0.1.0", "peer": "10.0.0.2:4000", "tasks": 0, "note": null});
        if let (Value::Object(of), Value::Object(more)) = (&mut of, node) {
            of.extend(more);
        }
        let raw = json!({"why": {"node": of, "open": open, "failed": [], "held": held, "next": next}});
        let text = people(&Answer { body: Why::deserialize(&raw).unwrap(), raw }, 0);
        text.lines().skip(1).map(|line| format!("{line}\n")).collect()
    }

    /// Regression test: for a node that was drained, held or away, `perilog why` printed "nothing of any job is open on
    /// it", and no next step.
    #[test]
    fn a_node_that_is_not_free_says_why() {
        let drain =
            json!({"host": "n0", "since_ms": 0, "reason": "bad dimm", "by": 0, "confirmed": true, "lifted": false});
        let held = json!([{"job": "h2", "attempt": "0", "action": "epilog", "ranks": "0", "hosts": "n0",
                           "state": "held", "why": "done here",
            "age_ms": 3_000, "local": false}]);
        let mut also = drain.clone();
        also["again"] = json!({"reason": "10-gpu: failed (exit 1)", "by": null, "at_ms": 60_000});
        let (since, later) = (when::second(0), when::second(60_000));
        for (node, held, next, expect) in [
            (
                json!({}),
                json!([]),
                json!([]),
                "  free: it is not drained, no job holds it, and no script runs\n".to_owned(),
            ),
            (
                json!({"drain": drain}),
                json!([]),
                json!(["perilog undrain n0"]),
                format!(
                    "  drained since {since}: bad dimm (by uid 0)\n  no script runs here\n  next  perilog undrain n0\n"
                ),
            ),
            (
                json!({"drain": also}),
                json!([]),
                json!(["perilog undrain n0"]),
                format!(
                    "  drained since {since}: bad dimm (by uid 0)\n  also since {later}: 10-gpu: failed (exit 1)\n  \
                     no script runs here\n  next  perilog undrain n0\n"
                ),
            ),
            (
                json!({"held": true}),
                held,
                json!([]),
                "  held by epilog of h2: done here (3s)\n  no script runs here\n".to_owned(),
            ),
            (
                json!({"state": "offline"}),
                json!([]),
                json!(["ssh n0 perilog doctor", "ssh n0 systemctl status perilog-agent"]),
                "  no script runs here\n  next  ssh n0 perilog doctor\n  or    ssh n0 systemctl status perilog-agent\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(why(node, held, next), expect);
        }
    }

    /// Regression test: for a running script, `perilog why` printed the same words twice: as the script and as the
    /// reason.
    #[test]
    fn a_running_script_is_named_once() {
        let running = |why: &str| {
            let phase = json!({"phase": "running", "script": "50-umount", "index": 1, "of": 2, "progress": null});
            let open = json!([{"job": "f1", "attempt": "0", "action": "epilog", "rank": 0, "unit": "",
                               "state": "running", "phase": phase,
                "age_ms": 2_000, "why": why, "ended": null, "next": []}]);
            with_open(json!({}), open, json!([]), json!([]))
        };
        let head = "\n  epilog of f1, rank 0: running 2s\n    script  50-umount (1 of 2)\n";
        assert_eq!(running("50-umount (1 of 2)"), head);
        let asked = "50-umount (1 of 2); cancel asked for";
        assert_eq!(running(asked), format!("{head}    why     {asked}\n"));
    }
}
