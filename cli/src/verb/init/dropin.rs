//! A drop-in of `init`: whether `init` wrote the file, and whether `init` has to write it.

use std::path::Path;

use super::record::Record;
use super::step::{Plan, Step};
use crate::verb::ca::files::Who;

/// State on this host of the drop-in that `init` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dropin {
    None,
    /// The file is as `init` wrote it. Contains its text.
    Ours(String),
    Foreign,
}

impl Dropin {
    pub(super) fn inspect(path: &Path, record: Option<&Record>) -> Self {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::None,
            Ok(text) if record.is_some_and(|record| record.owns(path)) => Self::Ours(text),
            _ => Self::Foreign,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Ours(text) => Some(text),
            _ => None,
        }
    }

    /// Adds to `plan` the step that writes the drop-in with this `text`, or adds a conflict if the present file is not
    /// as `init` wrote it. `summary`: the settings in words, for the plan. Returns `false` if `init` has written this
    /// text already.
    pub(super) fn plan(
        &self,
        path: &Path,
        text: &str,
        summary: &str,
        plan: &mut Plan,
        conflicts: &mut Vec<String>,
    ) -> bool {
        let shown = path.display();
        let write = || Step::Write { path: path.to_owned(), who: Who::Everybody, text: text.to_owned() };
        match self {
            Self::Ours(there) if there == text => {
                plan.is_there(format!("{shown}: {summary}"));
                return false;
            }
            Self::Foreign => conflicts.push(format!(
                "{shown} exists, but is not as init would have written it; move its lines to {}, and remove it",
                path.with_file_name("site.toml").display()
            )),
            Self::None => plan.add(format!("write {shown}: {summary}"), write()),
            Self::Ours(_) => plan.add(format!("write {shown} anew: {summary}"), write()),
        }
        true
    }
}
