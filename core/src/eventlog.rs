//! A log of events as RFC 18 writes it: one JSON object and a newline for each, whole lines only ever appended.
//!
//! ```text
//! {"timestamp":1552593348.09283,"name":"release","context":{"final":true,"ranks":"all"}}
//! ```
//! What the names mean is said elsewhere (RFC 21, and the controller's own). Keys of an event beside these three are skipped, as readers
//! of RFC 21 must.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ParseError;

const WHAT: &str = "event";

/// One event. Its time stamp is a finite number above zero, so that its line can always be read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Event {
    timestamp: f64,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Map<String, Value>>,
}

impl Event {
    /// `timestamp` in seconds since the epoch. `None` if it is not a finite number above zero.
    pub fn new(timestamp: f64, name: impl Into<String>, context: Option<Map<String, Value>>) -> Option<Self> {
        (timestamp.is_finite() && timestamp > 0.0).then(|| Self { timestamp, name: name.into(), context })
    }

    /// An event of a clock that counts milliseconds since the epoch. One that stands at the epoch itself is taken to be a millisecond on,
    /// because RFC 18 has no event at zero.
    pub fn at_millis(wall_ms: u64, name: impl Into<String>, context: Option<Map<String, Value>>) -> Self {
        Self { timestamp: wall_ms.max(1) as f64 / 1000.0, name: name.into(), context }
    }

    /// Seconds since the epoch.
    pub const fn timestamp(&self) -> f64 {
        self.timestamp
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn context(&self) -> Option<&Map<String, Value>> {
        self.context.as_ref()
    }

    /// The value of a key of the context.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.context.as_ref()?.get(key)
    }

    /// The event as one line, newline included.
    pub fn encode_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("text keys and a finite number are always JSON");
        line.push('\n');
        line
    }

    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    /// [`ParseError`] with the position of what is no JSON; at the start of the line for an object that is no event.
    pub fn parse_line(line: &str) -> Result<Self, ParseError> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        if let Some(at) = line.find('\n') {
            return Err(ParseError::new(WHAT, line, at, "one event on one line"));
        }
        let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
            let at = if error.is_eof() { line.len() } else { error.column().saturating_sub(1).min(line.len()) };
            ParseError::new(WHAT, line, at, format!("a JSON object ({})", without_position(&error)))
        })?;
        Self::try_from(object).map_err(|expected| ParseError::new(WHAT, line, 0, expected))
    }
}

/// Reads a whole log; the empty text is the empty log.
///
/// # Errors
/// [`ParseError`] of the first line that is no event, or of a last line without a newline. Its position is in that line, whose number
/// (from 1) it names.
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
    /// What would have been right.
    type Error = &'static str;

    fn try_from(mut object: Map<String, Value>) -> Result<Self, &'static str> {
        let timestamp = object.get("timestamp").and_then(Value::as_f64).ok_or("a \"timestamp\" that is a number")?;
        let Some(Value::String(name)) = object.remove("name") else { return Err("a \"name\" that is a text") };
        let context = match object.remove("context") {
            None => None,
            Some(Value::Object(context)) => Some(context),
            Some(_) => return Err("a \"context\" that is an object, or none"),
        };
        Self::new(timestamp, name, context).ok_or("a \"timestamp\" above zero")
    }
}

/// serde_json ends its messages with its own position, which is ours already.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}
