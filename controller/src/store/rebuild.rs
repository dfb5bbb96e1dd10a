//! A damaged store: found at a start, and rebuilt where every row can still be read.
//!
//! | the search at the start (`search`) | then |
//! |---|---|
//! | none, or the store is whole | the start goes on |
//! | damaged, and every row of each table can be read | the rows are copied to a new file; recovery |
//! | damaged, and a row cannot be read or is missing | the start is refused, and the text names the remedy |
//!
//! The new file has a stamp, so the controller treats it as a store that may be behind: a row that can be read may be
//! an old one. The damaged file stays beside it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use perilog_host::clock;
use rusqlite::Connection;

use super::{OpenError, StoreError, backup, log, place};

/// Returns the damage that SQLite finds in the store; `None`: the store is whole.
pub(super) fn damage(db: &Connection) -> rusqlite::Result<Option<String>> {
    match db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0)) {
        Ok(verdict) => Ok((verdict != "ok").then(|| verdict.replace('\n', ": "))),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Returns `true` if an error of SQLite means that the store's file is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase))
}

/// Copies every row of the damaged store to a new file, and puts that file in the store's place. `wrong`: the damage.
/// The caller opens the store again.
///
/// # Errors
/// [`OpenError::NoRoom`]: SQLite finds the disk full. [`OpenError::Ruined`]: a row cannot be read, a table lacks rows
/// of its index, another program has the store open, or the disk fails. The store stays, unless only the last sync
/// failed.
pub(super) fn rebuild(db: Connection, store: &Path, wrong: &str) -> Result<(), OpenError> {
    let to = place::beside(store, "rebuilding");
    // With the log, the next start searches the store again.
    log::keep(&db, true);
    let rebuilt = write(&db, &to).and_then(|()| Ok(replace(db, store, &to)?));
    let kept = rebuilt.map_err(|failed| {
        let _ = fs::remove_file(&to);
        let (path, wrong) = (store.to_owned(), wrong.to_owned());
        match failed {
            Failed::Full => OpenError::NoRoom { path, wrong },
            Failed::Other(why) => OpenError::Ruined { path, wrong, why },
        }
    })?;
    tracing::error!(
        "{}: the store was damaged ({wrong}): it was rebuilt from its rows, and may be behind its nodes. The damaged \
         file is kept as {}. Check the disk (journalctl -k)",
        store.display(),
        kept.display()
    );
    Ok(())
}

/// The reason why the store was not rebuilt: the new file could not be made, or could not be put in the store's place.
enum Failed {
    /// The disk has no room for it.
    Full,
    Other(String),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

fn write(db: &Connection, to: &Path) -> Result<(), Failed> {
    // A controller that was cut off while it rebuilt left this file.
    let _ = fs::remove_file(to);
    place::create_private(to).map_err(|error| error.to_string())?;
    copy_rows(db, to)?;
    backup::complete(to).map_err(|error| match error {
        StoreError::Full => Failed::Full,
        StoreError::Other(why) => Failed::Other(why),
    })?;
    Ok(File::open(to).and_then(|file| file.sync_all()).map_err(|error| error.to_string())?)
}

/// Makes the tables anew in the empty file `to`, copies all rows of each table, and makes the indexes from the rows.
///
/// # Errors
/// A row cannot be read; a readable index of a table has rows that the table lacks (a page of the table is an old one);
/// or the new file cannot be written.
fn copy_rows(db: &Connection, to: &Path) -> Result<(), Failed> {
    db.execute("ATTACH ?1 AS rebuilt", [to.to_string_lossy()])?;
    let kinds = "SELECT type, name, sql FROM main.sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'index'";
    let mut kinds = db.prepare(kinds)?;
    let kinds: Vec<(String, String, String)> =
        kinds.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect::<rusqlite::Result<_>>()?;
    let tables = kinds.iter().filter(|(kind, ..)| kind == "table");
    let indexed: BTreeMap<&str, usize> =
        tables.map(|(_, name, _)| Ok((name.as_str(), most_in_an_index(db, name)?))).collect::<rusqlite::Result<_>>()?;
    let transaction = db.unchecked_transaction()?;
    for (kind, name, sql) in &kinds {
        // SQLite keeps each definition with its first words as CREATE TABLE or CREATE INDEX.
        let kept = format!("CREATE {} ", kind.to_uppercase());
        db.execute_batch(&sql.replacen(&kept, &format!("{kept}rebuilt."), 1))?;
        if kind == "table" {
            // With a condition, SQLite reads rows and not the pages of indexes.
            let copied = db
                .execute(&format!("INSERT INTO rebuilt.{name} SELECT * FROM main.{name} NOT INDEXED WHERE true"), [])?;
            if indexed.get(name.as_str()).is_some_and(|most| *most > copied) {
                return Err(Failed::Other(format!("table {name} lacks rows that its index has")));
            }
        }
    }
    for pragma in ["application_id", "user_version"] {
        let value: i64 = db.pragma_query_value(Some("main"), pragma, |row| row.get(0))?;
        db.pragma_update(Some("rebuilt"), pragma, value)?;
    }
    transaction.commit()?;
    Ok(db.execute_batch("DETACH rebuilt")?)
}

/// Returns the largest number of rows in an index of the table. An index that cannot be read counts as empty.
fn most_in_an_index(db: &Connection, table: &str) -> rusqlite::Result<usize> {
    let sql = "SELECT name FROM pragma_index_list(?1, 'main') WHERE partial = 0 AND origin <> 'pk'";
    let mut statement = db.prepare(sql)?;
    let indexes: Vec<String> = statement.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let count = |index: &String| -> Option<i64> {
        let sql = format!("SELECT COUNT(*) FROM main.{table} INDEXED BY {index}");
        db.query_row(&sql, [], |row| row.get(0)).ok()
    };
    Ok(indexes.iter().filter_map(count).filter_map(|count| usize::try_from(count).ok()).max().unwrap_or(0))
}

/// Puts the file `to` in the store's place. Returns the path at which the damaged store stays.
fn replace(db: Connection, store: &Path, to: &Path) -> Result<PathBuf, String> {
    // A log that stays beside the new file would be applied to it.
    let busy: bool = db
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(|error| format!("its log cannot be copied: {error}"))?;
    if busy {
        return Err("another program has the store open".to_owned());
    }
    db.close().map_err(|(_, error)| error.to_string())?;
    let kept = place::beside(store, &format!("damaged-{}", clock::wall_ms() / 1000));
    fs::hard_link(store, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    fs::rename(to, store).map_err(|error| error.to_string())?;
    log::sync_names(store).map_err(|error| error.to_string())?;
    Ok(kept)
}
