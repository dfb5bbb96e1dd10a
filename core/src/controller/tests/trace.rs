//! Tests of the trace: a replay makes what the trace has, and shows what it does not.

use std::borrow::Cow;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::controller::trace::{Begin, Entry, Replayed, replay};
use crate::controller::{Batch, Writer};
use crate::trace::{Line, concealed};

/// Asserts that the JSON of a value is read as the same value. The test bench checks each input, store and settings.
pub(super) fn is_read_as_written<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let written = serde_json::to_value(value).unwrap();
    let read: T = serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(read, *value, "{written}");
}

/// A log with the trace of a controller that runs a job, restarts, loses a commit, and goes on.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    store: Snapshot,
    now: Now,
}

impl Log {
    fn add(&mut self, entry: &Entry) {
        self.lines.push(format!("TRACE {} job=f1", Line::new(self.lines.len() as u64, entry).text));
    }

    fn begin(&mut self) -> Writer {
        let settings = settings();
        let stored = self.store.without_ended(Holding::NONE);
        self.add(&Entry::Begin(Begin::new(&stored, &settings, 7, self.now)));
        let mut writer = Writer::new(settings.clone(), 7);
        let batch = writer.begin(stored, self.now);
        self.commit(&mut writer, batch, false);
        writer
    }

    fn batch(&mut self, writer: &mut Writer, inputs: Vec<Input>, fails: bool) {
        self.now.mono_ms += 1_000;
        let (needs, _) = writer.needs(&inputs, self.now);
        if !needs.is_empty() {
            let rows = self.store.fetch(&needs);
            self.add(&Entry::Fetched { now: self.now, rows: Cow::Borrowed(&rows) });
            writer.take_in(rows, self.now);
        }
        self.add(&Entry::Batch(self.now));
        inputs.iter().for_each(|input| self.add(&Entry::Input(Cow::Borrowed(input))));
        let batch = writer.handle(inputs, self.now);
        self.commit(writer, batch, fails);
    }

    fn commit(&mut self, writer: &mut Writer, batch: Batch, fails: bool) {
        batch.records().iter().for_each(|record| self.add(&Entry::Record(concealed(record))));
        batch.output().effects.iter().for_each(|effect| self.add(&Entry::Effect(concealed(effect))));
        if fails {
            self.add(&Entry::Failed {});
            return writer.failed(batch);
        }
        batch.records().iter().for_each(|record| self.store.apply(record));
        let left = writer.committed(batch);
        self.store.anchor = left.anchor.or(self.store.anchor);
    }

    fn replay(&self) -> (Result<Replayed, String>, String) {
        let mut text = String::new();
        let done = replay(self.lines.iter().map(String::as_str), &mut |line| text += &format!("{line}\n"));
        (done, text)
    }
}

fn asks(client: Client, request: Request) -> Input {
    Input::Request { client, uid: 0, request }
}

/// A job whose prolog runs on two nodes, a `show` of the ended job after a restart of the controller, and a failed
/// commit.
fn log() -> Log {
    crate::switch_on_defect!(crate::defect::chosen());
    let mut log = Log { now: Now { mono_ms: 1_000, wall_ms: 1_700_000_000_000 }, ..Log::default() };
    let mut writer = log.begin();
    let hello = |host: &str| FromAgent::Hello(hello(host, "b1", 1, Vec::new()));
    let sessions = [SessionId(1), SessionId(2)];
    let greet = sessions.iter().zip(["n0", "n1"]).map(|(session, host)| from(*session, hello(host)));
    log.batch(&mut writer, greet.collect(), false);
    let env = BTreeMap::from([("TOKEN".to_owned(), "geheim".to_owned())]);
    let run = RunRequest { env, timeout_ms: Some(1_500), ..request("prolog", "f1", Some("n[0-1]"), None) };
    log.batch(&mut writer, vec![Input::Tick, asks(1, Request::Run(run))], false);
    let job = JobId::new("f1").unwrap();
    let finish = Request::JobFinish { job: job.clone(), attempt: None, targets: None, resources: None };
    for action in ["prolog", "epilog"] {
        let ends = (0..).zip(sessions).map(|(rank, of)| from(of, finished(task(action, "f1", rank), Outcome::Ok)));
        log.batch(&mut writer, ends.collect(), false);
        log.batch(&mut writer, vec![asks(5, finish.clone())], false);
    }
    let mut writer = log.begin();
    log.batch(&mut writer, vec![asks(2, Request::Show { job, targets: None })], false);
    log.batch(&mut writer, vec![asks(3, Request::Quiesce { reason: "a test".to_owned(), wait: false })], true);
    let mut writer = log.begin();
    log.batch(&mut writer, vec![asks(4, Request::Status {})], false);
    log
}

#[test]
fn a_replay_makes_what_the_trace_has() {
    let log = log();
    let (done, text) = log.replay();
    let done = done.unwrap();
    assert_eq!((done.skipped, done.batches, done.differences), (0, 12, 0), "{text}");
    assert!(done.inputs == 13 && done.compared > 20, "{done:?}");
    assert!(text.contains("the commit failed") && text.contains("fetched the rows of 1 jobs"), "{text}");
    assert!(!log.lines.join("\n").contains("geheim"));
}

#[test]
fn a_replay_shows_what_differs() {
    let mut log = log();
    let at = log.lines.iter().position(|line| line.contains("\"Accepted\"") || line.contains("\"Finished\"")).unwrap();
    // The node reports a failure: the records after it differ.
    log.lines[at] = log.lines[at].replace("\"ok\"", "\"tolerable\"");
    let (done, text) = log.replay();
    assert!(done.unwrap().differences > 0 && text.contains("DIFFERS: the machine made"), "{text}");
    // A record that the trace lacks.
    let mut log = self::log();
    let last = log.lines.iter().rposition(|line| line.contains("\"record\"")).unwrap();
    log.lines.truncate(last);
    assert_eq!(log.replay().0.unwrap().differences, 0, "a trace may end in the middle of a batch");
    let next = log.lines.len() as u64;
    log.lines.push(Line::new(next, &Entry::Batch(log.now)).text);
    assert!(log.replay().1.contains("DIFFERS: the trace lacks record"));
}

#[test]
fn a_trace_that_is_not_whole_is_not_played() {
    let mut log = log();
    let whole = std::mem::take(&mut log.lines);
    assert_eq!(log.replay().0.unwrap_err(), "no line of a trace");
    log.lines = whole.iter().filter(|line| !line.contains("\"begin\"")).cloned().collect();
    assert!(log.replay().0.unwrap_err().contains("was switched on while the controller ran"));
    // Up to the second start of the controller no line is played.
    let second = whole.iter().skip(1).position(|line| line.contains("\"begin\"")).unwrap() + 1;
    log.lines = whole[1..].to_vec();
    let done = log.replay().0.unwrap();
    assert_eq!((done.skipped, done.differences), (second as u64 - 1, 0));
    log.lines = [&whole[..5], &whole[6..]].concat();
    assert_eq!(log.replay().0.unwrap_err(), "line 6 follows line 4: the log has lost the lines between them");
}
