//! Keys that a table may have, and the key that a misspelt one probably meant.
//!
//! Serde passes the fields of a struct only to a deserialiser. So the probe of this module pretends to be a document
//! that contains only the path to the table, and records the fields that the type asks for.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::tree::{Step, dotted};

/// Rewords serde's message for the operator: a `field` becomes a `key`.
pub(super) fn reword(message: &str) -> String {
    message.replacen("missing field `", "missing key `", 1).replacen("unknown field `", "unknown key `", 1)
}

/// Returns the error message for an unknown key, which is the last step of `path`. `fields` are the keys that the table
/// may have: the message names the one that was probably meant, or else all of them. With `None`, the message names no
/// other key.
pub(super) fn unknown_key(path: &[Step], fields: Option<&[&str]>) -> String {
    let key = match path.last() {
        Some(Step::Key(key)) => key.as_str(),
        _ => "",
    };
    let parent = &path[..path.len().saturating_sub(1)];
    let place = if parent.is_empty() { String::new() } else { format!(" in `{}`", dotted(parent)) };
    match fields {
        Some(fields) => match nearest(key, fields) {
            Some(meant) => format!("unknown key `{key}`{place}; did you mean `{meant}`?"),
            None => format!("unknown key `{key}`{place}; known are {}", listed(fields)),
        },
        None => format!("unknown key `{key}`{place}"),
    }
}

fn listed(fields: &[&str]) -> String {
    match fields {
        [] => "none".into(),
        _ => fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the field nearest to `key`; `None`: no field is near enough for a typing slip.
fn nearest<'f>(key: &str, fields: &[&'f str]) -> Option<&'f str> {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let key = plain(key);
    let allowed = |field: &str| (key.chars().count().max(field.len()) / 3).clamp(1, 3);
    fields
        .iter()
        .map(|field| (distance(&key, &plain(field)), *field))
        .filter(|(far, field)| *far <= allowed(field))
        .min_by_key(|(far, _)| *far)
        .map(|(_, field)| field)
}

/// Returns the number of edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// Returns the fields of the struct that contains the last key of `path`; `None` if that is no struct, or the probe
/// cannot reach it.
pub(super) fn fields<T: DeserializeOwned>(path: &[Step]) -> Option<&'static [&'static str]> {
    let (_, way) = path.split_last()?;
    let found = Cell::new(None);
    // This call always fails, because the document is empty.
    let _ = T::deserialize(Probe { way, found: &found });
    found.get()
}

/// Sample key that [`keys`] uses to probe tables whose keys a site chooses: a valid name of an action and of a script.
const ANY: &str = "name";
/// Maximum number of tables within each other to which [`keys`] descends; perilog's configuration files need
/// fewer.
const DEPTH: usize = 8;

/// Returns every key that a file of this type may have, with its tables, sorted: `tls.ca`, `action.NAME.timeout`.
/// `NAME` stands for a key that the site chooses in a table of tables; a table of plain values (variables) counts as
/// one key.
pub fn keys<T: DeserializeOwned>() -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<(Vec<Step>, String)> = vec![(Vec::new(), String::new())];
    while let Some((table, shown)) = open.pop() {
        let inside = |names: &[&str]| -> Vec<Step> {
            table.iter().cloned().chain(names.iter().map(|name| Step::Key((*name).to_owned()))).collect()
        };
        for field in fields::<T>(&inside(&["x"])).unwrap_or_default() {
            let deeper = |names: &[&str]| table.len() < DEPTH && fields::<T>(&inside(names)).is_some();
            if deeper(&[field, "x"]) {
                open.push((inside(&[field]), format!("{shown}{field}.")));
            } else if deeper(&[field, ANY, "x"]) {
                open.push((inside(&[field, ANY]), format!("{shown}{field}.NAME.")));
            } else {
                found.push(format!("{shown}{field}"));
            }
        }
    }
    found.sort();
    found
}

/// Deserializer of a document that contains only the path `way`. A type that deserializes the document asks for the
/// fields of the struct at the path's end, and the probe records their names in `found`.
#[derive(Clone, Copy)]
struct Probe<'p> {
    way: &'p [Step],
    found: &'p Cell<Option<&'static [&'static str]>>,
}

/// The error with which the probe stops a deserialization after it recorded the field names.
#[derive(Debug)]
struct Over;

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("over")
    }
}

impl std::error::Error for Over {}

impl de::Error for Over {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Over
    }
}

impl<'de> de::Deserializer<'de> for Probe<'_> {
    type Error = Over;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Over> {
        match self.way.split_first() {
            Some((Step::Key(key), way)) => visitor.visit_map(One { key: Some(key), value: Self { way, ..self } }),
            Some((Step::Index(_), way)) => visitor.visit_seq(One { key: None, value: Self { way, ..self } }),
            None => Err(Over),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Over> {
        if self.way.is_empty() {
            self.found.set(Some(fields));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Over> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Over> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

/// A table or an array of the [`Probe`]'s document, which has a single element: the next step of the probe's path.
/// `key` is `None` in an array.
struct One<'p> {
    key: Option<&'p str>,
    value: Probe<'p>,
}

impl<'de> MapAccess<'de> for One<'_> {
    type Error = Over;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Over> {
        // A second request: the first element did not end in a struct, so the probe finds no fields.
        let key = self.key.take().ok_or(Over)?;
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Over> {
        seed.deserialize(self.value)
    }
}

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Over;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Over> {
        seed.deserialize(self.value).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn every_key_is_found() {
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Inner {
            count: u32,
            variables: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(dead_code)]
        struct Outer {
            host_name: Option<String>,
            list: Vec<String>,
            inner: Inner,
            maybe: Option<Inner>,
            many: BTreeMap<String, Inner>,
        }
        let inner = |name: &str| [format!("{name}.count"), format!("{name}.variables")];
        let expect = [
            vec!["host-name".to_owned()],
            inner("inner").into(),
            vec!["list".to_owned()],
            inner("many.NAME").into(),
            inner("maybe").into(),
        ];
        assert_eq!(keys::<Outer>(), expect.concat());
    }

    #[test]
    fn distances() {
        for (a, b, expect) in [
            ("", "", 0),
            ("timeout", "timeout", 0),
            ("timout", "timeout", 1),
            ("tiemout", "timeout", 1),
            ("user", "group", 5),
            ("", "abc", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(a, b), expect, "{a} {b}");
            assert_eq!(distance(b, a), expect, "{b} {a}");
        }
    }

    #[test]
    fn the_nearest_is_meant_or_none() {
        let fields = ["timeout", "user", "scripts", "on-error"];
        for (key, expect) in [
            ("time-out", Some("timeout")),
            ("Timeout", Some("timeout")),
            ("timeuot", Some("timeout")),
            ("usr", Some("user")),
            ("on_error", Some("on-error")),
            ("script", Some("scripts")),
            ("memory", None),
            ("", None),
            ("日本", None),
        ] {
            assert_eq!(nearest(key, &fields), expect, "{key}");
        }
    }
}
