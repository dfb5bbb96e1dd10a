//! Bytes of the files of the spool. A task outlives the upgrade of its node: the runner of one release writes the
//! claim, the steps and the result, and the agent of the next release reads them. After a downgrade it is the reverse.
//!
//! `golden/MAJOR.MINOR.txt` has what a release writes: a line for each sample with the path of the file, the name of
//! the sample, and the file's bytes (of `steps.jsonl`: one line). `samples.rs` has the same as values. A new field
//! without a sample does not compile there, and a new variant does not compile here.
//!
//! Rules for a change of these formats:
//!
//! * The file of a release that is out never changes, and all releases with its first two numbers write these bytes.
//! * The first release with other numbers adds its own file: `PERILOG_GOLDEN=write cargo test -p perilog-agent --lib
//!   golden`. The file of the release before stays, and is read; older files may be removed.
//! * A new member has a default. No member is renamed or removed, or changes its meaning.
//! * A release that has a new variant (another claim or outcome) first only reads it, and its successor writes it: to
//!   the release before, the file would be unreadable. An older agent skips an unknown record in `steps.jsonl`.

use std::collections::BTreeSet;

use perilog_core::task::{Empty, Lingering, OnError, OnTimeout, Report, Run, RunResult, StepRecord, Treatment};
use serde_json::{Value, json};

use super::ends::{Variants, assert_all_outcomes, assert_complete, assert_set, variants};
use super::samples::{self, samples, stem};
use super::*;

const CHANGED: &str = "agents and runners of other releases would misread the spool. If the change is meant, see the \
                       rules in agent/src/spool/tests/golden.rs";

/// Name of the file of the present release.
const PRESENT: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"), ".txt");

/// A file of the spool, or a line of `steps.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    Boot(BootRecord),
    Epoch(AcceptedEpoch),
    Intent(Box<Intent>),
    Outcome(Ended),
    Tombstone(Tombstone),
    Claim(Claim),
    Result(RunResult),
    Step(StepRecord),
    StopAsked,
    BootExpected,
}

variants! {
    Content {
        Self::Boot(_), Self::Epoch(_), Self::Intent(_), Self::Outcome(_), Self::Tombstone(_), Self::Claim(_),
        Self::Result(_), Self::Step(_), Self::StopAsked, Self::BootExpected,
    }
    Claim { Self::Runner(_), Self::Cancelled, Self::Withdrawn(_) }
    StepRecord {
        Self::Begin { .. }, Self::End { .. }, Self::NotRun { .. }, Self::Overdue { .. }, Self::Report { .. },
        Self::Cancelled { .. }, Self::Left { .. },
    }
    Report {
        Self::Tolerable { .. }, Self::Milestone { .. }, Self::Progress { .. }, Self::ExpectReboot, Self::User { .. },
    }
    Treatment { Self::Keep, Self::Hold { .. }, Self::Kill }
    Run { Self::Directories(_), Self::Command(_) }
    OnTimeout { Self::Drain, Self::Kill }
    OnError { Self::Continue, Self::Stop }
    Empty { Self::Ok, Self::Fail }
    Lingering { Self::Hold, Self::Kill, Self::Keep }
}

impl Content {
    /// Returns the path of the file below the agent's runtime directory.
    fn path(&self) -> String {
        let of_task = |name: &str| format!("tasks/{}/{name}", stem());
        match self {
            Self::Boot(_) => "boot.json".to_owned(),
            Self::Epoch(_) => "epoch.json".to_owned(),
            Self::Intent(_) => of_task("intent.json"),
            Self::Outcome(_) => of_task("outcome.json"),
            Self::Tombstone(_) => format!("tombstones/{}.json", stem()),
            Self::Claim(_) => of_task("claim"),
            Self::Result(_) => of_task("result.json"),
            Self::Step(_) => of_task("steps.jsonl"),
            Self::StopAsked => of_task("stop-asked"),
            Self::BootExpected => of_task("boot-expected"),
        }
    }

