//! `perilog logs`: the output of a job's scripts, read from the nodes themselves.

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use perilog_core::hostlist::by_number;
use perilog_core::message::MAX_LOG_LINES;
use perilog_core::{ActionName, Attempt, JobId, Targets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, Page, Render, aside};
use crate::session::{SessionEvent, Stop, keep};
use crate::{style, text, values, when};

/// Output of a job's scripts, read from the nodes
///
/// Shows the kept output of each script, and its lines in the node's journal, in order of time, then of nodes. Nodes
/// that do not answer are named at the end; the exit status is then 4. With --quiet: the lines without their host. With
/// --json: the parts in the order in which they arrive.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only the output of these ranks, as an idset or as a hostlist.
    #[arg(long = "rank", visible_aliases = ["ranks", "targets"], aliases = ["node", "nodes"],
          value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
    /// Only this action.
    #[arg(long, value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// Number of the attempt; default: the open one, or the newest.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// At most the last N lines of each node, up to 10000. Default: 100, with --since 10000.
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LOG_LINES)))]
    lines: Option<u32>,
    /// Only lines since this time: how long ago (90s, 5m, 2h, 7d, 1w), a date, or a date and time.
    #[arg(short = 'S', long = "since", value_name = "TIME", value_parser = when::parse)]
    #[serde(skip)]
    since_ms: Option<u64>,
    /// Show new lines as they come, until Ctrl-C. The command asks the nodes again after a pause of 2 s, plus 10 ms for
    /// each node.
    #[arg(short, long)]
    #[serde(skip)]
    follow: bool,
}

/// Number of bytes of an unfinished line above which the verb prints what has come of the line.
const LONGEST_LINE: usize = 64 * 1024;
/// Number of bytes of lines that the verb holds back to bring them into order. If more come, it prints what it holds.
const HELD: usize = 64 * 1024 * 1024;
/// Number of lines of each node that the verb prints without `--lines`. The controller's default is the same.
const LINES: u32 = 100;
/// Pause of `--follow` between two requests to the nodes; one second more for each hundred nodes.
const PAUSE: Duration = Duration::from_secs(2);
/// Minimum number of last lines that `--follow` asks each node for, also if the operator wants fewer. All answers of a
/// node have this length, so that each answer begins with lines of the one before, and none is missed in between.
const NEW: u32 = 1000;

pub(crate) fn run(mut args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    args.lines = args.lines.or(args.since_ms.and(Some(MAX_LOG_LINES)));
    if args.follow {
        return follow(args, endpoint.clone(), out);
    }
    let mut client = endpoint.open()?;
    let mut lines = Lines { since_ms: args.since_ms, ..Lines::default() };
    let mut unreachable = String::new();
    endpoint.follow(&mut client, "Logs", &args, |answer: Answer<Part>| {
        if let Some(hosts) = &answer.body.unreachable {
            unreachable.clone_from(hosts);
        }
        lines.take(&answer.body);
        match out.format {
            OutputFormat::Json => out.show(&Raw(answer.raw)),
            _ if lines.bytes > HELD => out.show(&Shown(lines.sorted())),
            _ => Ok::<_, Fault>(()),
        }
    })?;
    if out.format != OutputFormat::Json {
        out.show(&Shown(lines.sorted()))?;
    }
    if lines.none && unreachable.is_empty() && out.format == OutputFormat::Table {
        aside(format_args!("no output of the scripts of {} is kept", args.job));
    }
    if unreachable.is_empty() {
        return Ok(Exit::Ok);
    }
    let hosts = text::line(&unreachable);
    aside(format_args!(
        "no answer from {hosts}; to read the output on the node itself: journalctl PERILOG_JOB={}",
        args.job
    ));
    Ok(Exit::Lost)
}

