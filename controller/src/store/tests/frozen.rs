//! Whole stores of releases, byte for byte. `store-VERSION.sql` is a store with rows in every table: its tables,
//! indexes and values. `frozen/version_VERSION.rs` has the same as values of Rust. Today's controller reads each of
//! these stores, also one that it migrates first, and writes the newest.
//!
//! A new field without a value does not compile there; `the_newest_store_has_every_column_and_variant` fails for a
//! column, a variant or a field that has none.
//!
//! Rules for a change of what the store keeps, be it a table, an index, a column, a member of a JSON column or a word:
//!
//! * Once a release has written a version, the file of that version never changes. The change is a new `VERSION` with a
//!   migration (`store/schema.rs`), so that older releases refuse the store.
//! * At version 15, `store-14.sql` stays as it is, and is migrated. In `version_14.rs`, a field that is new in version
//!   15 has the value that the migration gives. `version_15.rs` begins as a copy, gets its line in [`VERSIONS`], and
//!   sets the new fields. `PERILOG_GOLDEN=write cargo test -p perilog-controller --lib frozen` writes `store-15.sql`.
//! * Until a release has written a version, its file may be written anew with `PERILOG_GOLDEN=write`.

mod version_14;

use super::ends::{Variants, assert_all_outcomes, assert_complete, assert_set, variants};
use super::versions::{tables, tables_of_a_new_file};
use super::*;

/// Each version that a release has written, with what its store has. The newest is the last.
const VERSIONS: [(i64, fn() -> Contents); 1] = [(14, version_14::contents)];

/// Contents of a store.
pub(super) struct Contents {
    /// Result of a load of the store. In each list, the first row has every field set.
    pub(super) snapshot: Snapshot,
    /// An action as its row has it, and its newer sets of ranks, which are in a row of `action_deltas`.
    pub(super) action: (ActionRow, ActionDelta),
    /// The same of an attempt.
    pub(super) attempt: (AttemptRow, AttemptDelta),
    /// The events of each commit, in order.
    pub(super) events: Vec<(u64, Vec<(JobId, u64, Event)>)>,
    /// The places of all events, as texts, in their order.
    pub(super) spots: Vec<&'static str>,
    /// Durations of scripts, as a node reports them.
    pub(super) ran: Vec<Ran>,
    /// The same, as `perilog timeline` shows them. All are of `job`.
    pub(super) timeline: (JobId, Vec<serde_json::Value>),
    /// The file beside the store with its newest commit.
    pub(super) anchor: &'static str,
}

variants! {
    Verdict { Self::Ok, Self::Failed, Self::Timeout, Self::Lost, Self::Refused, Self::Cancelled }
    Recovered { Self::No, Self::Added, Self::TakenUp, Self::Begun }
    Passing { Self::Unknown, Self::Missing { .. }, Self::Cleaning { .. } }
    Reader { Self::Manager, Self::ReleaseHook }
    Tolerance { Self::Ranks(_), Self::Percent(_) }
}

fn file(version: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/store/tests/store-{version}.sql"))
}

fn newest() -> Contents {
    let (version, contents) = VERSIONS.last().unwrap();
    assert_eq!(*version, schema::VERSION, "this version has no store: see the rules in store/tests/frozen.rs");
    contents()
}

/// Makes the store of a version in the directory, as its release left it.
fn lay(version: i64, contents: &Contents, dir: &Path) -> PathBuf {
    let path = dir.join("controller.db");
    let sql = std::fs::read_to_string(file(version)).unwrap();
    Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
    std::fs::write(dir.join("controller.db-anchor"), contents.anchor).unwrap();
    path
}

