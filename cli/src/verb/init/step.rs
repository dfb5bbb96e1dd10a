//! Steps of `init` and `init undo`, and the plan that lists them. A plan also lists changes that are made already, as
//! items without a step.

use std::path::PathBuf;

use perilog_core::HostList;
use serde_json::{Value, json};

use super::enrol::Enrolling;
use crate::columns::{Columns, cell, styled};
use crate::out::{Page, Render};
use crate::verb::ca::Name;
use crate::verb::ca::files::Who;
use crate::{style, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a certificate authority in this directory.
    Authority { dir: PathBuf },
    /// Issue the controller's certificate; `to` gets ca.pem, cert.pem and key.pem.
    Issue { ca: PathBuf, names: Vec<Name>, to: PathBuf },
    /// Write `text` to a file that only `init` writes. `who`: the users that can read the file.
    Write { path: PathBuf, who: Who, text: String },
    /// Get the node's certificate from the controller.
    Enrol(Box<Enrolling>),
    /// Enable these units and start them; `anew`: restart those that run.
    Start { units: Vec<&'static str>, anew: bool },
    /// Ask the controller to make one-time tokens for these hosts.
    Tokens { hosts: HostList },
    /// Wait until the controller has welcomed this node's agent.
    Online,
    /// Disable these units and stop them.
    Stop { units: Vec<String> },
    /// Remove a file that init wrote.
    Remove { path: PathBuf },
    /// Remove a directory that init made, if it is empty.
    RemoveDirectory { path: PathBuf },
    /// Make systemd read its units again, and restart these units if they run.
    Reload { running: Vec<&'static str> },
}

/// A line of the plan. `step`: the change; `None`: the change is made already.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    text: String,
    step: Option<Step>,
    /// The lines of the file that the step writes, where the operator should read them first.
    lines: Vec<String>,
}

/// The plan for one host, in the order of the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    title: String,
    items: Vec<Item>,
    /// Remarks for the operator, such as the files that `undo` leaves.
    notes: Vec<String>,
}

impl Plan {
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), items: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn add(&mut self, text: impl Into<String>, step: Step) {
        self.add_shown(text, step, Vec::new());
    }

    /// Adds a step that writes a file, with lines of the file for the operator to read.
    pub(super) fn add_shown(&mut self, text: impl Into<String>, step: Step, lines: Vec<String>) {
        self.items.push(Item { text: text.into(), step: Some(step), lines });
    }

    pub(super) fn is_there(&mut self, text: impl Into<String>) {
        self.items.push(Item { text: text.into(), step: None, lines: Vec::new() });
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Returns `true` if the plan has no steps.
    pub(super) fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = (&str, &Step)> {
        self.items.iter().filter_map(|item| Some((item.text.as_str(), item.step.as_ref()?)))
    }

    #[cfg(test)]
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the texts of the items: `+` before a change that `init` will make, `=` before one that is made already.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        let sign = |item: &Item| if item.step.is_some() { '+' } else { '=' };
        self.items.iter().map(|item| format!("{} {}", sign(item), item.text)).collect()
    }
}

/// The plan as output. `state`: `planned`, or `done` after `init` has carried it out.
pub(super) struct Shown<'a> {
    plan: &'a Plan,
    state: &'static str,
}

impl<'a> Shown<'a> {
    pub(super) const fn planned(plan: &'a Plan) -> Self {
        Self { plan, state: "planned" }
    }

    pub(super) const fn done(plan: &'a Plan) -> Self {
        Self { plan, state: "done" }
    }
}

impl Render for Shown<'_> {
    fn table(&self, page: &mut Page) {
        let there: Vec<&str> =
            self.plan.items.iter().filter(|item| item.step.is_none()).map(|item| item.text.as_str()).collect();
        let todo = if self.plan.is_empty() { ": nothing to do" } else { ":" };
        page.line(style::STRONG.style(format!("{}{todo}", self.plan.title)));
        let mut columns = Columns::headless().right(0);
        for text in there {
            columns.row([styled("=", style::QUIET), cell(text::line(text))]);
        }
        for (number, item) in (1..).zip(self.plan.items.iter().filter(|item| item.step.is_some())) {
            columns.row([cell(format!("{number}")), cell(text::line(&item.text))]);
            for line in &item.lines {
                columns.row([cell(""), styled(format!("  | {}", text::line(line)), style::QUIET)]);
            }
        }
        page.indented(2, columns);
        for note in &self.plan.notes {
            page.line(text::line(note));
        }
    }

    fn json(&self) -> Option<Value> {
        let state = |item: &Item| if item.step.is_some() { self.state } else { "there" };
        let step = |item: &Item| match item.lines.as_slice() {
            [] => json!({"text": item.text, "state": state(item)}),
            lines => json!({"text": item.text, "state": state(item), "lines": lines}),
        };
        let steps: Vec<Value> = self.plan.items.iter().map(step).collect();
        Some(json!({"title": self.plan.title, "steps": steps, "notes": self.plan.notes}))
    }

    fn quiet(&self, _: &mut Page) {}
}