/// Asks the nodes again and again, and prints the lines that are new.
fn follow(mut args: Args, endpoint: Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let at = endpoint.clone();
    let (mut seen, mut away) = (Seen::of(args.lines.unwrap_or(LINES)), String::new());
    args.lines = args.lines.max(Some(NEW));
    let session_events = keep(endpoint, false, move |client, sender| {
        loop {
            let mut lines = Lines { since_ms: args.since_ms, ..Lines::default() };
            at.follow(client, "Logs", &args, |answer: Answer<Part>| {
                if let Some(hosts) = answer.body.unreachable.as_ref().filter(|hosts| **hosts != away) {
                    if !hosts.is_empty() {
                        aside(format_args!("no answer from {}; this command asks again", text::line(hosts)));
                    }
                    away.clone_from(hosts);
                }
                lines.take(&answer.body);
                sender.answered()
            })?;
            let pause = PAUSE + Duration::from_millis(10) * u32::try_from(lines.hosts().count()).unwrap_or(u32::MAX);
            sender.send_message(seen.news(lines))?;
            thread::park_timeout(pause);
        }
        #[expect(unreachable_code, reason = "gives the closure its type")]
        Ok::<(), Stop>(())
    })?;
    for event in session_events {
        match event {
            SessionEvent::Message(lines) => out.show(&Shown(lines))?,
            SessionEvent::Away(fault) => aside(fault.waiting()),
            SessionEvent::Back(back) => aside(back),
            SessionEvent::Over(fault) => return Err(fault),
            SessionEvent::Done | SessionEvent::Interrupted => break,
        }
    }
    Ok(Exit::Ok)
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

/// A line of output with its node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Time in the journal, in microseconds since 1970; of a line without one, that of the line before it. `None`: no
    /// line of the node before it has a time.
    at_us: Option<i64>,
    host: String,
    text: String,
}

/// Joins the parts of output that the controller sends into whole lines, separately for each host, and brings the lines
/// into order.
struct Lines {
    /// By host: the text of a line whose end has not arrived yet, at most [`LONGEST_LINE`] bytes, and the time of the
    /// last whole line.
    begun: BTreeMap<String, (String, Option<i64>)>,
    lines: Vec<Line>,
    bytes: usize,
    since_ms: Option<u64>,
    none: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { begun: BTreeMap::new(), lines: Vec::new(), bytes: 0, since_ms: None, none: true }
    }
}

impl Lines {
    fn take(&mut self, part: &Part) {
        let Some(host) = &part.host else { return };
        let (begun, last_us) = self.begun.entry(host.clone()).or_default();
        begun.push_str(part.text.as_deref().unwrap_or_default());
        let mut whole = match begun.rfind('\n') {
            Some(end) => begun.drain(..=end).collect(),
            None => String::new(),
        };
        if begun.len() > LONGEST_LINE || part.last == Some(true) {
            whole.push_str(&std::mem::take(begun));
        }
        for line in text::block(&whole).lines() {
            self.none = false;
            let (at_us, text) = match timed(line) {
                Some((at_us, rest)) => (Some(at_us), format!("{} {rest}", when::milli(at_us.unsigned_abs() / 1000))),
                None => (*last_us, line.to_owned()),
            };
            // A node's lines stay in the node's order, even where its clock was set back.
            *last_us = (*last_us).max(at_us);
            let is_old = |since_ms: u64| last_us.is_some_and(|at_us| at_us.unsigned_abs() / 1000 < since_ms);
            if !self.since_ms.is_some_and(is_old) {
                self.bytes += text.len();
                self.lines.push(Line { at_us: *last_us, host: text::line(host), text });
            }
        }
    }

    fn hosts(&self) -> impl Iterator<Item = &str> {
        self.begun.keys().map(String::as_str)
    }

    /// Takes the lines so far, in order of time, then of nodes.
    fn sorted(&mut self) -> Vec<Line> {
        self.bytes = 0;
        let mut lines = std::mem::take(&mut self.lines);
        // The sort is stable: lines of a node stay in their order.
        lines.sort_by(|a, b| a.at_us.cmp(&b.at_us).then_with(|| by_number(&a.host, &b.host)));
        lines
    }
}