#[test]
fn todays_controller_reads_each_store_of_a_release() {
    for (version, contents) in VERSIONS {
        let (dir, expect) = (tempfile::tempdir().unwrap(), contents());
        let path = lay(version, &expect, dir.path());
        let mut store = open(dir.path());
        assert_same(&sorted(store.load().unwrap()), &sorted(expect.snapshot));
        let reader = EventReader::open(&path).unwrap();
        let all: Vec<_> = reader.all(None, 99).unwrap().unwrap();
        assert_eq!(all.iter().map(|one| one.spot.to_string()).collect::<Vec<_>>(), expect.spots, "{version}");
        let events = expect.events.into_iter().flat_map(|(_, events)| events);
        assert!(all.into_iter().map(|one| (one.job, one.sequence, one.event)).eq(events), "{version}: events");
        let (job, tasks) = expect.timeline;
        let which = Which { job, attempt: None, action: None };
        let page = StepReader::open(&path).unwrap().timeline(&which, None, 99).unwrap().unwrap();
        assert_eq!(page.tasks, tasks, "{version}");
        assert_eq!(tables(&path), tables_of_a_new_file(), "{version}");
        schema::check_objects(&store.db).unwrap();
    }
}

#[test]
fn todays_controller_writes_the_newest_store() {
    let (dir, contents) = (tempfile::tempdir().unwrap(), newest());
    let written = dump(&write(&contents, dir.path()));
    let path = file(schema::VERSION);
    if std::env::var("PERILOG_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &written).unwrap();
    }
    let frozen = std::fs::read_to_string(&path).unwrap_or_default();
    let changed = "stores of this version exist: see the rules in store/tests/frozen.rs";
    for (written, frozen) in written.lines().zip(frozen.lines()) {
        assert_eq!(written, frozen, "{}: {changed}", path.display());
    }
    assert_eq!(written.lines().count(), frozen.lines().count(), "{}: {changed}", path.display());
    let anchor = std::fs::read_to_string(dir.path().join("controller.db-anchor")).unwrap();
    assert_eq!(anchor, contents.anchor, "{changed}");
}

