//! Configuration files: TOML, a main file and drop-ins, with errors that point at the character.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// A configuration and the files that it came from, in the order in which they were read.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub value: T,
    pub files: Vec<PathBuf>,
}

/// Everything that is wrong with a configuration; `Display` is the report for people.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", problems.len())]
pub struct ConfigError {
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    /// Line and column, from 1; none when the file as a whole is meant.
    pub position: Option<(usize, usize)>,
    /// The dotted key, where one is meant.
    pub key: Option<String>,
    /// What is wrong and what is expected.
    pub message: String,
}

impl ConfigError {
    /// All problems, in the order of files and lines.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// Whether the main file must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MainFile {
    Required,
    /// Without it the defaults of `T` and the drop-ins count.
    Optional,
}

/// Reads `file` and then the `*.toml` in `dropins`, byte-sorted; a later value replaces an earlier one, tables are merged.
///
/// `T` needs no `deny_unknown_fields`: unknown keys are refused here, with a hint. `T` must not use `flatten` or `untagged`, which hide keys
/// and positions from us. A missing `dropins` directory is an empty one.
pub fn load<T: DeserializeOwned>(
    _file: &Path,
    _main: MainFile,
    _dropins: Option<&Path>,
) -> Result<Loaded<T>, ConfigError> {
    todo!()
}

/// The same for a text in memory, named `name` in errors: for tests of a schema, and for configurations that are handed over.
pub fn parse<T: DeserializeOwned>(_name: &str, _text: &str) -> Result<T, ConfigError> {
    todo!()
}
