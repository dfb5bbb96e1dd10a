//! Scripted Varlink daemon for the tests of the verbs: plays its script and records the calls.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(clippy::panic, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// A step of the scripted daemon on one connection.
pub(crate) enum Step {
    /// Reads a call, which must be of this method.
    Call(&'static str),
    /// Sends a reply, with more replies to come.
    More(Value),
    /// Sends the last reply to a call.
    Done(Value),
    Error(&'static str, Value),
    /// Waits for the client to go away.
    Hold,
}

pub(crate) use Step::{Call, Done, Error, Hold, More};

pub(crate) struct Daemon {
    path: PathBuf,
    thread: JoinHandle<Vec<Value>>,
}

impl Daemon {
    /// Ends the daemon and returns the parameters of each call that it got. For use when the client is done: a daemon
    /// that still waits for a connection gets an empty one.
    pub(crate) fn asked(self) -> Vec<Value> {
        drop(UnixStream::connect(&self.path));
        self.thread.join().unwrap()
    }
}

/// Starts a daemon in a thread of its own: it listens on a socket at `path` and plays one script for each connection,
/// one after the other. When the last connection comes, the daemon removes the socket.
pub(crate) fn serve(path: &Path, connections: Vec<Vec<Step>>) -> Daemon {
    let listener = UnixListener::bind(path).unwrap();
    let at = path.to_owned();
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        let mut connections = connections.into_iter().peekable();
        while let Some(steps) = connections.next() {
            let (stream, _) = listener.accept().unwrap();
            if connections.peek().is_none() {
                // Later clients find no socket.
                std::fs::remove_file(&at).unwrap();
            }
            play(&stream, steps, &mut asked);
        }
        asked
    });
    Daemon { path: path.to_owned(), thread }
}

fn play(mut stream: &UnixStream, steps: Vec<Step>, asked: &mut Vec<Value>) {
    let mut reader = BufReader::new(stream);
    let mut send = |value: Value| {
        let mut bytes = value.to_string().into_bytes();
        bytes.push(0);
        // A client that has seen enough may be gone.
        let _ = stream.write_all(&bytes);
    };
    for step in steps {
        match step {
            Step::Call(method) => {
                let mut bytes = Vec::new();
                if reader.read_until(0, &mut bytes).is_err() || bytes.is_empty() {
                    // The client has gone with a reset, because it left an answer unread, or without a request.
                    return;
                }
                assert_eq!(bytes.pop(), Some(0), "a whole call of {method}");
                let call: Value = serde_json::from_slice(&bytes).unwrap();
                assert!(call["method"].as_str().unwrap().ends_with(&format!(".{method}")), "{method}: {call}");
                asked.push(call["parameters"].clone());
            }
            Step::More(parameters) => send(json!({"parameters": parameters, "continues": true})),
            Step::Done(parameters) => send(json!({"parameters": parameters})),
            Step::Error(name, parameters) => send(json!({"error": name, "parameters": parameters})),
            Step::Hold => drop(reader.read(&mut [0])),
        }
    }
}

/// A temporary directory for a test's files and for the daemon's socket.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perilog"));
        command
            .args(args)
            .env("PERILOG_SOCKET", self.socket())
            .env("PERILOG_AGENT_SOCKET", self.socket())
            .env("TZ", "UTC");
        command.env_remove("NO_COLOR").stdin(Stdio::null());
        command
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `perilog` with `args` against a daemon that serves `connections`; returns the program's output and status,
    /// and the parameters of the calls that the daemon got.
    pub(crate) fn ask(&self, args: &[&str], connections: Vec<Vec<Step>>) -> (CliOutput, Vec<Value>) {
        let daemon = serve(&self.socket(), connections);
        let text = CliOutput::of(self.command(args).output().unwrap());
        (text, daemon.asked())
    }
}

#[derive(Debug)]
pub(crate) struct CliOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CliOutput {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Returns an event of the prolog of job f1, attempt 0, as JSON of the controller's API. `context`: further members of
/// the event's context.
pub(crate) fn event(sequence: u64, name: &str, context: Value) -> Value {
    let mut all = json!({"action": "prolog", "attempt": "0"});
    if let (Value::Object(all), Value::Object(context)) = (&mut all, context) {
        all.extend(context);
    }
    json!({"sequence": sequence, "timestamp": 1_795_144_327.0, "name": name, "context": all})
}

pub(crate) fn finish(sequence: u64, ranks: &str, hosts: &str, result: &str, more: Value) -> Value {
    let mut context = json!({"ranks": ranks, "hosts": hosts, "outcome": result.split(' ').next(), "result": result});
    if let (Value::Object(all), Value::Object(more)) = (&mut context, more) {
        all.extend(more);
    }
    event(sequence, "finish", context)
}

pub(crate) fn running(attached: bool, events_after: u64) -> Value {
    json!({"job": "f1", "attempt": "0", "id": "00000000-0000-5000-8000-000000000000", "ranks": "0-3", "hosts": "n[0-3]",
           "attached": attached, "events_after": events_after})
}

/// Returns the reply of `Show` for job f1, attempt 0; `waits`: the reason why the attempt waits.
pub(crate) fn shown(waits: Option<&str>) -> Value {
    json!({"job": {"job": "f1", "userid": null, "attempts": [
        {"attempt": "0", "open": true, "hosts": "n[0-3]", "waits": waits, "actions": []}]}})
}

pub(crate) fn events(events: &[Value]) -> Value {
    json!({ "events": events })
}

/// Reads lines until one contains `part`; returns all of them.
pub(crate) fn read_until(lines: &mut impl Iterator<Item = std::io::Result<String>>, part: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for line in lines {
        let line = line.unwrap();
        seen.push(line.clone());
        if line.contains(part) {
            return seen;
        }
    }
    panic!("the output ended without {part:?}: {seen:#?}");
}
