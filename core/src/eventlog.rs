//! Event logs in the form of RFC 18: one line with a JSON object for each event. Writers only append whole lines.
//!
//! ```text
//! {"timestamp":1552593348.09283,"name":"release","context":{"final":true,"ranks":"all"}}
//! ```
//! Other modules define the names of events: [`JobEvent`] those of RFC 21, the controller its own. The parser skips
//! unknown keys of an event, as RFC 21 requires.

mod job;

use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::{Map, Value};

pub use job::{Exception, JobEvent};

use crate::ParseError;

const WHAT: &str = "event";

/// An event: a timestamp, a name and a context. The timestamp is a finite number above zero, so that the event's line
/// always parses again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Event {
    timestamp: f64,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Map<String, Value>>,
}

impl Event {
    /// Creates an event; `timestamp` is in seconds since 1970. `None`: the timestamp is not a finite number above
    /// zero.
    pub fn new(timestamp: f64, name: impl Into<String>, context: Option<Map<String, Value>>) -> Option<Self> {
        (timestamp.is_finite() && timestamp > 0.0).then(|| Self { timestamp, name: name.into(), context })
    }

    /// Creates an event from milliseconds since 1970. 0 becomes 1 ms, because RFC 18 has no event at zero.
    pub fn at_millis(wall_ms: u64, name: impl Into<String>, context: Option<Map<String, Value>>) -> Self {
        Self { timestamp: wall_ms.max(1) as f64 / 1000.0, name: name.into(), context }
    }

    /// Returns the event's timestamp in seconds since 1970.
    pub const fn timestamp(&self) -> f64 {
        self.timestamp
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn context(&self) -> Option<&Map<String, Value>> {
        self.context.as_ref()
    }

    /// Returns the value of a key in the event's context; `None`: the event has no context, or the context has no such
    /// key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.context.as_ref()?.get(key)
    }

    /// Returns the event as one line, newline included.
    pub fn encode_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("text keys and a finite number are always JSON");
        line.push('\n');
        line
    }

    /// Parses one line, with or without its newline.
    ///
    /// # Errors
    ///
    /// [`ParseError`] at the position of invalid JSON or of a newline within the text; or at the start of the line, if
    /// the line is JSON but no event.
    pub fn parse_line(line: &str) -> Result<Self, ParseError> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        if let Some(at) = line.find('\n') {
            return Err(ParseError::new(WHAT, line, at, "one event on one line"));
        }
        let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
            let at = match error.classify() {
                Category::Eof => line.len(),
                Category::Syntax => error.column().saturating_sub(1).min(line.len()),
                // JSON, but no object.
                Category::Data | Category::Io => 0,
            };
            ParseError::new(WHAT, line, at, format!("a JSON object ({})", without_position(&error)))
        })?;
        Self::try_from(object).map_err(|expected| ParseError::new(WHAT, line, 0, expected))
    }
}

/// Parses a whole log; the empty text is the empty log.
///
/// # Errors
///
/// [`ParseError`] of the first line that is no event, or of a last line without a newline. The position is within that
/// line, and the error names the line's number (from 1).
pub fn parse_log(text: &str) -> Result<Vec<Event>, ParseError> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let in_line = |mut error: ParseError| {
            error.expected.push_str(&format!(", in line {number}"));
            error
        };
        if !line.ends_with('\n') {
            return Err(in_line(ParseError::new(WHAT, line, line.len(), "a newline after each event")));
        }
        events.push(Event::parse_line(line).map_err(in_line)?);
    }
    Ok(events)
}

impl TryFrom<Map<String, Value>> for Event {
    /// A text that says which form the parser expected: `a "name" that is a text`.
    type Error = &'static str;

    fn try_from(mut object: Map<String, Value>) -> Result<Self, &'static str> {
        let timestamp = object.get("timestamp").and_then(Value::as_f64).ok_or("a \"timestamp\" that is a number")?;
        let Some(Value::String(name)) = object.remove("name") else {
            return Err("a \"name\" that is a text");
        };
        let context = match object.remove("context") {
            None => None,
            Some(Value::Object(context)) => Some(context),
            Some(_) => return Err("a \"context\" that is an object, or none"),
        };
        Self::new(timestamp, name, context).ok_or("a \"timestamp\" above zero")
    }
}

