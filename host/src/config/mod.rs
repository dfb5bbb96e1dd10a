//! Configuration files: TOML, a main file and drop-ins, with errors that point at the character.
//!
//! ```text
//! /etc/perilog/agent.toml:12:1: unknown key `time-out` in `limits`; did you mean `timeout`?
//!    |
//! 12 | time-out = "5x"
//!    | ^^^^^^^^
//! ```
//!
//! The loader checks every file alone, because a drop-in must not hide a wrong value that it replaces. Then it merges
//! all files and checks the whole, because only then can a key be missing. One report names all problems. Spans survive
//! the merge, so the last check also points into the right file.
//!
//! The files decide what root runs, so the loader refuses a file or directory that other users can write.

mod known;
mod origin;
mod reload;
mod report;
mod source;
mod tree;
mod values;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, Deserializer};

use self::source::{Sources, dropins_of, read};
use self::tree::{Step, Tree, dotted};

pub use self::known::keys;
pub use self::origin::Origins;
pub use self::reload::{Change, Changes};
pub use self::report::{ConfigError, Problem};
pub use self::values::{AbsolutePath, LogLevel};

/// Number of problems at which a check ends, of one file or of all files together. Each wrong value costs another pass
/// over the text, so this limit also keeps the number of passes low.
const MAX_PROBLEMS: usize = 20;

/// A configuration, with its files in the order in which they were read.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub value: T,
    pub files: Vec<PathBuf>,
    /// The file and line of each value.
    pub origins: Origins,
}

impl<T> Loaded<T> {
    /// Converts the value and keeps the files and origins.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> Loaded<U> {
        Loaded { value: then(self.value), files: self.files, origins: self.origins }
    }
}

/// Rule by which [`load`] treats a missing main file: as an error or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MainFile {
    Required,
    /// No error: without the main file, the defaults of `T` and the drop-ins count.
    Optional,
}

/// Reads `file`, then the `*.toml` in `dropins` in byte order. A later value replaces an earlier value; the loader
/// merges tables, and replaces arrays whole.
///
/// `T` needs no `deny_unknown_fields`: the loader refuses unknown keys with a hint. `T` must not use `flatten` or
/// `untagged`, which hide keys and positions from the loader. A missing `dropins` directory counts as empty.
pub fn load<T: DeserializeOwned>(
    file: &Path,
    main: MainFile,
    dropins: Option<&Path>,
) -> Result<Loaded<T>, ConfigError> {
    let mut problems = Vec::new();
    let mut sources = Sources::default();
    match read(file) {
        Ok(Some(text)) => sources.add(file, text),
        Ok(None) if main == MainFile::Optional => {}
        Ok(None) => problems.push(Problem::of_file(file, "there is no such file; it is required".into())),
        Err(problem) => problems.push(problem),
    }
    let names = dropins.map_or_else(|| Ok(Vec::new()), dropins_of);
    for path in names.unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    }) {
        match read(&path) {
            Ok(Some(text)) => sources.add(&path, text),
            // The file was removed between listing and reading: the loader ignores it.
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let value = check(&sources, file, &mut problems);
    finish(value, problems).map(|(value, origins)| Loaded { value, files: sources.paths(), origins })
}

/// Parses a text in memory, with `name` in its errors, for tests of a schema and for configurations passed as text.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, ConfigError> {
    parse_files(&[(Path::new(name), text)])
}

/// Parses texts in memory as the main file and its drop-ins, in this order. Errors about the whole name the first file.
pub(crate) fn parse_files<T: DeserializeOwned>(files: &[(&Path, &str)]) -> Result<T, ConfigError> {
    let (mut problems, mut sources) = (Vec::new(), Sources::default());
    files.iter().for_each(|(path, text)| sources.add(path, (*text).to_owned()));
    let value = check(&sources, files.first().map_or(Path::new(""), |(path, _)| path), &mut problems);
    finish(value, problems).map(|(value, _)| value)
}

fn finish<T>(value: Option<T>, problems: Vec<Problem>) -> Result<T, ConfigError> {
    match value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigError::new(problems)),
    }
}

