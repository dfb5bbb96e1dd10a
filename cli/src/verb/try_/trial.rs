//! Output of `perilog try` for people: the phase of the task, what scripts print, the end of each step.

use perilog_core::ExitStatus;
use perilog_core::message::Phase;
use perilog_core::task::Step;
use serde_json::Value;

use super::journal::Journal;
use crate::columns::{Columns, cell, styled};
use crate::endpoint::Answer;
use crate::exec::{Reply, describe};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, Page, Render};
use crate::{style, text};

pub(super) struct Trial {
    out: Out,
    /// Name of the task's unit, with the reader of its output in the journal; `None` until the agent names the unit.
    journal: Option<(String, Journal)>,
    last_phase: Option<Phase>,
    milestone: Option<String>,
}

enum TryOutput<'a> {
    /// A reply of the agent, unchanged, for programs.
    Raw(&'a Value),
    Line(String),
    End(&'a Reply),
}

impl Trial {
    pub(super) const fn new(out: Out) -> Self {
        Self { out, journal: None, last_phase: None, milestone: None }
    }

    pub(super) fn unit(&self) -> Option<&str> {
        self.journal.as_ref().map(|(unit, _)| unit.as_str())
    }

    pub(super) fn reply(&mut self, reply: &Answer<Reply>) -> Result<Option<Exit>, Fault> {
        self.out.show(&TryOutput::Raw(&reply.raw))?;
        let body = &reply.body;
        // Before the task is known a reply has no unit.
        if !body.unit.is_empty() && self.unit() != Some(&body.unit) {
            let attached = if body.attached == Some(true) { "attached to " } else { "" };
            self.out.show(&TryOutput::Line(
                style::QUIET.style(format!("{attached}{}", text::line(&body.unit))).to_string(),
            ))?;
            self.journal = Some((body.unit.clone(), Journal::new(body.unit.clone())));
        }
        if let Some(phase) = body.phase.as_ref().filter(|phase| self.last_phase.as_ref() != Some(*phase)) {
            self.show_output()?;
            self.last_phase = Some(phase.clone());
            self.out.show(&TryOutput::Line(style::STRONG.style(describe(phase)).to_string()))?;
        }
        if let Some(name) = body.milestone.as_ref().filter(|name| self.milestone.as_ref() != Some(*name)) {
            self.show_output()?;
            self.milestone = Some(name.clone());
            let line = format!("reached {}", text::line(name));
            self.out.show(&TryOutput::Line(style::STRONG.style(line).to_string()))?;
        }
        if !body.is_last() {
            return Ok(None);
        }
        if self.out.format == OutputFormat::Table {
            Journal::settle();
        }
        self.show_output()?;
        self.out.show(&TryOutput::End(body))?;
        Ok(Some(body.exit()))
    }

    /// Prints the output that the task has written to the journal since the last call. Prints nothing in the formats
    /// JSON and quiet.
    pub(super) fn show_output(&mut self) -> Result<(), Fault> {
        if self.out.format == OutputFormat::Table
            && let Some((_, journal)) = &mut self.journal
        {
            for line in journal.news() {
                self.out.show(&TryOutput::Line(format!("  {}", text::block(&line))))?;
            }
        }
        Ok(())
    }
}

impl Render for TryOutput<'_> {
    fn table(&self, page: &mut Page) {
        match self {
            Self::Raw(_) => {}
            Self::Line(line) => page.line(line),
            Self::End(reply) => end(reply, page),
        }
    }

    fn json(&self) -> Option<Value> {
        match self {
            Self::Raw(raw) => Some((*raw).clone()),
            _ => None,
        }
    }

    fn quiet(&self, _page: &mut Page) {}
}