/// Returns the time at the beginning of a line of the journal, in microseconds since 1970, and the rest of the line.
fn timed(line: &str) -> Option<(i64, &str)> {
    let (time, rest) = line.split_once(' ')?;
    let parsed = || Timestamp::strptime("%Y-%m-%dT%H:%M:%S%.f%z", time).ok();
    let at = time.parse::<Timestamp>().ok().or_else(parsed)?;
    Some((at.as_microsecond(), rest))
}

/// The lines that `--follow` has read, by host.
struct Seen {
    by_host: BTreeMap<String, VecDeque<String>>,
    /// Number of the last lines of a node's first answer that are printed.
    first: usize,
}

impl Seen {
    fn of(first: u32) -> Self {
        Self { by_host: BTreeMap::new(), first: first as usize }
    }

    /// Returns the lines of the new answers that come after the lines of the answers before. Of a node's first answer:
    /// its last lines, as many as the operator asks for.
    fn news(&mut self, mut lines: Lines) -> Vec<Line> {
        let mut by_host: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        for line in std::mem::take(&mut lines.lines) {
            by_host.entry(line.host.clone()).or_default().push(line);
        }
        for (host, mut answer) in by_host {
            let before = self.by_host.entry(host).or_default();
            let (is_first, known) = (before.is_empty(), known(before, &answer));
            before.extend(answer.iter().skip(known).map(|line| line.text.clone()));
            while before.len() > MAX_LOG_LINES as usize {
                before.pop_front();
            }
            let shown = if is_first { answer.len().saturating_sub(self.first) } else { known };
            lines.lines.extend(answer.drain(shown..));
        }
        lines.sorted()
    }
}

/// Returns the number of lines at the start of `answer` that were in earlier answers. An answer may begin earlier than
/// the one before, so this searches the whole answer for the place where the most lines agree with the last lines of
/// `before`.
fn known(before: &VecDeque<String>, answer: &[Line]) -> usize {
    let texts = || answer.iter().map(|line| &line.text);
    let agree = |end: usize| before.iter().rev().zip(texts().take(end).rev()).take_while(|(a, b)| a == b).count();
    // `rev` makes the first of several equal places win, so that a line which repeats counts as new.
    let end = (1..=answer.len()).rev().max_by_key(|end| agree(*end)).filter(|end| agree(*end) > 0);
    // An answer whose end is cut, within the one before, has nothing new.
    let is_part = || {
        (0..(before.len() + 1).saturating_sub(answer.len()))
            .any(|from| before.iter().skip(from).zip(texts()).all(|(a, b)| a == b))
    };
    end.unwrap_or_else(|| if is_part() { answer.len() } else { 0 })
}

struct Raw(Value);

impl Render for Raw {
    fn table(&self, _page: &mut Page) {}

