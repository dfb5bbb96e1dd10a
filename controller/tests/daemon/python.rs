//! Clients of the API in Python without a library (`varlink.py`).

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::bed::Bed;

fn command(bed: &Bed, method: &str, parameters: &Value, options: &[&str]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/varlink.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(bed.socket()).arg(method).arg(parameters.to_string()).args(options);
    command
}

/// Calls a method, and returns all replies. `options`: arguments of `varlink.py`, such as `more` or `uid=65534`.
pub(crate) fn replies(bed: &Bed, method: &str, parameters: Value, options: &[&str]) -> Vec<Value> {
    let output = command(bed, method, &parameters, options).output().unwrap();
    assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// Calls a method that gives one reply, and returns the reply's parameters.
pub(crate) fn call(bed: &Bed, method: &str, parameters: Value) -> Value {
    let mut replies = replies(bed, method, parameters, &[]);
    assert_eq!(replies.len(), 1, "{replies:?}");
    let reply = replies.remove(0);
    assert_eq!(reply.get("error"), None, "{method}: {reply}");
    reply["parameters"].clone()
}

/// Calls a method that the API refuses; returns the error's name and parameters.
pub(crate) fn refused(bed: &Bed, method: &str, parameters: Value, options: &[&str]) -> (String, Value) {
    let reply = replies(bed, method, parameters, options).pop().unwrap();
    let error = reply["error"].as_str().unwrap_or_else(|| panic!("{method}: no error: {reply}"));
    (error.to_owned(), reply["parameters"].clone())
}

/// A call with more than one reply, by a Python client.
pub(crate) struct Stream {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stream {
    pub(crate) fn open(bed: &Bed, method: &str, parameters: Value, options: &[&str]) -> Self {
        let mut child = command(bed, method, &parameters, options).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("the stream ended").unwrap()
    }

    /// Waits for the call's next reply, and returns it.
    pub(crate) fn next(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Reads events of a stream until one of this name; returns all of them.
    pub(crate) fn events_until(&mut self, name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Value| event["name"] != name) {
            let reply = self.next();
            events
                .extend(reply["parameters"]["events"].as_array().unwrap_or_else(|| panic!("{reply}")).iter().cloned());
        }
        events
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the parameters of a Run of the prolog on these nodes.
pub(crate) fn run(job: &str, nodes: &str) -> Value {
    json!({ "job": job, "action": "prolog", "nodes": nodes })
}