    /// Writes the file as the agent or the runner does. Returns its bytes.
    fn write(&self) -> Vec<u8> {
        let (_dir, spool, _lock) = spool();
        let (stem, path) = (stem(), spool.root.join(self.path()));
        spool.write_intent(&stem, &samples::intent()).unwrap();
        // The runner is another program: it writes what `serde_json::to_vec` returns, and ends each step with a line
        // feed.
        match self {
            Self::Boot(record) => write::json(&path, record).unwrap(),
            Self::Epoch(accepted) => spool.write_accepted_epoch(*accepted).unwrap(),
            Self::Intent(intent) => spool.write_intent(&stem, intent).unwrap(),
            Self::Outcome(ended) => spool.write_outcome(&stem, ended, &samples::intent()).unwrap(),
            Self::Tombstone(tombstone) => spool.write_tombstone(&stem, tombstone).unwrap(),
            Self::Claim(claim @ Claim::Runner(_)) => fs::write(&path, serde_json::to_vec(claim).unwrap()).unwrap(),
            Self::Claim(claim) => assert!(spool.take_claim(&stem, claim).unwrap()),
            Self::Result(result) => fs::write(&path, serde_json::to_vec(result).unwrap()).unwrap(),
            Self::Step(record) => fs::write(&path, serde_json::to_vec(record).unwrap()).unwrap(),
            Self::StopAsked => spool.mark_stop_asked(&stem).unwrap(),
            Self::BootExpected => spool.mark_boot_expected(&stem).unwrap(),
        }
        fs::read(&path).unwrap()
    }

    /// Reads the file at `path` as the agent does; `None`: the agent takes it for missing.
    fn read(path: &str, bytes: &[u8]) -> Option<Self> {
        let (_dir, spool, _lock) = spool();
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        fs::create_dir_all(spool.root.join(directory)).unwrap();
        let line_feed: &[u8] = if name == "steps.jsonl" { b"\n" } else { b"" };
        fs::write(spool.root.join(path), [bytes, line_feed].concat()).unwrap();
        let stem = directory.strip_prefix("tasks/").unwrap_or_default();
        let mut traces = spool.traces(stem, false);
        match name {
            "boot.json" => read::json(&spool.root.join(path)).map(Self::Boot),
            "epoch.json" => spool.accepted().map(Self::Epoch),
            "intent.json" => spool.intent(stem).map(Box::new).map(Self::Intent),
            "outcome.json" => spool.outcome(stem).map(Self::Outcome),
            "claim" => traces.claim.map(Self::Claim),
            "result.json" => traces.result.map(Self::Result),
            "steps.jsonl" => traces.steps.pop().map(Self::Step),
            "stop-asked" => traces.stop_asked.then_some(Self::StopAsked),
            // Only the runner looks for this file, and not into it.
            "boot-expected" => (stem == samples::stem()).then_some(Self::BootExpected),
            _ if directory == "tombstones" => spool.tombstones().unwrap().pop().map(Self::Tombstone),
            _ => None,
        }
    }
}

/// A line of a file in `golden/`.
struct Line<'a> {
    path: &'a str,
    name: &'a str,
    bytes: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let parts: Vec<&str> = line.splitn(3, ' ').collect();
        let [path, name, bytes] = parts[..] else { panic!("not a path, a name and bytes: {line}") };
        Self { path, name, bytes }
    }

    fn read(&self) -> Option<Content> {
        Content::read(self.path, self.bytes.as_bytes())
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.bytes).unwrap()
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/spool/tests/golden")
}

fn present() -> String {
    fs::read_to_string(directory().join(PRESENT)).unwrap_or_default()
}

#[test]
fn todays_writers_write_the_bytes_of_the_release() {
    let text = |content: &Content| String::from_utf8(content.write()).unwrap();
    let line = |(name, content): &(String, Content)| format!("{} {name} {}\n", content.path(), text(content));
    let written: String = samples().iter().map(line).collect();
    if std::env::var("PERILOG_GOLDEN").is_ok_and(|value| value == "write") {
        fs::write(directory().join(PRESENT), &written).unwrap();
    }
    let golden = present();
    for (written, golden) in written.lines().zip(golden.lines()) {
        assert_eq!(written, golden, "{PRESENT}: {CHANGED}");
    }
    assert_eq!(written.lines().count(), golden.lines().count(), "{PRESENT}: {CHANGED}");
}

#[test]
fn todays_readers_read_what_a_release_wrote() {
    let samples = samples();
    let sample = |of: &Line<'_>| samples.iter().find(|(name, content)| name == of.name && content.path() == of.path);
    let mut releases = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let is_present = path.ends_with(PRESENT);
        let golden = fs::read_to_string(&path).unwrap();
        for line in golden.lines().map(Line::parse) {
            let place = format!("{}: {} {}", path.display(), line.path, line.name);
            let read = line.read().unwrap_or_else(|| panic!("{place}: is not read; {CHANGED}"));
            // The reader has lost no member that the release wrote.
            let again: Value = serde_json::from_slice(&read.write()).unwrap();
            assert!(is_within(&line.json(), &again), "{place}: read as {again}; {CHANGED}");
            if is_present {
                let (_, sample) = sample(&line).unwrap_or_else(|| panic!("{place}: has no sample"));
                assert_eq!(read, *sample, "{place}: {CHANGED}");
            }
        }
        releases += 1;
    }
    assert!(releases > 0 && !present().is_empty(), "{PRESENT}: is missing; {CHANGED}");
}

