//! Output of `run` from an action's events: lines for people, events for programs, and an exit code.

use std::collections::BTreeMap;

use perilog_core::{ActionName, Attempt, IdSet, JobId};
use serde_json::Value;

use super::bar::Bar;
use super::fold::Fold;
use crate::endpoint::Answer;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::log::{Decided, Entry, EventBody, Roster};
use crate::out::{Out, OutputFormat, Page, Render, aside};
use crate::tail::{ABANDONED, Running, TAKEN_UP};
use crate::{style, text};

/// Time in milliseconds for which the watch collects equal results into one line. A person hardly notices this delay,
/// and the results of many ranks may arrive within it.
const FOLD_MS: u64 = 150;

pub(crate) struct Watch {
    out: Out,
    bar: Bar,
    job: JobId,
    action: ActionName,
    propagate: bool,
    /// The attempt; `None` until the controller has answered.
    attempt: Option<Attempt>,
    roster: Roster,
    events_after: u64,
    /// Ranks whose end this program has seen in the log.
    ended: IdSet,
    /// By host: the word `overdue` or `lingering`, while a rank of the host is in that state and has not ended.
    odd: BTreeMap<String, &'static str>,
    fold: Fold,
    flush_ms: Option<u64>,
    /// The reason why the attempt waits, as the controller's last reply gave it; `None`: the attempt did
    /// not wait. The watch prints a reason once.
    waits: Option<String>,
}