/// Each version has a file, and each file a version.
#[test]
fn no_store_of_a_release_is_forgotten() {
    let entries = std::fs::read_dir(file(0).parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut stores: Vec<String> = names.filter(|name| name.starts_with("store-")).collect();
    stores.sort();
    assert_eq!(stores, VERSIONS.map(|(version, _)| format!("store-{version}.sql")));
}

#[test]
fn the_newest_store_has_every_column_and_variant() {
    let (dir, contents) = (tempfile::tempdir().unwrap(), newest());
    let db = Connection::open(lay(schema::VERSION, &contents, dir.path())).unwrap();
    for (table, column) in tables_of_a_new_file() {
        let column = column.split(' ').next().unwrap();
        // With the type: in a column of texts 0 is the text 0, the number of an attempt.
        let says =
            format!("typeof(\"{column}\") || \"{column}\" NOT IN ('null', 'integer0', 'text', 'text{{}}', 'text[]')");
        let sql = format!("SELECT count(*) FROM {table} WHERE {says}");
        let count: i64 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert!(count > 0, "no row of {table} has a {column} that says something");
    }
    let Snapshot { recovery, nodes, attempts, actions, ranks, drains, quiet, outbox, .. } = contents.snapshot;
    assert_set(&(recovery, &nodes[0], &attempts[0], &actions[0], &ranks[0], &drains[0], quiet));
    assert_set(&(contents.action.1, contents.attempt.1));
    assert_all_outcomes(ranks.iter().map(|row| &row.ended.outcome));
    assert_complete(actions.iter().filter_map(|row| row.verdict.as_ref()));
    assert_complete(attempts.iter().map(|row| &row.recovered));
    assert_complete(attempts.iter().filter_map(|row| row.terms.tolerate.as_ref()));
    assert_complete(drains.iter().filter_map(|row| row.passing.as_ref()));
    assert_complete(outbox.iter().map(|entry| &entry.reader));
}

/// Writes a store as a controller does, and takes a copy of it as an operator does. Returns the path of the copy.
fn write(contents: &Contents, dir: &Path) -> PathBuf {
    let Snapshot {
        history,
        stamp,
        anchor,
        moved: _,
        recovery,
        nodes,
        attempts,
        actions,
        ranks,
        drains,
        quiet,
        outbox,
        outbox_last: _,
        events_last: _,
        elsewhere: _,
    } = contents.snapshot.clone();
    let mut store = open(dir);
    let commits = history.epochs.iter().map(|range| (range.first, Some(range.epoch))).chain([(history.last, None)]);
    for (number, epoch) in commits {
        let events = contents.events.iter().filter(|(commit, _)| *commit == number).flat_map(|(_, events)| events);
        let events = events.map(|(job, sequence, event)| Record::Event {
            job: job.clone(),
            sequence: *sequence,
            event: event.clone(),
        });
        let records = [Record::Commit(number)].into_iter().chain(epoch.map(Record::Epoch)).chain(events);
        store.commit(&records.collect::<Vec<_>>()).unwrap();
    }
    let (first_action, action_delta) = &contents.action;
    let actions = actions.into_iter().map(|row| if row.id == first_action.id { first_action.clone() } else { row });
    let (first_attempt, attempt_delta) = &contents.attempt;
    let (job, attempt) = (first_attempt.job.clone(), first_attempt.attempt);
    let is_first = |row: &AttemptRow| (&row.job, row.attempt) == (&job, attempt);
    let attempts = attempts.into_iter().map(|row| if is_first(&row) { first_attempt.clone() } else { row });
    let records = recovery.into_iter().map(Record::Recovery).chain(nodes.into_iter().map(Record::Node));
    let records = records.chain(attempts.map(Record::Attempt)).chain(actions.map(|row| Record::Action(Box::new(row))));
    let records = records.chain(ranks.into_iter().map(|row| Record::Rank(Box::new(row))));
    let records = records.chain(drains.into_iter().map(Record::Drain)).chain([Record::Quiet(quiet)]);
    let mut records: Vec<Record> = records.chain(outbox.into_iter().map(Record::Outbox)).collect();
    records.push(Record::ActionDelta { action: first_action.id, delta: Box::new(action_delta.clone()) });
    records.push(Record::AttemptDelta { job: job.clone(), attempt, holds: Box::new(attempt_delta.clone()) });
    let mut ran = contents.ran.clone();
    store.commit_with(&records, &mut ran).unwrap();
    assert_eq!(ran.len(), contents.ran.len(), "all durations are stored");
    store.anchor(anchor.unwrap());
    drop(store);
    let copy = dir.join("copy.db");
    crate::store::backup::install(&dir.join("controller.db"), &copy).unwrap();
    let made_ms = stamp.map(|stamp| i64::try_from(stamp).unwrap());
    Connection::open(&copy).unwrap().execute("UPDATE stamp SET made_ms = ?1", [made_ms]).unwrap();
    copy
}

/// Returns the SQL that makes the store: its tables and indexes without comments, its rows, its version.
fn dump(path: &Path) -> String {
    let db = Connection::open(path).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        db.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    let made = texts("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type = 'index', name");
    let mut lines: Vec<String> = made.iter().map(|sql| format!("{};", plain(sql))).collect();
    for table in texts("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
        // The name of one column is a word of SQL.
        let name = "CASE name WHEN 'by' THEN '\"by\"' ELSE name END";
        let columns = texts(&format!("SELECT {name} FROM pragma_table_info('{table}')"));
        let values: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
        let (columns, values) = (columns.join(", "), values.join(" || ', ' || "));
        let rows = texts(&format!("SELECT {values} FROM {table} ORDER BY {columns}"));
        let into = format!("INSERT INTO {table} ({columns}) VALUES");
        lines.extend(rows.iter().map(|row| format!("{into} ({row});")));
    }
    for name in ["application_id", "user_version"] {
        lines.push(format!("PRAGMA {name} = {};", number(name)));
    }
    lines.join("\n") + "\n"
}

/// Returns a statement of the schema on one line, without its comments.
fn plain(sql: &str) -> String {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Compares two snapshots, and shows the first lines that differ.
fn assert_same(found: &Snapshot, expect: &Snapshot) {
    let (of_found, of_expect) = (format!("{found:#?}"), format!("{expect:#?}"));
    for (found, expect) in of_found.lines().zip(of_expect.lines()) {
        assert_eq!(found, expect, "in\n{of_found}");
    }
    assert!(found == expect, "{of_found}\n{of_expect}");
}
