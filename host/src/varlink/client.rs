//! A blocking client for command line tools: no runtime, no threads.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum size of a reply in bytes. The client trusts the daemon, but another program may serve the socket.
const MAX_REPLY: u64 = 64 * 1024 * 1024;

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No daemon listens, or the daemon refuses this user.
    #[error("{}: {source}", path.display())]
    NotThere { path: PathBuf, source: io::Error },
    /// The daemon closed the connection. The daemon may have carried out the request or not.
    #[error("the daemon closed the connection")]
    Closed,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the connection to the daemon failed: {0}")]
    Io(#[source] io::Error),
    #[error("the daemon's reply cannot be understood: {0}")]
    Malformed(String),
    /// The service replied with an error. `name` is qualified, for example `io.perilog.Agent.Refused`.
    #[error("{name}: {parameters}")]
    Remote { name: String, parameters: Value },
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    limit: Option<Duration>,
    /// Whether replies of an earlier call may still arrive: the caller dropped a stream of replies, or a call failed
    /// other than by an error of the service. The client then refuses further calls, because it could not match a reply
    /// to its call.
    spent: bool,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    parameters: Option<Value>,
    error: Option<String>,
    continues: Option<bool>,
}

impl Client {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> Result<Self, CallError> {
        let stream =
            UnixStream::connect(path).map_err(|source| CallError::NotThere { path: path.to_owned(), source })?;
        Ok(Self { stream: BufReader::new(stream), limit: None, spent: false })
    }

    /// Limits the time for reading one reply and for writing one request. `None`, the initial value, means no limit.
    /// Must not be zero.
    pub fn set_timeout(&mut self, limit: Option<Duration>) -> Result<(), CallError> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)).map_err(CallError::Io)?;
        self.limit = limit;
        Ok(())
    }

    /// Calls a method and returns its reply; `parameters` is an object or null.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value, CallError> {
        self.send(json!({ "method": method, "parameters": parameters }))?;
        match self.receive()? {
            (value, false) => Ok(value),
            (_, true) => {
                self.spent = true;
                Err(CallError::Malformed("more than one reply, but one was requested".into()))
            }
        }
    }

    /// Makes a call with several replies; the iterator ends after the last reply or an error.
    pub fn call_more(&mut self, method: &str, parameters: Value) -> Result<Replies<'_>, CallError> {
        self.send(json!({ "method": method, "parameters": parameters, "more": true }))?;
        // Cleared after the last reply: a caller that leaves early leaves replies on the wire.
        self.spent = true;
        Ok(Replies { client: Some(self) })
    }

    fn send(&mut self, message: Value) -> Result<(), CallError> {
        if std::mem::replace(&mut self.spent, true) {
            return Err(CallError::Closed);
        }
        let mut bytes = serde_json::to_vec(&message).map_err(|error| CallError::Malformed(error.to_string()))?;
        bytes.push(0);
        if let Err(error) = self.stream.get_ref().write_all(&bytes) {
            let error = self.io(error);
            // A daemon without a free seat sends an error and closes before it reads the request.
            let answer = matches!(error, CallError::Closed).then(|| self.receive());
            return Err(match answer {
                Some(Err(answer @ CallError::Remote { .. })) => answer,
                _ => error,
            });
        }
        self.spent = false;
        Ok(())
    }

    /// Receives a reply; returns its value, and `true` if more replies follow.
    fn receive(&mut self) -> Result<(Value, bool), CallError> {
        let mut bytes = Vec::new();
        let read = (&mut self.stream).take(MAX_REPLY).read_until(0, &mut bytes);
        if let Err(error) = read {
            self.spent = true;
            return Err(self.io(error));
        }
        if bytes.pop() != Some(0) {
            self.spent = true;
            return Err(match bytes.len() as u64 + 1 {
                MAX_REPLY => CallError::Malformed(format!("larger than {MAX_REPLY} bytes")),
                _ => CallError::Closed,
            });
        }
        let reply: Reply = serde_json::from_slice(&bytes).map_err(|error| {
            self.spent = true;
            CallError::Malformed(error.to_string())
        })?;
        let parameters = reply.parameters.unwrap_or_else(|| json!({}));
        match reply.error {
            Some(name) => Err(CallError::Remote { name, parameters }),
            None => Ok((parameters, reply.continues.unwrap_or(false))),
        }
    }

    fn io(&self, error: io::Error) -> CallError {
        use io::ErrorKind as Kind;
        match (error.kind(), self.limit) {
            (Kind::WouldBlock | Kind::TimedOut, Some(limit)) => CallError::TimedOut(limit),
            (Kind::BrokenPipe | Kind::ConnectionReset | Kind::UnexpectedEof, _) => CallError::Closed,
            _ => CallError::Io(error),
        }
    }
}

/// Replies of a streaming call. If dropped early, every further call on the connection fails with
/// [`CallError::Closed`].
#[derive(Debug)]
pub struct Replies<'a> {
    /// The client that reads the replies; `None` after the last reply or an error.
    client: Option<&'a mut Client>,
}

impl Iterator for Replies<'_> {
    type Item = Result<Value, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        let client = self.client.take()?;
        client.spent = false;
        let reply = client.receive();
        match reply {
            Ok((value, true)) => {
                client.spent = true;
                self.client = Some(client);
                Some(Ok(value))
            }
            Ok((value, false)) => Some(Ok(value)),
            Err(error) => Some(Err(error)),
        }
    }
}
