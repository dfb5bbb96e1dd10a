//! The local socket: Varlink on the wire, a small server and a small blocking client.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One interface and its definition in the Varlink language.
#[derive(Debug, Clone, Copy)]
pub struct InterfaceDescription {
    pub name: &'static str,
    pub text: &'static str,
}

/// What `org.varlink.service.GetInfo` says.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub vendor: &'static str,
    pub product: &'static str,
    pub version: &'static str,
    pub url: &'static str,
}

/// What a daemon offers on its local socket.
pub trait Service: Send + Sync + 'static {
    fn about(&self) -> About;

    /// All interfaces but `org.varlink.service`. Only methods that these texts define are called.
    fn describe(&self) -> &'static [InterfaceDescription];

    /// One call. Runs in the task of its connection: a slow one blocks nobody else. It is dropped when the daemon ends, not when the client goes
    /// away: see [`ReplySink::closed`].
    fn call(&self, call: Call) -> impl Future<Output = ()> + Send;
}

/// One method call.
#[derive(Debug)]
pub struct Call {
    /// Full name, `io.perilog.Agent.Status`.
    pub method: String,
    /// An object; empty if the client sent none.
    pub parameters: Value,
    /// The client takes more than one reply.
    pub more: bool,
    pub peer: PeerCred,
    pub reply: ReplySink,
}

impl Call {
    /// The parameters as a type. On failure the client has been told which parameter is wrong, and there is nothing left to do.
    pub async fn parse<T: DeserializeOwned>(self) -> Option<(T, PeerCred, ReplySink)> {
        todo!()
    }
}

/// Who is on the other end, as the kernel knew them when they connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCred {
    pub uid: u32,
    pub gid: u32,
    /// 0 if it lives in a PID namespace that we cannot see.
    pub pid: i32,
    /// Primary and supplementary groups.
    pub groups: Vec<u32>,
}

impl PeerCred {
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The client went away, or is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;

/// Where the replies of one call go. Nothing leaves for a `oneway` call.
#[derive(Debug)]
pub struct ReplySink {}

impl ReplySink {
    /// The last reply.
    pub async fn done(self, _value: Value) -> Result<(), Gone> {
        todo!()
    }

    /// One of several replies. A client that did not ask for `more` gets `org.varlink.service.ExpectedMore` and the call is over.
    pub async fn more(&mut self, _value: Value) -> Result<(), Gone> {
        todo!()
    }

    /// An error as the last reply; `name` is qualified, `io.perilog.Controller.NotFound`.
    pub async fn error(self, _name: &str, _parameters: Value) -> Result<(), Gone> {
        todo!()
    }

    pub async fn invalid_parameter(self, _parameter: &str) -> Result<(), Gone> {
        todo!()
    }

    pub async fn permission_denied(self) -> Result<(), Gone> {
        todo!()
    }

    /// Resolves once the client is gone; never if it stays. Cancel safe; a stream selects on it.
    pub async fn closed(&self) {
        todo!()
    }
}

/// Why the local socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {}

/// Binds the local socket: a stale one is replaced, a live one refused; `mode` as for chmod(2), `group` a gid.
pub fn bind(_path: &Path, _mode: u32, _group: Option<u32>) -> Result<std::os::unix::net::UnixListener, SocketError> {
    todo!()
}

/// Serves for ever. Dropping the future ends all connections.
pub async fn serve<S: Service>(_listener: std::os::unix::net::UnixListener, _service: Arc<S>) -> io::Result<()> {
    todo!()
}

/// A blocking client for command line tools.
#[derive(Debug)]
pub struct Client {}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error("{path}: {source}", path = path.display())]
    NotThere { path: PathBuf, source: io::Error },
    #[error("the daemon closed the connection")]
    Closed,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{source}")]
    Io { source: io::Error },
    #[error("malformed reply: {0}")]
    Malformed(String),
    #[error("{name}: {parameters}")]
    Remote { name: String, parameters: Value },
}

impl Client {
    pub fn connect(_path: &Path) -> Result<Self, CallError> {
        todo!()
    }

    /// How long one reply may take; none is for ever.
    pub fn set_timeout(&mut self, _limit: Option<Duration>) -> Result<(), CallError> {
        todo!()
    }

    pub fn call(&mut self, _method: &str, _parameters: Value) -> Result<Value, CallError> {
        todo!()
    }

    /// All replies of a streaming call; the iterator ends after the last one or an error.
    pub fn call_more(&mut self, _method: &str, _parameters: Value) -> Result<Replies<'_>, CallError> {
        todo!()
    }
}

/// The replies of a streaming call. Dropping it early leaves the connection useless for further calls.
#[derive(Debug)]
pub struct Replies<'a> {
    #[allow(dead_code)]
    client: &'a mut Client,
}

impl Iterator for Replies<'_> {
    type Item = Result<Value, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
