//! `perilog show`: everything that the controller knows of a job, newest attempt first.

use perilog_core::controller::view::{ActionView, AttemptView, EndView, JobView, PsRow};
use perilog_core::task::{Ended, Step};
use perilog_core::{Attempt, HostList, IdSet, JobId, Targets, output};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::columns::{Columns, cell, styled, word};
use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values, when};

/// One job: attempts, actions, how each rank ended
///
/// With --quiet: ATTEMPT ACTION VERDICT for each action, with `open` for an action without a verdict.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: JobId,
    /// Only this attempt.
    #[arg(long, value_name = "ATTEMPT", value_parser = values::attempt)]
    attempt: Option<Attempt>,
    /// Only how these ranks ended, with the details of each; an idset or a hostlist.
    #[arg(long = "rank", visible_aliases = ["ranks", "targets"], aliases = ["node", "nodes"],
          value_name = "RANKS", value_parser = values::targets)]
    targets: Option<Targets>,
}

/// Maximum number of groups of ranks with equal results that the verb shows; the verb counts the others.
const GROUPS: usize = 12;
/// Maximum number of lines that the verb shows of a script's output.
const LAST_LINES: usize = 4;
/// Maximum number of lines that the verb shows of the forensics of a script past its limit (the state of its processes
/// before the runner sent a signal); --json has all lines.
const FORENSIC_LINES: usize = 12;

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let mut answer: Answer<Show> = endpoint.ask("Show", &json!({ "job": args.job, "targets": args.targets }))?;
    if let Some(wanted) = args.attempt {
        let attempts = &mut answer.body.job.attempts;
        let known: Vec<String> = attempts.iter().map(|view| view.attempt.to_string()).collect();
        let Some(at) = attempts.iter().position(|view| view.attempt == wanted) else {
            return Err(Fault::NotFound(format!("{} has no attempt {wanted}; it has: {}", args.job, known.join(", "))));
        };
        let only = attempts.swap_remove(at);
        *attempts = vec![only];
        if let Some(Value::Array(raw)) = answer.raw.pointer_mut("/job/attempts") {
            let only = raw.swap_remove(at);
            *raw = vec![only];
        }
    }
    out.show(&answer)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Show {
    job: JobView,
}

impl Render for Answer<Show> {
    fn table(&self, page: &mut Page) {
        let job = &self.body.job;
        let owner = job.userid.map(|uid| format!("  uid {uid}")).unwrap_or_default();
        page.line(format_args!("job {}{owner}", style::STRONG.style(&job.job)));
        let mut attempts: Vec<&AttemptView> = job.attempts.iter().collect();
        attempts.sort_by_key(|view| std::cmp::Reverse(view.attempt));
        for view in attempts {
            attempt(view, &job.job, page);
        }
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        for attempt in &self.body.job.attempts {
            for action in &attempt.actions {
                let verdict = action.verdict.map_or("open", perilog_core::Verdict::as_str);
                page.line(format_args!("{} {} {verdict}", attempt.attempt, action.name));
            }
        }
    }
}

fn attempt(view: &AttemptView, job: &JobId, page: &mut Page) {
    page.blank();
    // The newest attempt of a job stays open for further actions, until all of it was released.
    let is_released = view.held.is_empty() && view.released.ranks.len() as usize == view.hosts.len();
    let state = match view.open {
        _ if is_released => "released",
        true => "open",
        false => "closed",
    };
    page.line(format_args!(
        "attempt {}  {state}  {}: {}",
        view.attempt,
        text::count(view.hosts.len() as u64, "node"),
        view.hosts
    ));
    for row in &view.held {
        let (what, age) = (super::ps::over(row), text::age(row.age_ms));
        let why = style::QUIET.style(format!("{}  ({age})", text::line(&row.why))).to_string();
        page.line(format_args!("  held by {}: {what}  {why}", held_by(row)));
    }
    if !view.released.is_empty() {
        page.line(format_args!("  released: {}", view.released));
    }
    if view.actions.is_empty() {
        page.line("  no action yet");
    }
    let mut actions: Vec<&ActionView> = view.actions.iter().collect();
    actions.sort_by_key(|action| action.began_ms);
    for view in actions {
        action(view, job, page);
    }
}

fn held_by(row: &PsRow) -> String {
    if row.action.as_str() == "job" { "the job".to_owned() } else { row.action.to_string() }
}