    fn json(&self) -> Option<Value> {
        Some(self.0.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

struct Shown(Vec<Line>);

impl Render for Shown {
    fn table(&self, page: &mut Page) {
        for Line { host, text, .. } in &self.0 {
            page.line(format_args!("{} {text}", style::QUIET.style(format!("{host}:"))));
        }
    }

    fn json(&self) -> Option<Value> {
        let line = |Line { host, text, .. }: &Line| json!({"host": host, "text": format!("{text}\n"), "last": false});
        (!self.0.is_empty()).then(|| self.0.iter().map(line).collect())
    }

    fn quiet(&self, page: &mut Page) {
        self.0.iter().for_each(|line| page.line(&line.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(host: &str, text: &str, last: bool) -> Part {
        Part { host: Some(host.to_owned()), text: Some(text.to_owned()), last: Some(last), unreachable: None }
    }

    fn shown(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| format!("{}: {}", line.host, line.text)).collect()
    }

    #[test]
    fn parts_of_several_hosts_become_whole_lines() {
        let mut lines = Lines::default();
        let mut take = |host: &str, text: &str, last: bool| {
            lines.take(&part(host, text, last));
            shown(lines.sorted())
        };
        assert_eq!(take("n0", "one\ntw", false), ["n0: one"]);
        assert_eq!(take("n1", "\u{1b}[2Jx\n", false), ["n1: \\u{1b}[2Jx"]);
        assert_eq!(take("n0", "o\n", false), ["n0: two"]);
        assert_eq!(take("n1", "no end", true), ["n1: no end"]);
        assert_eq!(take("n0", &"y".repeat(LONGEST_LINE + 1), false).len(), 1);
        assert!(!lines.none);
    }

    /// Regression test: `perilog logs` printed the nodes in the order of their answers (n0, n3, n2, n1), each with all
    /// of its lines.
    #[test]
    fn lines_are_in_order_of_time_then_of_nodes() {
        let mut lines = Lines { since_ms: Some(1_795_144_326_500), ..Lines::default() };
        let at = |time: &str, text: &str| format!("2026-11-20T{time} perilog[7]: {text}\n");
        lines.take(&part("n10", &at("03:12:07.000001+0000", "b"), true));
        lines.take(&part("n2", &(at("04:12:06+0100", "old") + &at("04:12:07.000001+0100", "b") + "no time\n"), true));
        lines.take(&part("n1", &(at("03:12:07.000000+00:00", "a") + &at("03:12:08+00:00", "c")), true));
        let time = |ms: u64| when::milli(1_795_144_327_000 + ms);
        assert_eq!(
            shown(lines.sorted()),
            [
                format!("n1: {} perilog[7]: a", time(0)),
                format!("n2: {} perilog[7]: b", time(0)),
                "n2: no time".to_owned(),
                format!("n10: {} perilog[7]: b", time(0)),
                format!("n1: {} perilog[7]: c", time(1000)),
            ]
        );
    }

    #[test]
    fn a_follower_sees_each_line_once() {
        let mut seen = Seen::of(LINES);
        let mut news = |texts: &[(&str, &str)]| {
            let mut lines = Lines::default();
            texts.iter().for_each(|(host, text)| lines.take(&part(host, text, true)));
            shown(seen.news(lines))
        };
        assert_eq!(news(&[("n0", "a\nb\n"), ("n1", "x\n")]), ["n0: a", "n0: b", "n1: x"]);
        assert_eq!(news(&[("n0", "a\nb\n"), ("n1", "x\n")]), [""; 0]);
        assert_eq!(news(&[("n0", "b\nb\nc\n")]), ["n0: b", "n0: c"]);
        assert_eq!(news(&[("n0", "c\n"), ("n1", "x\nx\n")]), ["n1: x"]);
        assert_eq!(news(&[("n0", "q\nr\n")]), ["n0: q", "n0: r"]);
        // Regression test: the second answer began before the first one, and all of it was printed again.
        assert_eq!(news(&[("n0", "a\nb\nb\nc\nq\nr\ns\n")]), ["n0: s"]);
        assert_eq!(news(&[("n1", "v\nw\nx\nx\ny\n")]), ["n1: y"]);
        assert_eq!(news(&[("n1", "x\nx\n")]), [""; 0]);
    }

    #[test]
    fn a_follower_sees_the_last_lines_first() {
        let mut seen = Seen::of(2);
        let mut news = |host: &str, text: &str| {
            let mut lines = Lines::default();
            lines.take(&part(host, text, true));
            shown(seen.news(lines))
        };
        assert_eq!(news("n0", "a\nb\nc\n"), ["n0: b", "n0: c"]);
        assert_eq!(news("n0", "a\nb\nc\nd\ne\nf\n"), ["n0: d", "n0: e", "n0: f"]);
        assert_eq!(news("n1", "v\nw\nx\n"), ["n1: w", "n1: x"]);
    }
}
