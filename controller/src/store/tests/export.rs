//! Tests that an export has exactly the kinds and members that docs/operate.md lists: sites' programs read the export.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const PAGE: &str = include_str!("../../../../docs/operate.md");

type Kinds = BTreeMap<String, BTreeSet<String>>;

/// Returns, for each kind of export line, the names of its members, from the table in docs/operate.md. Leaves out text
/// in parentheses, which describes a member.
fn listed() -> Kinds {
    let table = PAGE.split("| `kind` | what | members |\n|---|---|---|\n").nth(1).unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let mut depth = 0u32;
        let outside: String = cells[2]
            .chars()
            .filter(|c| {
                depth = depth + u32::from(*c == '(') - u32::from(*c == ')');
                depth == 0
            })
            .collect();
        let members = outside.split('`').skip(1).step_by(2).map(str::to_owned);
        (cells[0].trim_matches('`').to_owned(), members.chain(["kind".to_owned()]).collect())
    })
    .collect()
}

/// Makes a store with two attempts, an action with a failed rank, and an event.
fn filled(dir: &Path) -> Store {
    let mut store = open(dir);
    let first = AttemptRow { open: false, ..attempt_row(job(1), 0..=3, "n[0-3]") };
    let second = AttemptRow { attempt: Attempt::from_parts(1, 0).unwrap(), ..attempt_row(job(1), 0..=3, "n[0-3]") };
    let name = ActionName::new("prolog").unwrap();
    let id = ActionId(uuid::Uuid::from_u128(1));
    let action = ActionRow::new(id, job(1), Attempt::FIRST, name, IdSet::from(0..=3), 900);
    let ended = Ended::bare(Outcome::Failed { why: Failure::Exit(3) }, 7);
    let rank = RankRow { task: TaskId { action: id, rank: Rank(2) }, ended, late: vec![], expects: None };
    let records = [
        Record::Attempt(first),
        Record::Attempt(second),
        Record::Action(Box::new(action)),
        Record::Rank(Box::new(rank)),
        event(&job(1), 1),
        Record::Attempt(attempt_row(job(2), 0..=0, "n0")),
    ];
    store.commit(&records).unwrap();
    store
}

fn exported(dir: &Path, wanted: Wanted) -> Vec<serde_json::Value> {
    let mut exporter = Exporter::open(&dir.join("controller.db"), wanted).unwrap();
    std::iter::from_fn(|| exporter.next_job().unwrap()).flatten().collect()
}

#[test]
fn kinds_and_members_are_those_of_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let _store = filled(dir.path());
    let mut found = Kinds::new();
    for line in [export_head(1)].into_iter().chain(exported(dir.path(), Wanted::default())) {
        let line = line.as_object().unwrap();
        let members: BTreeSet<String> = line.keys().cloned().collect();
        let kind = line["kind"].as_str().unwrap().to_owned();
        assert_eq!(*found.entry(kind).or_insert_with(|| members.clone()), members, "two lines of a kind");
    }
    assert_eq!(found, listed());
}

#[test]
fn a_job_comes_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let _store = filled(dir.path());
    let shown = |wanted| {
        let lines = exported(dir.path(), wanted);
        let of =
            |line: &serde_json::Value| format!("{} {}", line["job"].as_str().unwrap(), line["kind"].as_str().unwrap());
        lines.iter().map(of).collect::<Vec<_>>()
    };
    let first = ["f1 job", "f1 attempt", "f1 attempt", "f1 action", "f1 rank", "f1 event"];
    assert_eq!(shown(Wanted::default()), [&first[..], &["f2 job", "f2 attempt"]].concat());
    assert_eq!(shown(Wanted { job: Some(job(1)), ..Wanted::default() }), first);
    assert_eq!(shown(Wanted { job: Some(job(7)), ..Wanted::default() }), [""; 0]);
    assert_eq!(shown(Wanted { since_ms: Some(1), ..Wanted::default() }), [""; 0], "touched at 0");
    let rank = exported(dir.path(), Wanted::default()).into_iter().find(|line| line["kind"] == "rank").unwrap();
    assert_eq!((&rank["rank"], &rank["host"], &rank["action"]), (&json!(2), &json!("n2"), &json!("prolog")));
}
