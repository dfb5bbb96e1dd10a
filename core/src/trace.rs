//! Trace of a machine: its inputs and outputs as lines of text, for a bug report. A daemon writes a trace at the log
//! level `trace`; [`crate::controller::trace`] plays the trace of a controller again.
//!
//! A line is one JSON object. Its first member is the line's number, its second names the kind:
//!
//! ```text
//! {"trace":17,"batch":{"mono_ms":48210007,"wall_ms":1767225600000}}
//! {"trace":18,"input":{"Closed":{"session":3,"why":"the agent ended the session"}}}
//! ```
//!
//! [`read`] finds the object in any line of a log: text before it (a time, a level) and after it (fields) is ignored.
//! Numbers have no gap; a gap shows that the log lost lines.
//!
//! Two kinds of text may hold a secret, and are replaced by as many `x`: the values of environment variables (`env`),
//! and the output of scripts that a client has asked for (`Answer`). The length stays, because a machine may decide by
//! it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::defect;
use crate::ids::TaskId;

/// Maximum depth at which [`Line`] looks for a session, a job or a task.
const DEPTH: usize = 4;

/// A line of a trace, and what the line is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub session: Option<u64>,
    pub job: Option<String>,
    pub task: Option<TaskId>,
}

impl Line {
    /// Creates line `number`. `entry`: an enum variant, whose name becomes the kind of the line.
    pub fn new(number: u64, entry: &impl Serialize) -> Self {
        #[derive(Serialize)]
        struct Numbered<'a> {
            trace: u64,
            #[serde(flatten)]
            entry: &'a Value,
        }
        let entry = concealed(entry);
        let text = serde_json::to_string(&Numbered { trace: number, entry: &entry });
        let find = |name| find(&entry, name, DEPTH);
        Self {
            text: text.unwrap_or_else(|error| format!("{{\"trace\":{number},\"unwritten\":\"{error}\"}}")),
            session: find("session").and_then(Value::as_u64),
            job: find("job").and_then(Value::as_str).map(str::to_owned),
            task: find("task").and_then(|task| TaskId::deserialize(task).ok()),
        }
    }
}

/// Returns a value as the trace shows it: in JSON, without secrets. A value that JSON cannot express becomes an object
/// with the member `unwritten`.
pub fn concealed(value: &impl Serialize) -> Value {
    let value = serde_json::to_value(value);
    let mut value = value.unwrap_or_else(|error| serde_json::json!({ "unwritten": error.to_string() }));
    conceal(&mut value);
    value
}

/// Reads a line of a log; returns the number and the entry of the trace's line in it. `None`: the line is none of a
/// trace.
pub fn read(line: &str) -> Option<(u64, Value)> {
    let text = &line[line.find("{\"trace\":")?..];
    let mut entry = serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok()?;
    let number = entry.as_object_mut()?.remove("trace")?.as_u64()?;
    Some((number, entry))
}

fn conceal(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), &mut *value) {
                    ("env", Value::Object(variables)) => variables.values_mut().for_each(replace),
                    ("Answer", Value::Object(answer)) => answer.get_mut("text").into_iter().for_each(replace),
                    _ => conceal(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(conceal),
        _ => {}
    }
}

fn replace(value: &mut Value) {
    if defect!(SecretsTraced) {
        return;
    }
    if let Value::String(text) = value {
        *text = "x".repeat(text.len());
    }
}

fn find<'v>(value: &'v Value, name: &str, depth: usize) -> Option<&'v Value> {
    let members = value.as_object()?;
    members.get(name).or_else(|| {
        let depth = depth.checked_sub(1)?;
        members.values().find_map(|value| find(value, name, depth))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_read_from_any_log() {
        let line = Line::new(7, &json!({"input": {"Closed": {"session": 3, "why": "a \"{\" in a text"}}}));
        assert_eq!(line.text, r#"{"trace":7,"input":{"Closed":{"session":3,"why":"a \"{\" in a text"}}}"#);
        assert_eq!((line.session, line.job, line.task), (Some(3), None, None));
        for (before, after) in
            [("", ""), ("TRACE ", " session=3"), ("Jan 01 10:00:00 ctl perilog-controller[7]: ", " job=\"{}\"")]
        {
            let (number, entry) = read(&format!("{before}{}{after}", line.text)).unwrap();
            assert_eq!((number, &entry["input"]["Closed"]["session"]), (7, &json!(3)), "{before}");
        }
        for other in ["", "INFO ready", "{\"trace\":", "{\"trace\":\"x\"}", &line.text[..20]] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_trace_has_no_secrets() {
        crate::switch_on_defect!(crate::defect::chosen());
        let env = json!({"TOKEN": "geheim", "EMPTY": ""});
        let entry =
            json!({"input": [{"Run": {"job": "f1", "env": env}}, {"Answer": {"question": 1, "text": "geheim"}}]});
        let line = Line::new(1, &entry);
        assert!(!line.text.contains("geheim"), "{}", line.text);
        assert!(line.text.contains(r#""env":{"EMPTY":"","TOKEN":"xxxxxx"}"#), "{}", line.text);
        assert!(line.text.contains(r#""text":"xxxxxx""#), "{}", line.text);
    }
}