/// Output of the watch: events for programs, lines for people. `--quiet` has only the exit status.
enum WatchOutput<'a> {
    Attached(&'a Answer<Running>),
    Event(&'a Entry),
    Line(&'a str),
}

impl Render for WatchOutput<'_> {
    fn table(&self, page: &mut Page) {
        if let Self::Line(line) = self {
            page.line(line);
        }
    }

    fn json(&self) -> Option<Value> {
        match self {
            Self::Attached(answer) => Some(answer.raw.clone()),
            Self::Event(entry) => entry.json(),
            Self::Line(_) => None,
        }
    }

    fn quiet(&self, _page: &mut Page) {}
}

impl Watch {
    pub(crate) fn new(out: Out, job: JobId, action: ActionName, propagate: bool) -> Self {
        let bar = Bar::new(out.format == OutputFormat::Table, format!("{action} of {job}"));
        Self {
            out,
            bar,
            job,
            action,
            propagate,
            attempt: None,
            roster: Roster::default(),
            events_after: 0,
            ended: IdSet::new(),
            odd: BTreeMap::new(),
            fold: Fold::default(),
            flush_ms: None,
            waits: None,
        }
    }

    /// Returns when [`Watch::flush`] is due, in milliseconds of CLOCK_MONOTONIC; `None`: no result waits to be printed.
    pub(crate) const fn due_ms(&self) -> Option<u64> {
        self.flush_ms
    }

    pub(crate) fn attached(&mut self, answer: Answer<Running>) -> Result<Option<Exit>, Fault> {
        let first = self.attempt.is_none();
        let running = &answer.body;
        self.attempt = Some(running.attempt);
        self.events_after = running.events_after;
        self.roster = Roster { ranks: running.ranks.clone(), hosts: running.hosts.clone() };
        if first {
            self.bar.begin(running.ranks.len());
            self.out.show(&WatchOutput::Attached(&answer))?;
            if running.attached {
                self.print_line(&format!(
                    "{} of {} exists already (attempt {}); this command attached to it",
                    self.action, self.job, running.attempt
                ))?;
            }
        }
        if !first && !running.attached {
            self.aside(
                "the controller's store no longer had this action; this command asked for it again, and no script runs \
                 twice",
            );
        }
        if self.waits != running.waits
            && let Some(why) = &running.waits
        {
            self.aside(&format!("{}: {}", self.job, text::line(why)));
        }
        self.waits.clone_from(&running.waits);
        self.draw();
        Ok(None)
    }

    /// Handles an event of the job's log. `now_ms`: CLOCK_MONOTONIC. Returns the exit status if the event ends the
    /// verb.
    pub(crate) fn event(&mut self, entry: &Entry, now_ms: u64) -> Result<Option<Exit>, Fault> {
        let is_of_restore = [ABANDONED, TAKEN_UP].contains(&entry.name.as_str());
        if entry.attempt() != self.attempt || (entry.action() != Some(self.action.as_str()) && !is_of_restore) {
            return Ok(None);
        }
        self.out.show(&WatchOutput::Event(entry))?;
        match entry.body() {
            EventBody::Start { .. } => {}
            EventBody::Finish(mut finish) => {
                // A restarted log repeats events that the watch has shown already.
                finish.ranks.subtract(&self.ended);
                if finish.ranks.is_empty() {
                    return Ok(None);
                }
                self.ended.extend_with(&finish.ranks);
                for host in finish.hosts.iter().flat_map(perilog_core::HostList::iter) {
                    self.odd.remove(host);
                }
                self.fold.push(finish, &self.roster);
                // The flush draws the ends: ten thousand ends do not cause ten thousand drawings.
                self.flush_ms.get_or_insert(now_ms + FOLD_MS);
            }
            EventBody::Verdict(decided) => {
                self.flush()?;
                self.bar.end();
                self.verdict(&decided)?;
                return Ok(Some(self.exit(&decided)));
            }
            EventBody::Other { at, word, text } => {
                self.flush()?;
                if let (Some(at), "overdue" | "lingering") = (&at, word) {
                    self.odd.insert(at.clone(), word);
                }
                let at = at.map(|at| format!("{at}: ")).unwrap_or_default();
                self.print_line(&format!("{at}{}", style::worded(word, &text)))?;
                self.draw();
            }
        }
        Ok(None)
    }

    /// Prints the collected results. Always returns `None`: no result ends the verb.
    pub(crate) fn flush(&mut self) -> Result<Option<Exit>, Fault> {
        self.flush_ms = None;
        for group in self.fold.take() {
            self.print_line(&group.line())?;
        }
        self.draw();
        Ok(None)
    }

    fn verdict(&mut self, decided: &Decided) -> Result<(), Fault> {
        self.print_line(&format!("{} of {} {}", self.action, self.job, decided.text(Some(&self.roster))))?;
        // Refers to the logs if a script failed, to the node if the node is at fault.
        let (spoke, lost) = (decided.ranks(&["failed", "timeout", "tolerable", "cancelled"]), decided.ranks(&["lost"]));
        let next = match (spoke.is_empty(), lost.is_empty()) {
            (false, _) => format!("see: perilog logs {} --rank {spoke} --action {}", self.job, self.action),
            (true, false) => format!("see: perilog nodes {}", self.roster.name(&lost)),
            (true, true) => return Ok(()),
        };
        self.print_line(&style::QUIET.style(next).to_string())
    }

    fn exit(&self, decided: &Decided) -> Exit {
        match decided.status {
            Some(status) if self.propagate && status > 0 => Exit::Status(status),
            _ => Exit::of(decided.verdict),
        }
    }

    pub(crate) fn away(&mut self, fault: &Fault) -> Result<Option<Exit>, Fault> {
        self.flush()?;
        match fault {
            Fault::Vanished { .. } => self.aside(&format!("{} (Ctrl-C detaches)", fault.waiting())),
            Fault::Refused { .. } | Fault::Busy { .. } | Fault::NotLetIn { .. } => self
                .aside(&format!("{fault}; the scripts keep running, and this command tries again (Ctrl-C detaches)")),
            _ => self.aside(
                "the controller is away; the scripts keep running, and this command waits until it is back (Ctrl-C \
                 detaches)",
            ),
        }
        Ok(None)
    }

    pub(crate) fn note_return(&self, back: &str) -> Option<Exit> {
        self.aside(back);
        None
    }

    pub(crate) fn interrupted(&mut self) -> Result<Option<Exit>, Fault> {
        self.flush()?;
        self.bar.end();
        let (job, action) = (&self.job, &self.action);
        match self.attempt {
            Some(attempt) => aside(format_args!(
                "detached; {action} of {job} continues\n  \
                 wait for it:  perilog wait {job} --action {action} --attempt {attempt}\n  \
                 cancel it:    perilog cancel {job} {action} --attempt {attempt}"
            )),
            None => aside(format_args!(
                "detached before the controller answered; to see whether {action} of {job} has begun: perilog show \
                 {job}"
            )),
        }
        Ok(Some(Exit::Detached))
    }

    pub(crate) fn over(&self, fault: Fault) -> Fault {
        self.bar.end();
        fault
    }

    fn print_line(&mut self, line: &str) -> Result<(), Fault> {
        let out = &mut self.out;
        self.bar.beside(|| out.show(&WatchOutput::Line(line)))
    }

    fn aside(&self, text: &str) {
        self.bar.beside(|| aside(text));
    }

    fn draw(&self) {
        self.bar.set(self.ended.len(), || {
            let open = self.roster.ranks.difference(&self.ended);
            let mut message =
                if open.is_empty() { String::new() } else { format!("open: {}", self.roster.name(&open)) };
            for (at, word) in self.odd.iter().take(3) {
                message.push_str(&format!("; {at} {word}"));
            }
            message
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::out::tests::{Recorder, recorder};

    fn watch() -> (Watch, Recorder) {
        let (out, recorder) = recorder(OutputFormat::Table);
        let mut watch = Watch::new(out, JobId::new("f1").unwrap(), ActionName::new("prolog").unwrap(), true);
        let raw = json!({"job": "f1", "attempt": "0", "id": "00000000-0000-5000-8000-000000000000", "ranks": "0-3",
                         "hosts": "n[0-3]",
            "attached": true, "events_after": 4});
        let body = serde_json::from_value(raw.clone()).unwrap();
        watch.attached(Answer { raw, body }).unwrap();
        assert_eq!(recorder.take(), "prolog of f1 exists already (attempt 0); this command attached to it\n");
        (watch, recorder)
    }

    fn event(name: &str, ranks: &str, hosts: &str, more: Value) -> Entry {
        let mut context = json!({"action": "prolog", "attempt": "0", "ranks": ranks, "hosts": hosts});
        if let (Value::Object(all), Value::Object(more)) = (&mut context, more) {
            all.extend(more);
        }
        Entry::read(json!({"sequence": 5, "timestamp": 1.0, "name": name, "context": context})).unwrap()
    }

    fn ok() -> Value {
        json!({"outcome": "ok", "result": "ok"})
    }

    #[test]
    fn results_are_collected_for_a_moment_and_never_shown_twice() {
        let (mut watch, recorder) = watch();
        assert_eq!(watch.due_ms(), None);
        watch.event(&event("finish", "0", "n0", ok()), 1_000).unwrap();
        watch.event(&event("finish", "2", "n2", ok()), 1_100).unwrap();
        assert_eq!(
            (watch.due_ms(), recorder.take()),
            (Some(1_000 + FOLD_MS), String::new()),
            "the first one sets the moment"
        );
        watch.flush().unwrap();
        assert_eq!((watch.due_ms(), recorder.take().as_str()), (None, "n[0,2]: ok\n"));
        // A restarted log repeats all events.
        watch.event(&event("finish", "0-2", "n[0-2]", ok()), 2_000).unwrap();
        watch.event(&event("finish", "0", "n0", ok()), 2_000).unwrap();
        watch.flush().unwrap();
        assert_eq!(recorder.take(), "n1: ok\n");
    }

    #[test]
    fn what_is_odd_is_shown_at_once_after_what_came_before() {
        let (mut watch, recorder) = watch();
        watch.event(&event("finish", "0", "n0", ok()), 0).unwrap();
        let overdue = event("overdue", "3", "n3", json!({"script": "10-mount.sh", "limit_ms": 600_000}));
        watch.event(&overdue, 0).unwrap();
        assert_eq!(recorder.take(), "n0: ok\nn3: overdue: 10-mount.sh is past its limit of 10m, and keeps running\n");
        assert_eq!(watch.odd.len(), 1);
        watch
            .event(&event("finish", "3", "n3", json!({"outcome": "timeout", "result": "timeout (exit 7)"})), 0)
            .unwrap();
        assert!(watch.odd.is_empty());
        let verdict = json!({"verdict": "timeout", "status": 7, "ok": "0-2", "by_outcome": {"timeout": "3"}});
        let exit = watch.event(&event("verdict", "", "", verdict), 0).unwrap();
        assert_eq!(exit, Some(Exit::Status(7)));
        assert_eq!(
            recorder.take(),
            "n3: timeout (exit 7)\nprolog of f1 timeout: 3 ok, 1 timeout (n3)\nsee: perilog logs f1 --rank 3 --action \
             prolog\n"
        );
    }

    #[test]
    fn other_actions_and_attempts_are_not_ours() {
        let (mut watch, recorder) = watch();
        let mut other = event("verdict", "0", "n0", json!({"verdict": "ok", "status": 0}));
        other.context.insert("attempt".to_owned(), json!("1"));
        assert_eq!(watch.event(&other, 0).unwrap(), None);
        assert_eq!(recorder.take(), "");
    }
}
