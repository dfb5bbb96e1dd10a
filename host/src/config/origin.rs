//! Origins of configuration values, and the printed configuration in force with each origin beside its value:
//!
//! ```text
//! max-tasks = 64                          # /etc/perilog/agent.d/10-site.toml:4
//! ```
//!
//! The output is itself a configuration: parsing the text gives the same values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::de::{DeTable, DeValue};

use super::Loaded;
use super::report::printable;
use super::source::Sources;
use super::tree::{Step, Tree, dotted};

/// Origin of a value that no file sets.
const DEFAULT: &str = "default";
/// Column, in characters, at which the comment with a value's origin begins; further right if the value is longer.
const COLUMN: usize = 40;

/// The file and the line that set each value, by dotted key such as `tls.ca`. A key that no file sets is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, (PathBuf, usize)>);

impl Origins {
    /// Collects the origins of all values in the merged tree; if several files set a value, the last one counts.
    pub(super) fn of(tree: &Tree<'_>, sources: &Sources) -> Self {
        let mut origins = BTreeMap::new();
        each_value(tree.root().get_ref(), &mut Vec::new(), &mut |path, span| {
            if let Some((source, span)) = sources.home(&span) {
                origins.insert(dotted(path), (source.path.clone(), source.line(span.start)));
            }
        });
        Self(origins)
    }

    /// Returns the origin of a key as text: `/etc/perilog/agent.toml:12`, or `default`.
    pub fn shown(&self, key: &str) -> String {
        self.0.get(key).map_or_else(|| DEFAULT.to_owned(), |(file, line)| place(file, *line))
    }
}

/// Formats a place as `FILE:LINE`. Replaces line breaks in the path: the text behind a break would count as a key.
fn place(file: &Path, line: usize) -> String {
    printable(&format!("{}:{line}", file.display()))
}

impl<T: Serialize> Loaded<T> {
    /// Returns the whole configuration as TOML text, defaults filled in, each value with its origin in a comment.
    ///
    /// # Errors
    /// Text, if a value has no TOML form; perilog's types all have a TOML form.
    pub fn print(&self) -> Result<String, String> {
        let bare = toml::to_string(&self.value).map_err(|error| error.to_string())?;
        let table = DeTable::parse(&bare).map_err(|error| error.to_string())?;
        let mut notes = BTreeMap::new();
        each_value(table.get_ref(), &mut Vec::new(), &mut |path, span| {
            notes.insert(span.end, self.origins.shown(&dotted(path)));
        });
        let mut text = String::new();
        for file in &self.files {
            text.push_str(&format!("# read: {}\n", printable(&file.display().to_string())));
        }
        let mut from = 0;
        for (end, origin) in notes {
            text.push_str(&bare[from..end]);
            let begun = text.rfind('\n').map_or(0, |newline| newline + 1);
            let width = text[begun..].chars().count();
            text.push_str(&format!("{}# {origin}", " ".repeat(COLUMN.saturating_sub(width).max(2))));
            from = end;
        }
        text.push_str(&bare[from..]);
        Ok(text)
    }
}

/// Calls `take` for every value below `table` that is no table, with its path and the span of its text. An array is one
/// value, because a drop-in replaces it whole.
fn each_value(table: &DeTable<'_>, path: &mut Vec<Step>, take: &mut impl FnMut(&[Step], std::ops::Range<usize>)) {
    for (key, value) in table {
        path.push(Step::Key(key.get_ref().to_string()));
        match value.get_ref() {
            DeValue::Table(inner) => each_value(inner, path, take),
            _ => take(path, value.span()),
        }
        path.pop();
    }
}
