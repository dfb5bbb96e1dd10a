//! A TOML document as a tree. Its spans count bytes from the beginning of the first configuration file, across all
//! files. So they stay valid after the trees of several files are merged.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A step from a table or an array to one of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Formats `a.b[2].c`; quotes a key that is no bare key.
pub(super) fn dotted(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Index(index) => out.push_str(&format!("[{index}]")),
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
                if bare { out.push_str(key) } else { out.push_str(&format!("{key:?}")) }
            }
        }
    }
    out
}

/// Returns the steps of a path that serde_ignored reports.
pub(super) fn steps(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    match path {
        Path::Root => Vec::new(),
        Path::Seq { parent, index } => push(steps(parent), Step::Index(*index)),
        Path::Map { parent, key } => push(steps(parent), Step::Key(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => steps(parent),
    }
}

fn push(mut path: Vec<Step>, step: Step) -> Vec<Step> {
    path.push(step);
    path
}

/// The place of an error in a tree.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub path: Vec<Step>,
    pub is_table: bool,
}

impl Place {
    const ROOT: Self = Self { path: Vec::new(), is_table: true };
}

#[derive(Debug, Clone)]
pub(super) struct Tree<'i> {
    root: Spanned<DeTable<'i>>,
}

impl Default for Tree<'_> {
    fn default() -> Self {
        Self { root: Spanned::new(0..0, DeTable::new()) }
    }
}

impl<'i> Tree<'i> {
    /// Makes a tree; `base` is the document's offset in bytes in the concatenation of all documents.
    pub(super) fn new(root: Spanned<DeTable<'i>>, base: usize) -> Self {
        let span = shift(root.span(), base);
        Self { root: Spanned::new(span, shift_table(root.into_inner(), base)) }
    }

    pub(super) fn root(&self) -> Spanned<DeTable<'i>> {
        self.root.clone()
    }

    /// Merges `other` over this tree: the values of `other` replace existing values, and tables are merged deeply.
    pub(super) fn merge(&mut self, other: Self) {
        merge_tables(self.root.get_mut(), other.root.into_inner());
    }

    /// Finds the value that a deserialiser's error means: by its span, and among equal spans by its keys (an implicit
    /// table has the span of its header). Returns the root if no value fits.
    pub(super) fn locate(&self, error: &toml::de::Error) -> Place {
        let Some(span) = error.span() else {
            return Place::ROOT;
        };
        let mut places = Vec::new();
        collect(self.root.get_ref(), &span, &mut Vec::new(), &mut places);
        let keys = keys_of(error);
        let named = places.iter().find(|place| Some(keys_only(&place.path)) == keys).cloned();
        named.or_else(|| places.pop()).unwrap_or(Place::ROOT)
    }

    /// Removes the value at `path`. If the path leads through an array, removes that whole array. Returns `false` if
    /// the tree has no such value.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        let keys: Vec<&str> = path.iter().map_while(as_key).collect();
        let Some((last, parents)) = keys.split_last() else {
            return false;
        };
        let mut table = self.root.get_mut();
        for key in parents {
            table = match table.get_mut(*key).map(Spanned::get_mut) {
                Some(DeValue::Table(inner)) => inner,
                _ => return false,
            };
        }
        table.remove(*last).is_some()
    }

    /// Returns the span of the last key of `path`; `None` if the tree has no such path, or `path` is empty or
    /// ends in an index.
    pub(super) fn key_span(&self, path: &[Step]) -> Option<Range<usize>> {
        let (last, parents) = path.split_last()?;
        let mut table = Some(self.root.get_ref());
        let mut value: Option<&Spanned<DeValue<'i>>> = None;
        for step in parents {
            value = match step {
                Step::Key(key) => table?.get(key.as_str()),
                Step::Index(index) => value?.get_ref().as_array()?.get(*index),
            };
            table = value?.get_ref().as_table();
        }
        Some(table?.get_key_value(as_key(last)?)?.0.span())
    }
}

fn as_key(step: &Step) -> Option<&str> {
    match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    }
}

/// Returns the keys of a path joined with dots, as the deserialiser writes them: without quotes and without indices.
fn keys_only(path: &[Step]) -> String {
    path.iter().filter_map(as_key).collect::<Vec<_>>().join(".")
}

/// Returns the dotted keys that a deserialiser's error is about; `None` if it names none. Only an error without its
/// input text prints the keys, so the function removes the input from a copy.
fn keys_of(error: &toml::de::Error) -> Option<String> {
    let mut error = error.clone();
    error.set_input(None);
    let text = error.to_string();
    let line = text.strip_prefix(error.message())?.trim();
    Some(line.strip_prefix("in `")?.strip_suffix('`')?.to_owned())
}

/// Adds the place of every value or key with the span `span` to `places`, parents before children.
fn collect(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<Step>, places: &mut Vec<Place>) {
    for (key, value) in table {
        path.push(Step::Key(key.get_ref().to_string()));
        if key.span() == *span && value.span() != *span {
            places.push(Place { path: path.clone(), is_table: false });
        }
        collect_value(value, span, path, places);
        path.pop();
    }
}

fn collect_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<Step>, places: &mut Vec<Place>) {
    if value.span() == *span {
        places.push(Place { path: path.clone(), is_table: value.get_ref().is_table() });
    }
    match value.get_ref() {
        DeValue::Table(table) => collect(table, span, path, places),
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                path.push(Step::Index(index));
                collect_value(item, span, path, places);
                path.pop();
            }
        }
        _ => {}
    }
}

fn merge_tables<'i>(below: &mut DeTable<'i>, above: DeTable<'i>) {
    for (key, mut value) in above {
        if let Some(place) = below.get_mut(key.get_ref().as_ref())
            && let (DeValue::Table(ours), DeValue::Table(theirs)) = (place.get_mut(), value.get_mut())
        {
            merge_tables(ours, std::mem::take(theirs));
            continue;
        }
        below.insert(key, value);
    }
}

fn shift(span: Range<usize>, base: usize) -> Range<usize> {
    span.start + base..span.end + base
}

/// Shifts the spans of a table. The recursion is bounded: the parser refuses tables that are nested too deeply.
fn shift_table(table: DeTable<'_>, base: usize) -> DeTable<'_> {
    table
        .into_iter()
        .map(|(key, value)| (Spanned::new(shift(key.span(), base), key.into_inner()), shift_value(value, base)))
        .collect()
}

fn shift_value(value: Spanned<DeValue<'_>>, base: usize) -> Spanned<DeValue<'_>> {
    let span = shift(value.span(), base);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shift_table(table, base)),
        DeValue::Array(array) => {
            let mut shifted = DeArray::new();
            for item in array {
                shifted.push(shift_value(item, base));
            }
            DeValue::Array(shifted)
        }
        scalar => scalar,
    };
    Spanned::new(span, value)
}