/// Removes serde_json's own position from its message, because the [`ParseError`] already contains the position.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn logs_that_are_read() {
        #[rustfmt::skip]
        let table: &[(&str, &[(f64, &str, Value)])] = &[
            ("", &[]),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}\n", &[(42.0, "foo", Value::Null)]),
            ("{\"timestamp\":42,\"name\":\"foo\"}\n", &[(42.0, "foo", Value::Null)]),
            ("{\"timestamp\":42.0,\"name\":\"foo\",\"context\":{\"bar\":16}}\n", &[(42.0, "foo", json!({"bar": 16}))]),
            ("{\"timestamp\":42.0,\"name\":\"foo\",\"context\":{}}\n", &[(42.0, "foo", json!({}))]),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}\n{\"timestamp\":43.0,\"name\":\"bar\",\"context\":{\"bar\":16}}\n",
                &[(42.0, "foo", Value::Null), (43.0, "bar", json!({"bar": 16}))]),
            // Out of order in time, as RFC 18's own example; an unknown key is skipped.
            ("{\"timestamp\":1552593348.092830,\"name\":\"release\",\"context\":{\"ranks\":\"all\",\"final\":true}}\n\
              {\"timestamp\":1552593348.090927,\"name\":\"finish\",\"context\":{\"status\":0},\"more\":[]}\n",
                &[(1_552_593_348.092_83, "release", json!({"ranks": "all", "final": true})),
                  (1_552_593_348.090_927, "finish", json!({"status": 0}))]),
        ];
        for (text, expect) in table {
            let events = parse_log(text).unwrap();
            let seen: Vec<_> = events
                .iter()
                .map(|e| (e.timestamp(), e.name(), e.context().cloned().map_or(Value::Null, Value::Object)))
                .collect();
            assert_eq!(&seen, expect, "{text:?}");
        }
    }

    #[test]
    fn logs_that_are_refused_with_line_and_position() {
        const GOOD: &str = "{\"timestamp\":42.0,\"name\":\"foo\"}\n";
        #[rustfmt::skip]
        let table = [
            ("{\"timestamp\":42.0,\"name\":\"foo\"}", 1, 31),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}\n\n", 2, 0),
            ("\n{\"timestamp\":42.0,\"name\":\"foo\"}\n", 1, 0),
            ("{\"timestamp\":\"42.0\",\"name\":\"foo\"}\n", 1, 0),
            ("{\"timestamp\":42.0,\"name\":7}\n", 1, 0),
            ("{\"timestamp\":42.0}\n", 1, 0),
            ("{\"name\":\"foo\"}\n", 1, 0),
            ("{\"timestamp\":42.0,\"name\":\"foo\",\"context\":\"bar\"}\n", 1, 0),
            ("{\"timestamp\":42.0,\"name\":\"foo\",\"context\":null}\n", 1, 0),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}{\"timestamp\":42.0,\"name\":\"foo\"}\n", 1, 31),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}\n\n{", 2, 0),
            ("{\"timestamp\":42.0,\"name\":\"foo\"}\n{", 2, 1),
            ("{\"timestamp\":42.0,\"name\"\n", 1, 24),
            ("{\"timestamp\":42.0,context:{}}\n", 1, 18),
            ("{\"timestamp\":0,\"name\":\"foo\"}\n", 1, 0),
            ("{\"timestamp\":-1,\"name\":\"foo\"}\n", 1, 0),
            ("[42.0,\"foo\"]\n", 1, 0),
            ("null\n", 1, 0),
        ];
        for (text, line, at) in table {
            let error = parse_log(text).unwrap_err();
            assert_eq!(error.at, at, "{text:?}: {error}");
            assert!(error.expected.ends_with(&format!(", in line {line}")), "{text:?}: {error}");
            let error = parse_log(&format!("{GOOD}{text}")).unwrap_err();
            assert!(error.expected.ends_with(&format!(", in line {}", line + 1)), "{text:?}: {error}");
        }
        let deep = format!("{{\"a\":{}\n", "[".repeat(100_000));
        assert!(parse_log(&deep).is_err());
        assert!(Event::parse_line("{\"timestamp\":42.0,\n\"name\":\"foo\"}").is_err());
    }

    #[test]
    fn an_event_is_one_line_whatever_its_text() {
        let Value::Object(context) = json!({"note": "two\nlines\r\n", "status": 0}) else { unreachable!() };
        let event = Event::new(1_552_593_348.073_045, "sub\nmit", Some(context)).unwrap();
        let line = event.encode_line();
        assert_eq!(
            line,
            "{\"timestamp\":1552593348.073045,\"name\":\"sub\\nmit\",\
             \"context\":{\"note\":\"two\\nlines\\r\\n\",\"status\":0}}\n"
        );
        assert_eq!(Event::parse_line(&line), Ok(event));
        assert_eq!(Event::at_millis(1500, "start", None).encode_line(), "{\"timestamp\":1.5,\"name\":\"start\"}\n");
        assert_eq!(Event::at_millis(0, "start", None).timestamp(), 0.001);
        for bad in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Event::new(bad, "start", None), None);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(stamp in 1e-9..1e12_f64, wall_ms: u64, name: String, key: String, number: f64,
                                         text: String) {
            let mut context = Map::new();
            context.insert(key, json!([number, text]));
            let events = [Event::new(stamp, name.clone(), Some(context)).unwrap(),
                          Event::at_millis(wall_ms, name, None)];
            let log: String = events.iter().map(Event::encode_line).collect();
            prop_assert_eq!(log.matches('\n').count(), 2);
            prop_assert_eq!(parse_log(&log).unwrap(), events);
        }

        #[test]
        fn any_text_is_read_or_refused(text in r#"(\{"timestamp":[0-9.e-]{1,5},"name":".{0,3}"\}?[\n ]?){0,3}.{0,9}"#,
                                       other: String) {
            for text in [text, other] {
                if let Ok(events) = parse_log(&text) {
                    let again: String = events.iter().map(Event::encode_line).collect();
                    prop_assert_eq!(parse_log(&again).unwrap(), events);
                }
            }
        }
    }
}