/// Returns `true` if `whole` has all that `part` has. Its objects may have further members.
fn is_within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|of| is_within(value, of)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_within(part, whole))
        }
        _ => part == whole,
    }
}

/// Members whose object is a map of names, or one variant with its value: no release adds a member there. `claim` is
/// the file.
const CLOSED: [&str; 9] = ["claim", "env", "no-result", "run", "scripts", "status", "treatment", "why", "worst"];

/// A release adds members, and the release before it ignores them.
#[test]
fn members_that_a_newer_release_adds_are_ignored() {
    let (golden, mut members) = (present(), BTreeSet::new());
    for line in golden.lines().map(Line::parse) {
        let (sample, whole) = (line.read().unwrap(), line.json());
        let mut objects = Vec::new();
        find_objects(&whole, "", line.path.rsplit('/').next().unwrap(), &mut objects);
        for (pointer, member) in objects {
            let mut more = whole.clone();
            let object = more.pointer_mut(&pointer).and_then(Value::as_object_mut).unwrap();
            object.insert("of-a-newer-release".to_owned(), json!([{"a": 1}]));
            let read = Content::read(line.path, more.to_string().as_bytes());
            let is_closed = CLOSED.contains(&member.as_str());
            assert_eq!(read == Some(sample.clone()), !is_closed, "{} {}: {more}", line.path, line.name);
            members.insert(member);
        }
    }
    let missing: Vec<&str> = CLOSED.into_iter().filter(|name| !members.contains(*name)).collect();
    assert_eq!(missing, [""; 0], "no sample has these members");
}

/// Finds all objects in a value: the pointer to each (RFC 6901), and the name of the member that has it.
fn find_objects(value: &Value, pointer: &str, member: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            found.push((pointer.to_owned(), member.to_owned()));
            members.iter().for_each(|(name, value)| find_objects(value, &format!("{pointer}/{name}"), name, found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, value)| find_objects(value, &format!("{pointer}/{at}"), member, found));
        }
        _ => {}
    }
}

#[test]
fn a_record_of_a_kind_that_a_newer_runner_has_is_skipped() {
    let golden = present();
    let steps: Vec<&str> =
        golden.lines().map(Line::parse).filter(|of| of.path.ends_with("jsonl")).map(|of| of.bytes).collect();
    let with_new = steps.join("\n{\"step\":\"of-a-newer-release\",\"at_ms\":1}\n") + "\n";
    let read = read::step_records(with_new.as_bytes());
    assert_eq!(read, read::step_records((steps.join("\n") + "\n").as_bytes()));
    assert_eq!(read.len(), steps.len());
}

#[test]
fn every_variant_and_field_has_a_sample() {
    let samples = samples();
    assert_complete(samples.iter().map(|(_, content)| content));
    let (mut claims, mut steps, mut plans, mut outcomes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, content) in &samples {
        if name == "full" {
            assert_set(content);
        }
        match content {
            Content::Claim(claim) => claims.push(claim),
            Content::Step(step) => steps.push(step),
            Content::Intent(intent) => plans.push(&intent.plan),
            Content::Outcome(ended) => outcomes.push(&ended.outcome),
            _ => {}
        }
    }
    assert_all_outcomes(outcomes);
    assert_complete(claims);
    assert_complete(steps.iter().copied());
    assert_complete(steps.iter().filter_map(|step| match step {
        StepRecord::Report { report, .. } => Some(report),
        _ => None,
    }));
    assert_complete(steps.iter().filter_map(|step| match step {
        StepRecord::Left { treatment, .. } => Some(treatment),
        _ => None,
    }));
    assert_complete(plans.iter().map(|plan| &plan.run));
    assert_complete(plans.iter().map(|plan| &plan.on_timeout));
    assert_complete(plans.iter().map(|plan| &plan.on_error));
    assert_complete(plans.iter().map(|plan| &plan.empty));
    assert_complete(plans.iter().map(|plan| &plan.lingering));
}
