//! `perilog logs`: the output of a job's scripts, read from the nodes themselves.

use std::collections::BTreeMap;

use perilog_core::message::MAX_LOG_LINES;
use perilog_core::{ActionName, Attempt, JobId, Targets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Face, Faces, Out, Page, aside};
use crate::{style, text, values};

/// Output of a job's scripts, read from the nodes
///
/// The kept output of each script, and its lines in the node's journal. A node that cannot be asked is named at the
/// end, and makes the exit status 4. With --quiet: the lines without their host.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only of these ranks, as an idset or as a hostlist.
    #[arg(long = "rank", visible_aliases = ["ranks", "targets"], value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Only this action.
    #[arg(long, value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// The attempt; the open one, or the newest, if absent.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// At most so many of the last lines of each node; a node sends at most 10000.
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LOG_LINES)))]
    lines: Option<u32>,
}

/// Number of bytes of an unfinished line above which the verb prints what has come of the line.
const LONGEST_LINE: usize = 64 * 1024;

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let mut client = door.open()?;
    let mut lines = Lines::default();
    let mut unreachable = String::new();
    door.follow(&mut client, "Logs", &args, |answer: Answer<Part>| {
        if let Some(hosts) = &answer.body.unreachable {
            unreachable.clone_from(hosts);
        }
        let shown = Shown { lines: lines.take(&answer.body), answer };
        out.show(&shown)
    })?;
    if lines.none && unreachable.is_empty() && out.face == Face::Table {
        aside(format_args!("the scripts of {} printed nothing that was kept", args.job));
    }
    if unreachable.is_empty() {
        return Ok(Exit::Ok);
    }
    let hosts = text::line(&unreachable);
    aside(format_args!("could not ask {hosts}; on the node itself: journalctl PERILOG_JOB={}", args.job));
    Ok(Exit::Lost)
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    last: Option<bool>,
    #[serde(default)]
    unreachable: Option<String>,
}

/// Joins the parts of output that the controller sends into whole lines, separately for each host.
struct Lines {
    /// By host: the text of a line whose end has not arrived yet, at most [`LONGEST_LINE`] bytes.
    begun: BTreeMap<String, String>,
    none: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { begun: BTreeMap::new(), none: true }
    }
}

impl Lines {
    fn take(&mut self, part: &Part) -> Vec<(String, String)> {
        let Some(host) = &part.host else { return Vec::new() };
        let begun = self.begun.entry(host.clone()).or_default();
        begun.push_str(part.text.as_deref().unwrap_or_default());
        let mut whole = match begun.rfind('\n') {
            Some(end) => begun.drain(..=end).collect(),
            None => String::new(),
        };
        if begun.len() > LONGEST_LINE || part.last == Some(true) {
            whole.push_str(&std::mem::take(begun));
        }
        let lines: Vec<_> = text::block(&whole).lines().map(|line| (text::line(host), line.to_owned())).collect();
        self.none &= lines.is_empty();
        lines
    }
}

struct Shown {
    lines: Vec<(String, String)>,
    answer: Answer<Part>,
}

impl Faces for Shown {
    fn table(&self, page: &mut Page) {
        for (host, line) in &self.lines {
            page.line(format_args!("{} {line}", style::QUIET.style(format!("{host}:"))));
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.answer.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        self.lines.iter().for_each(|(_, line)| page.line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_several_hosts_become_whole_lines() {
        let mut lines = Lines::default();
        let mut take = |host: &str, text: &str, last: bool| {
            let part =
                Part { host: Some(host.to_owned()), text: Some(text.to_owned()), last: Some(last), unreachable: None };
            lines.take(&part).into_iter().map(|(host, line)| format!("{host}: {line}")).collect::<Vec<_>>()
        };
        assert_eq!(take("n0", "one\ntw", false), ["n0: one"]);
        assert_eq!(take("n1", "\u{1b}[2Jx\n", false), ["n1: \\u{1b}[2Jx"]);
        assert_eq!(take("n0", "o\n", false), ["n0: two"]);
        assert_eq!(take("n1", "no end", true), ["n1: no end"]);
        assert_eq!(take("n0", &"y".repeat(LONGEST_LINE + 1), false).len(), 1);
        assert!(!lines.none);
    }
}