fn action(view: &ActionView, job: &JobId, page: &mut Page) {
    let state = view.verdict.map_or("open", perilog_core::Verdict::as_str);
    let lasted = match view.ended_ms {
        Some(ended) => format!("took {}", text::elapsed(ended.saturating_sub(view.began_ms))),
        None => format!("for {}", text::age(page.now_ms.saturating_sub(view.began_ms))),
    };
    let lease = view.external.as_ref().map(|external| format!(", external, lease {}", text::age(external.lease_ms)));
    let limit = view.timeout_ms.map(|ms| format!(", limit {}", text::age(ms))).or(lease).unwrap_or_default();
    let began = when::second(view.began_ms);
    page.line(format_args!(
        "  {}  {}  {}",
        style::STRONG.style(&view.name),
        style::worded(state, state),
        style::QUIET.style(format!("{began}, {lasted}{limit}"))
    ));
    let mut columns = Columns::headless();
    let plain = view.remarks.values().fold(view.ok.clone(), |ok, ranks| ok.difference(ranks));
    if !plain.is_empty() {
        columns.row([word("ok"), cell(text::ranks(&plain)), cell("")]);
    }
    for (remark, ranks) in &view.remarks {
        columns.row([word("ok"), cell(text::ranks(ranks)), styled(text::line(remark), style::CARE)]);
    }
    for row in &view.open {
        let why = format!("{}  ({})", text::line(&row.why), text::age(row.age_ms));
        columns.row([word(&text::line(&row.state)), cell(super::ps::over(row)), cell(why)]);
    }
    page.indented(4, columns);
    for (name, end) in view.external.iter().flat_map(|external| &external.ended) {
        let word = end.ended.outcome.as_str();
        let detail = detail(&text::line(&end.ended.outcome.to_string()), word).to_owned();
        let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
        page.line(format_args!("    {}  {name}{detail}", style::worded(word, word)));
        details(&end.ended, "", page);
        for late in &end.late {
            let result = text::line(&late.outcome.to_string());
            page.line(format_args!("      late, at {}: {result}", when::second(late.ended_ms)));
        }
    }
    let groups = groups(&view.ended);
    for group in groups.iter().take(GROUPS) {
        group.show(page);
    }
    let mut left_out: IdSet = view.more.iter().flat_map(|more| more.ranks.iter()).collect();
    groups.iter().skip(GROUPS).for_each(|group| left_out.extend_with(&group.ranks));
    if !left_out.is_empty() {
        let ranks = text::ranks(&left_out);
        page.line(format_args!("    and {ranks}, which ended in other ways: perilog show {job} --rank {left_out}"));
    }
}

/// Ranks that ended with equal results. `first`: the rank of which the verb shows the details, for all of them.
struct Group<'a> {
    key: (String, Option<String>),
    hosts: Vec<&'a str>,
    ranks: IdSet,
    first: &'a EndView,
}

fn groups(ended: &[EndView]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for view in ended.iter().filter(|view| !matches!(view.ended.outcome, perilog_core::Outcome::Ok)) {
        let key = (view.ended.outcome.to_string(), last_line(&view.ended));
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => {
                group.hosts.extend(view.hosts.iter());
                group.ranks.extend_with(&view.ranks);
            }
            None => {
                groups.push(Group { key, hosts: view.hosts.iter().collect(), ranks: view.ranks.clone(), first: view })
            }
        }
    }
    groups
}

/// Returns the last line that the failed scripts printed, empty lines apart, escaped for a terminal; `None`: they
/// printed nothing.
pub(crate) fn last_line(ended: &Ended) -> Option<String> {
    ended.tails.iter().rev().find_map(|tail| output::last_line(&tail.text)).map(|line| text::of_script(&line))
}

impl Group<'_> {
    fn show(&self, page: &mut Page) {
        let ended = &self.first.ended;
        let hosts = HostList::from_names(&self.hosts).map_or_else(|_| "?".to_owned(), |hosts| hosts.to_string());
        let outcome = ended.outcome.as_str();
        let elapsed = ended.elapsed_ms.filter(|_| self.ranks.len() == 1);
        let elapsed = elapsed.map(|ms| format!(" after {}", text::elapsed(ms))).unwrap_or_default();
        let detail = match detail(&text::line(&self.key.0), outcome) {
            "" => elapsed,
            detail => format!(": {detail}{elapsed}"),
        };
        let word = style::worded(outcome, outcome);
        page.line(format_args!("    {word}  {hosts} ({}){detail}", text::ranks(&self.ranks)));
        let whose = if self.ranks.len() > 1 { format!("on {}: ", text::line(&self.first.host)) } else { String::new() };
        details(ended, &whose, page);
        for late in &self.first.late {
            page.line(format_args!(
                "      {whose}late, at {}: {}",
                when::second(late.ended_ms),
                text::line(&late.outcome.to_string())
            ));
        }
    }
}

/// Returns the result without the outcome and the parentheses: `exit 7` for `failed (exit 7)`.
fn detail<'a>(result: &'a str, outcome: &str) -> &'a str {
    let rest = result.strip_prefix(outcome).unwrap_or(result).trim_start();
    rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest)
}