/// Parses and checks all sources, and adds what is wrong to `problems`. A missing key of the top level counts as a
/// problem of the file `main`. Returns the configuration; `None` if a file is unreadable, or the whole is invalid.
fn check<T: DeserializeOwned>(sources: &Sources, main: &Path, problems: &mut Vec<Problem>) -> Option<(T, Origins)> {
    let mut readable = problems.is_empty();
    let mut merged = Tree::default();
    for source in sources.iter() {
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        if errors.is_empty() {
            let tree = Tree::new(table, source.base);
            let (_, found) = examine::<T>(tree.clone());
            // An error about a whole table may be wrong for one file's part of the table; the merged check reports the
            // error if it holds.
            let lone = found.into_iter().filter(|finding| !finding.of_table);
            problems.extend(lone.map(|finding| finding.into_problem(sources, main)));
            merged.merge(tree);
        }
        readable &= errors.is_empty();
        if errors.len() > MAX_PROBLEMS {
            let text = format!("the first {MAX_PROBLEMS} of {} errors are shown", errors.len());
            problems.push(Problem::of_file(&source.path, text));
        }
        // The place of each problem is found by a walk from the file's start.
        problems.extend(errors.into_iter().take(MAX_PROBLEMS).map(|error| {
            let span = error.span().map(|span| source.base + span.start..source.base + span.end);
            Problem::at(sources, &source.path, span, None, error.message().to_owned())
        }));
    }
    // An unreadable file may contain the keys that seem to be missing.
    if !readable {
        return None;
    }
    let origins = Origins::of(&merged, sources);
    let (value, found) = examine(merged);
    problems.extend(found.into_iter().map(|finding| finding.into_problem(sources, main)));
    value.map(|value| (value, origins))
}

/// A problem that [`examine`] found in a configuration.
struct Finding {
    span: Option<std::ops::Range<usize>>,
    path: Vec<Step>,
    message: String,
    /// Whether the error is about a table as a whole (a missing key, two conflicting keys), not about one value or key.
    of_table: bool,
}

impl Finding {
    fn into_problem(self, sources: &Sources, main: &Path) -> Problem {
        let key = (!self.path.is_empty()).then(|| dotted(&self.path));
        Problem::at(sources, main, self.span, key, self.message)
    }
}

/// Deserializes repeatedly, each time without the wrong values found so far, so that one report names all of them.
/// Returns the value, if the whole document is valid, and the findings.
fn examine<T: DeserializeOwned>(whole: Tree<'_>) -> (Option<T>, Vec<Finding>) {
    let mut tree = whole.clone();
    let mut findings: Vec<Finding> = Vec::new();
    let mut unknown: Vec<Vec<Step>> = Vec::new();
    let mut removed: Vec<Vec<Step>> = Vec::new();
    let mut value = None;
    while findings.len() + unknown.len() < MAX_PROBLEMS {
        let mut note = |path: serde_ignored::Path<'_>| {
            let path = tree::steps(&path);
            if unknown.len() < MAX_PROBLEMS && !unknown.contains(&path) {
                unknown.push(path);
            }
        };
        let error = match serde_ignored::deserialize(Deserializer::from(tree.root()), &mut note) {
            Ok(good) => {
                value = Some(good);
                break;
            }
            Err(error) => error,
        };
        let place = tree.locate(&error);
        // Skips errors about a table from which this function removed a part: the removal caused them, not the file.
        if !removed.iter().any(|path| path.starts_with(&place.path)) {
            findings.push(Finding {
                // A problem of the whole document has no line.
                span: error.span().filter(|_| !place.path.is_empty()),
                path: place.path.clone(),
                message: known::reword(error.message()),
                of_table: place.is_table,
            });
        }
        if !tree.remove(&place.path) {
            break;
        }
        removed.push(place.path);
    }
    findings.extend(unknown.into_iter().map(|path| Finding {
        span: whole.key_span(&path),
        message: known::unknown_key(&path, known::fields::<T>(&path)),
        path,
        of_table: false,
    }));
    (value, findings)
}

#[cfg(test)]
mod tests;
