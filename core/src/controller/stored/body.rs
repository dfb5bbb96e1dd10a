//! Body of a notice in the outbox, kept as JSON text: perilog stores and sends the text. A hook that is away for a day
//! leaves thousands of notices, each with a fragment of R. Parsed trees would take ten times the memory.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The body of a notice as a JSON text. Clones share the text in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Arc<str>);

impl Body {
    /// Creates a body from a JSON text.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<serde::de::IgnoredAny>(text).map(|_| Self(text.into()))
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the whole body; `Value::Null` if the text is not JSON.
    pub fn value(&self) -> Value {
        self.read().unwrap_or_default()
    }

    /// Parses the body as a `T`, such as a struct with a few of its members; `None` if the body has a different shape.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(&self.0).ok()
    }
}

impl From<&Value> for Body {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::from(&value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_keeps_the_json_that_was_given() {
        let value =
            json!({"event": "release", "ranks": "0,2", "final": false, "R": {"version": 1, "execution": {"x": 0.1}}});
        let body = Body::from(&value);
        assert_eq!(body.value(), value);
        assert_eq!(Body::parse(body.as_str()).unwrap(), body);
        assert_eq!(serde_json::from_value::<Body>(serde_json::to_value(&body).unwrap()).unwrap(), body);
        for wrong in ["", "{", "{\"a\":1} and more", "\u{0}"] {
            assert!(Body::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