/// Returns how a try of a script ended: `exit 7 after 380ms`. A runner that wrote its result, with the time that the
/// task took, waited for the end of each script: a script without an end was then never executed.
pub(crate) fn status_of(step: &Step, ended: &Ended) -> String {
    match step.status {
        Some(status) => format!("{status} after {}", text::elapsed(step.elapsed_ms)),
        None if ended.elapsed_ms.is_some() => "not executed".to_owned(),
        None => "had not ended".to_owned(),
    }
}

/// Prints the details of a task's end: scripts that were not plainly ok, their output, and remarks for people. `whose`:
/// a text before each line, such as `on n3: `, or empty.
pub(crate) fn details(ended: &Ended, whose: &str, page: &mut Page) {
    for step in ended.steps.iter().filter(|step| {
        step.tolerable || step.timed_out || !step.status.is_some_and(perilog_core::ExitStatus::is_success)
    }) {
        let status = status_of(step, ended);
        let past = if step.timed_out { ", past its limit" } else { "" };
        let again = if step.attempt > 1 { format!(", try {}", step.attempt) } else { String::new() };
        let tolerable = if step.tolerable { ", tolerable" } else { "" };
        page.line(format_args!("      {whose}{}: {status}{past}{again}{tolerable}", text::line(&step.script),));
    }
    for check in &ended.checks {
        page.line(format_args!("      {whose}check {}: {}", text::line(&check.check), text::quoted(&check.message)));
    }
    for tail in &ended.tails {
        let lines: Vec<String> = output::lines(&tail.text).collect();
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            page.line(format_args!("      {}", style::QUIET.style(format!("| {}", text::of_script(line)))));
        }
    }
    if let Some(forensics) = &ended.forensics {
        for line in forensics.lines().filter(|line| !line.trim().is_empty()).take(FORENSIC_LINES) {
            page.line(format_args!("      {}", style::QUIET.style(format!("# {}", text::line(line)))));
        }
    }
    if ended.dropped_env > 0 {
        let dropped = text::count(u64::from(ended.dropped_env), "variable");
        page.line(format_args!("      {whose}{dropped} not passed to the scripts: not in the node's env-allow"));
    }
    if !ended.lingering.is_empty() {
        let list: Vec<String> =
            ended.lingering.iter().take(4).map(|p| format!("{} ({})", p.pid, text::line(&p.command))).collect();
        page.line(format_args!("      {whose}left behind: {}", list.join(", ")));
    }
    for note in ended.note.iter().chain(&ended.user_message) {
        page.line(format_args!("      {whose}{}", text::line(note)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    fn rank(rank: u32, outcome: Value, more: Value) -> Value {
        let mut ended = json!({"outcome": outcome, "began_ms": 1000, "ended_ms": 1400, "elapsed_ms": 400});
        if let (Value::Object(all), Value::Object(more)) = (&mut ended, more) {
            all.extend(more);
        }
        let host = format!("n{rank}");
        json!({"ranks": rank.to_string(), "hosts": host, "rank": rank, "host": host, "ended": ended, "late": []})
    }

    fn answer(attempts: Value) -> Answer<Show> {
        let raw = json!({"job": {"job": "f1", "userid": 1000, "attempts": attempts}});
        Answer { body: Show::deserialize(&raw).unwrap(), raw }
    }

    #[test]
    fn who_holds_what_is_shown_before_the_actions() {
        let row = |by: &str, ranks: &str, hosts: &str, more: Value| {
            let mut row = json!({"job": "f1", "attempt": "0", "action": by, "ranks": ranks, "hosts": hosts,
                                 "state": "held",
                "why": "until: perilog job finish f1", "age_ms": 62_000, "local": false});
            if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
                row.extend(more);
            }
            row
        };
        let held = json!([
            row("job", "1-2", "n[1-2]", json!({"resources": ["rabbit1"]})),
            row("epilog", "0", "n0", json!({}))
        ]);
        let attempts = json!([{"attempt": "0", "open": true, "hosts": "n[0-3]", "actions": [], "held": held,
            "released": {"ranks": "3"}}]);
        let [table, ..] = render(&answer(attempts), 43_000);
        assert_eq!(
            table,
            "job f1  uid 1000\n\
             \n\
             attempt 0  open  4 nodes: n[0-3]\n\
             \u{20} held by the job: n[1-2],rabbit1  until: perilog job finish f1  (1m02s)\n\
             \u{20} held by epilog: n0  until: perilog job finish f1  (1m02s)\n\
             \u{20} released: rank 3\n\
             \u{20} no action yet\n"
        );
    }

    /// Regression test: a script that could not be executed, and one whose runner was killed, "did not end after 0ms".
    #[test]
    fn a_script_without_an_end_says_why() {
        let step = json!({"script": "10-a", "digest": "d", "attempt": 1, "began_ms": 1, "elapsed_ms": 0, "status": null,
                          "tolerable": false, "timed_out": false});
        let step = Step::deserialize(&step).unwrap();
        let ended = |elapsed_ms: Option<u64>| Ended { elapsed_ms, ..Ended::bare(perilog_core::Outcome::Ok, 1) };
        assert_eq!(status_of(&step, &ended(Some(7))), "not executed");
        assert_eq!(status_of(&step, &ended(None)), "had not ended");
    }

    #[test]
    fn an_attempt_is_open_until_all_of_it_is_released() {
        let held = json!([{"job": "f1", "attempt": "0", "action": "job", "ranks": "", "hosts": "", "state": "held",
                           "why": "",
            "age_ms": 0, "local": false, "resources": ["rabbit1"]}]);
        for (open, released, held, expect) in [
            (true, "", json!([]), "open"),
            (true, "0-2", json!([]), "open"),
            (true, "0-3", held, "open"),
            (true, "0-3", json!([]), "released"),
            (false, "0-2", json!([]), "closed"),
        ] {
            let attempts = json!([{"attempt": "0", "open": open, "hosts": "n[0-3]", "actions": [], "held": held,
                "released": {"ranks": released}}]);
            let [table, ..] = render(&answer(attempts), 43_000);
            assert!(table.contains(&format!("attempt 0  {expect}  4 nodes")), "{table}");
        }
    }

    #[test]
    fn a_job_is_shown_from_attempt_to_last_output() {
        let id = "00000000-0000-5000-8000-000000000000";
        let exit7 = json!({"outcome": "failed", "why": {"exit": 7}});
        let step = json!({"script": "10-mount.sh", "digest": "d", "attempt": 2, "began_ms": 1000, "elapsed_ms": 380,
            "status": {"exit": 7}, "tolerable": false, "timed_out": false});
        let tails = json!([{"script": "10-mount.sh", "text": "trying\nmount: no such device\u{1b}[m\u{7}\n"}]);
        let reported = json!({"steps": [step], "tails": tails, "note": "unit and result differ"});
        let attempts = json!([
            {"attempt": "0", "open": false, "hosts": "n[0-5]",
             "actions": [{"id": id, "name": "prolog", "ranks": "0-5", "began_ms": 1000,
                "ended_ms": 13_300, "timeout_ms": 600_000, "verdict": "failed", "ok": "0-1", "open": [],
                "ended": [rank(2, exit7.clone(), reported.clone()),
                          rank(3, json!({"outcome": "lost", "why": "rebooted"}), json!({})),
                          rank(4, json!({"outcome": "lost", "why": "rebooted"}), json!({})),
                          rank(5, json!({"outcome": "ok"}), json!({}))],
                "remarks": {"no script ran": "1"}}]},
            {"attempt": "1", "open": true, "hosts": "n[0-5]",
             "actions": [{"id": id, "name": "prolog", "ranks": "0-5", "began_ms": 1000,
                "ended_ms": null, "timeout_ms": null, "verdict": null, "ok": "", "ended": [],
                "open": [{"job": "f1", "attempt": "1", "action": "prolog", "ranks": "0-5", "hosts": "n[0-5]",
                          "state": "running",
                    "why": "10-mount.sh (1 of 2)", "age_ms": 42_000, "local": false}]}]}
        ]);
        let [table, json, quiet] = render(&answer(attempts), 43_000);
        let began = when::second(1000);
        assert_eq!(
            table,
            format!(
                "job f1  uid 1000\n\
                 \n\
                 attempt 1  open  6 nodes: n[0-5]\n\
                 \u{20} prolog  open  {began}, for 42s\n\
                 \u{20}   running  n[0-5]  10-mount.sh (1 of 2)  (42s)\n\
                 \n\
                 attempt 0  closed  6 nodes: n[0-5]\n\
                 \u{20} prolog  failed  {began}, took 12.3s, limit 10m\n\
                 \u{20}   ok  rank 0\n\
                 \u{20}   ok  rank 1  no script ran\n\
                 \u{20}   failed  n2 (rank 2): exit 7 after 400ms\n\
                 \u{20}     10-mount.sh: exit 7 after 380ms, try 2\n\
                 \u{20}     | trying\n\
                 \u{20}     | mount: no such device\\u{{7}}\n\
                 \u{20}     unit and result differ\n\
                 \u{20}   lost  n[3-4] (ranks 3-4): the node rebooted\n"
            )
        );
        assert!(json.starts_with("{\"job\":"));
        assert_eq!(quiet, "0 prolog failed\n1 prolog open\n");
    }
}
