//! Forms of parameters that differ from the value that the machine uses: functions for serde's `deserialize_with`, and
//! for its `serialize_with` where a value is to be read again as it was.
//! An error names the value and the expected form; the API adds the name of the parameter.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::duration::Span;
use crate::environment::check_name;
use crate::outcome::{check_sent, signal_name, signal_number};

/// Maximum size in bytes of an operator's text: a sentence, which goes into events and to nodes.
const MAX_TEXT: usize = 1_024;

pub(crate) fn wrong<E: de::Error>(text: impl Display) -> E {
    E::custom(text)
}

/// Reads an operator's text of at most 1 KiB. Replaces control characters by spaces: the text reaches nodes, events and
/// the site's hook, which may write it to a terminal or a line.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() > MAX_TEXT {
        return Err(wrong(format_args!("the text has {} bytes, and the limit is {MAX_TEXT}", text.len())));
    }
    Ok(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// Reads an optional text; empty if there is none.
pub(crate) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(reason(deserializer)?.unwrap_or_default())
}

/// Reads an optional text.
pub(crate) fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct Text(#[serde(deserialize_with = "text")] String);
    Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(text)| text))
}

/// Reads the name or the instance of a source, which must not be empty.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = text(deserializer)?;
    if name.is_empty() { Err(wrong("a source must have a name and an instance")) } else { Ok(name) }
}

/// Reads an action's time limit in milliseconds; `None`: no limit.
pub(crate) fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let timeout = Option::<Span>::deserialize(deserializer)?.and_then(Span::as_millis);
    match timeout {
        Some(0) => Err(wrong("the timeout is 0: expected a duration above zero")),
        timeout => Ok(timeout),
    }
}

pub(super) fn write_timeout<S: Serializer>(timeout_ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    timeout_ms.map(Span::from_millis).serialize(serializer)
}

/// Reads an optional age in milliseconds: 0 if there is none, the longest possible one for `infinity`.
pub(crate) fn age<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Option::<Span>::deserialize(deserializer)?.map_or(0, |age| age.as_millis().unwrap_or(u64::MAX)))
}

pub(super) fn write_age<S: Serializer>(age_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Span::from_millis(*age_ms).serialize(serializer)
}

/// Reads the name or number of a signal that perilog may send to scripts.
pub(crate) fn signal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let text = String::deserialize(deserializer)?;
    let signal = signal_number(&text);
    let signal = signal.ok_or_else(|| {
        wrong::<D::Error>(format_args!("unknown signal {text:?}: expected a name such as TERM, or 1 to 64"))
    })?;
    // Refuses the signal here; otherwise each node would refuse the signal in its own journal.
    check_sent(signal).map_err(wrong)?;
    Ok(signal)
}

pub(super) fn write_signal<S: Serializer>(signal: &u8, serializer: S) -> Result<S::Ok, S::Error> {
    signal_name(*signal).serialize(serializer)
}

/// Reads environment variables for scripts.
pub(crate) fn environment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let env: BTreeMap<String, String> = Option::deserialize(deserializer)?.unwrap_or_default();
    for (name, value) in &env {
        if let Err(at) = check_name(name) {
            let at = at + 1;
            return Err(wrong(format_args!(
                "malformed environment name {name:?} at character {at}: expected [A-Za-z_][A-Za-z0-9_]*"
            )));
        }
        if value.contains('\0') {
            return Err(wrong(format_args!("the value of environment variable {name} holds a NUL byte")));
        }
    }
    Ok(env)
}