/// Prints the end of the task of `perilog try`: the scripts' results, the last output of those that failed, checks,
/// milestones and notes, and last the outcome.
fn end(reply: &Reply, page: &mut Page) {
    if let Some(ended) = &reply.ended {
        let mut columns = Columns::new(["SCRIPT", "RESULT", "TOOK", "NOTE"]).right(2);
        for step in &ended.steps {
            let (word, result) = result(step, ended);
            columns.row([
                cell(text::line(&step.script)),
                styled(result, style::of(word)),
                cell(text::elapsed(step.elapsed_ms)),
                cell(note(step)),
            ]);
        }
        page.columns(columns);
        for tail in &ended.tails {
            page.line(format_args!("the end of what {} printed:", text::line(&tail.script)));
            text::block(&tail.text)
                .lines()
                .for_each(|line| page.line(format_args!("  {}", style::QUIET.style(format!("| {line}")))));
        }
        for check in &ended.checks {
            page.line(format_args!("check {}: {}", text::line(&check.check), text::quoted(&check.message)));
        }
        for name in &ended.milestones {
            page.line(format_args!("milestone {}", text::line(name)));
        }
        if ended.dropped_env > 0 {
            let dropped = text::count(u64::from(ended.dropped_env), "variable");
            page.line(format_args!("{dropped} not passed to the scripts: not in env-allow of agent.toml"));
        }
        for line in ended.note.iter().chain(&ended.user_message) {
            page.line(text::line(line));
        }
    }
    if let (Some(outcome), Some(result)) = (reply.outcome(), reply.result()) {
        let elapsed =
            reply.ended.as_ref().and_then(|ended| ended.elapsed_ms).map(|ms| format!(" after {}", text::elapsed(ms)));
        page.line(format_args!("{}{}", style::worded(outcome.as_str(), &result), elapsed.unwrap_or_default()));
    }
}

fn result(step: &Step, ended: &perilog_core::task::Ended) -> (&'static str, String) {
    match step.status {
        _ if step.tolerable => ("tolerable", "tolerable".to_owned()),
        Some(ExitStatus::Exit(0)) => ("ok", "ok".to_owned()),
        Some(status) => ("failed", status.to_string()),
        None if ended.elapsed_ms.is_some() => ("failed", "not executed".to_owned()),
        None => ("lost", "did not end".to_owned()),
    }
}

fn note(step: &Step) -> String {
    let mut notes = Vec::new();
    if step.attempt > 1 {
        notes.push(format!("try {}", step.attempt));
    }
    if step.timed_out {
        notes.push("past its limit".to_owned());
    }
    if step.tolerable
        && let Some(status) = step.status
    {
        notes.push(status.to_string());
    }
    notes.join(", ")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::out::tests::people;

    fn reply(body: &Value) -> Reply {
        Reply::deserialize(body).unwrap()
    }

    #[test]
    fn the_end_has_a_line_for_each_script() {
        let step = |script: &str, attempt: u32, exit: u8, tolerable: bool| {
            json!({"script": script, "digest": "d", "attempt": attempt, "began_ms": 0, "elapsed_ms": 1500,
                   "status": {"exit": exit},
                   "tolerable": tolerable, "timed_out": false})
        };
        let body = json!({"unit": "u.service", "status": 7, "ended": {
            "outcome": {"outcome": "failed", "why": {"exit": 7}}, "began_ms": 0, "ended_ms": 4500, "elapsed_ms": 4500,
            "steps": [step("/etc/p/10-a.sh", 1, 0, false), step("/etc/p/20-b.sh", 2, 7, false),
                      step("/etc/p/30-c.sh", 1, 2, true)],
            "tails": [{"script": "/etc/p/20-b.sh", "text": "no such device\n"}], "dropped_env": 1}});
        let reply = reply(&body);
        assert!(reply.is_last());
        assert_eq!(reply.exit(), Exit::Status(7));
        assert_eq!(
            people(&TryOutput::End(&reply), 0),
            "SCRIPT          RESULT     TOOK  NOTE\n\
             /etc/p/10-a.sh  ok         1.5s\n\
             /etc/p/20-b.sh  exit 7     1.5s  try 2\n\
             /etc/p/30-c.sh  tolerable  1.5s  exit 2\n\
             the end of what /etc/p/20-b.sh printed:\n\
             \u{20} | no such device\n\
             1 variable not passed to the scripts: not in env-allow of agent.toml\n\
             failed (exit 7) after 4.5s\n"
        );
    }

    #[test]
    fn an_end_without_a_status_is_never_success() {
        let unit = json!({"unit": "u.service"});
        let with = |more: Value| {
            let mut body = unit.clone();
            if let (Value::Object(all), Value::Object(more)) = (&mut body, more) {
                all.extend(more);
            }
            reply(&body)
        };
        assert!(!with(json!({"phase": {"phase": "starting"}})).is_last());
        assert_eq!(with(json!({"outcome": {"outcome": "lost", "why": "vanished"}})).exit(), Exit::Lost);
        assert_eq!(with(json!({"outcome": {"outcome": "ok"}})).exit(), Exit::Ok);
        assert_eq!(with(json!({"outcome": {"outcome": "tolerable"}})).exit(), Exit::Failed);
        assert_eq!(with(json!({})).exit(), Exit::Other);
    }
}
