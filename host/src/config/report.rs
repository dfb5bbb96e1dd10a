//! Configuration errors as the operator reads them.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::source::Sources;

/// Maximum number of characters of a line that the report shows. For a longer line, the report has only the position.
const MAX_LINE_SHOWN: usize = 160;

/// All problems of a configuration; `Display` is the report for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

/// A problem in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    /// Line and column (in characters), from 1; `None`: the problem is about the file as a whole.
    pub position: Option<(usize, usize)>,
    /// The dotted key, if the problem is about a key.
    pub key: Option<String>,
    /// A sentence for people: the problem, and often the expected value.
    pub message: String,
    /// The text of the line, and the number of wrong characters; `None`: there is no position, or the line is too long.
    excerpt: Option<Box<(String, usize)>>,
}

impl ConfigError {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        // A stable sort: files stay in the order in which they were read.
        let order: Vec<PathBuf> = problems.iter().map(|problem| problem.file.clone()).collect();
        let rank = |problem: &Problem| order.iter().position(|file| *file == problem.file);
        problems.sort_by_key(|problem| (rank(problem), problem.position));
        // The check of each file and the check of the whole report the same problem twice.
        let mut once: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        Self { problems: once }
    }

    /// Returns all problems, in the order of files and lines.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Problem {
    pub(super) fn of_file(file: &Path, message: String) -> Self {
        Self { file: file.to_owned(), position: None, key: None, message, excerpt: None }
    }

    /// Makes a problem at `span`, which counts bytes across all sources. Without `span` the problem is about `file` as
    /// a whole.
    pub(super) fn at(
        sources: &Sources,
        file: &Path,
        span: Option<Range<usize>>,
        key: Option<String>,
        message: String,
    ) -> Self {
        let Some((source, span)) = span.as_ref().and_then(|span| sources.home(span)) else {
            return Self { key, ..Self::of_file(file, message) };
        };
        let text = &source.text;
        let at = floor(text, span.start);
        let end = floor(text, span.end).max(at);
        let start_of_line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[start_of_line..].split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let column = text[start_of_line..at].chars().count();
        let end = end.min(start_of_line + line.len()).max(at);
        let width = text[at..end].chars().count().max(1);
        Self {
            file: source.path.clone(),
            position: Some((source.line(at), column + 1)),
            key,
            message,
            excerpt: (line.chars().count() <= MAX_LINE_SHOWN).then(|| Box::new((line.to_owned(), width))),
        }
    }
}

/// Returns the nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if let Some(key) = &self.key {
            write!(f, " {}:", printable(key))?;
        }
        write!(f, " {}", printable(&self.message))?;
        let (Some((line, column)), Some((excerpt, width))) = (self.position, self.excerpt.as_deref()) else {
            return Ok(());
        };
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        // Pads with a tab under a tab, so that the caret is in place at any tab width.
        let pad: String = excerpt.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let missing = (column - 1).saturating_sub(excerpt.chars().count());
        write!(f, "\n {gutter} |\n {number} | {}", printable(excerpt))?;
        write!(f, "\n {gutter} | {pad}{}{}", " ".repeat(missing), "^".repeat(*width))
    }
}

/// Replaces control characters except tabs by U+FFFD: text from a file must not control the reader's terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
