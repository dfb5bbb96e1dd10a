//! Client of the local sockets of controller and agent. Each call returns a typed answer, or a [`Fault`] that names the
//! remedy.
//!
//! `perilog_core` defines the types of the replies; `io.perilog.Controller` and `io.perilog.Agent` define the methods.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perilog_host::varlink::{CallError, Client};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;

/// Time limit for a daemon's answer to a call. A commit normally takes milliseconds; a hanging disk may take longer
/// than the limit.
const ANSWER: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Daemon {
    Controller,
    Agent,
}

impl Daemon {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Agent => "agent",
        }
    }

    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Controller => "perilog-controller",
            Self::Agent => "perilog-agent",
        }
    }

    const fn interface(self) -> &'static str {
        match self {
            Self::Controller => "io.perilog.Controller",
            Self::Agent => "io.perilog.Agent",
        }
    }
}

/// A daemon's reply, parsed and raw. `--json` prints the raw reply, with members that this version does not know.
#[derive(Debug, Clone)]
pub(crate) struct Answer<T> {
    pub(crate) raw: Value,
    pub(crate) body: T,
}

/// Address of this node's agent, for verbs that ask it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AgentSocket {
    /// The agent's socket.
    #[arg(
        long = "agent-socket",
        env = "PERILOG_AGENT_SOCKET",
        value_name = "PATH",
        default_value = "/run/perilog/agent.sock",
        hide_env_values = true
    )]
    path: PathBuf,
}

impl AgentSocket {
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { daemon: Daemon::Agent, path: self.path.clone() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) daemon: Daemon,
    pub(crate) path: PathBuf,
}

impl Endpoint {
    /// Opens a connection. A call on it fails if the daemon does not answer within [`ANSWER`].
    pub(crate) fn open(&self) -> Result<Client, Fault> {
        let mut client = Client::connect(&self.path).map_err(|error| self.fault(error))?;
        client.set_timeout(Some(ANSWER)).map_err(|error| self.fault(error))?;
        Ok(client)
    }

    /// Makes one call on a new connection; returns the reply.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        parameters: &impl Serialize,
    ) -> Result<Answer<T>, Fault> {
        self.ask_on(&mut self.open()?, method, parameters)
    }

    pub(crate) fn ask_on<T: DeserializeOwned>(
        &self,
        client: &mut Client,
        method: &str,
        parameters: &impl Serialize,
    ) -> Result<Answer<T>, Fault> {
        let raw = client.call(&self.method(method), self.parameters(parameters)?).map_err(|error| self.fault(error))?;
        self.read(raw)
    }

    /// Asks for a list, which comes in pages, and joins the pages. `lists`: JSON pointers to the arrays to join. All
    /// other members are those of the first page, except `truncated`: it is that of the last page.
    pub(crate) fn ask_all<T: DeserializeOwned>(
        &self,
        method: &str,
        parameters: &impl Serialize,
        lists: &[&str],
    ) -> Result<Answer<T>, Fault> {
        self.ask_all_on(&mut self.open()?, method, parameters, lists)
    }

    pub(crate) fn ask_all_on<T: DeserializeOwned>(
        &self,
        client: &mut Client,
        method: &str,
        parameters: &impl Serialize,
        lists: &[&str],
    ) -> Result<Answer<T>, Fault> {
        let (mut whole, mut is_cut) = (Value::Null, false);
        self.follow(client, method, parameters, |page: Answer<IgnoredAny>| {
            let mut page = page.raw;
            is_cut = page.get("truncated").and_then(Value::as_bool).unwrap_or(false);
            match whole {
                Value::Null => whole = page,
                _ => lists.iter().for_each(|list| join(&mut whole, &mut page, list)),
            }
            Ok::<(), Fault>(())
        })?;
        // In the last page, `truncated` means that there are rows that no page has.
        whole.as_object_mut().into_iter().for_each(|whole| match is_cut {
            true => drop(whole.insert("truncated".to_owned(), true.into())),
            false => drop(whole.remove("truncated")),
        });
        self.read(whole)
    }

    /// Returns the version of the daemon that listens on this socket.
    pub(crate) fn version(&self) -> Result<String, Fault> {
        #[derive(Deserialize)]
        struct Info {
            version: String,
        }
        let raw = self.open()?.call("org.varlink.service.GetInfo", Value::Null).map_err(|error| self.fault(error))?;
        self.read(raw).map(|answer: Answer<Info>| answer.body.version)
    }

    /// Makes a call with many answers and passes each answer to `take` until the daemon ends the stream.
    pub(crate) fn follow<T: DeserializeOwned, E: From<Fault>>(
        &self,
        client: &mut Client,
        method: &str,
        parameters: &impl Serialize,
        mut take: impl FnMut(Answer<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let replies =
            client.call_more(&self.method(method), self.parameters(parameters)?).map_err(|error| self.fault(error))?;
        for reply in replies {
            take(self.read(reply.map_err(|error| self.fault(error))?)?)?;
        }
        Ok(())
    }

    /// Removes the limit [`ANSWER`] from this connection, for a stream whose next message may come a day later.
    pub(crate) fn wait_for_ever(&self, client: &mut Client) -> Result<(), Fault> {
        client.set_timeout(None).map_err(|error| self.fault(error))
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, raw: Value) -> Result<Answer<T>, Fault> {
        match T::deserialize(&raw) {
            Ok(body) => Ok(Answer { raw, body }),
            Err(error) => Err(Fault::Malformed { daemon: self.daemon, why: error.to_string() }),
        }
    }

    fn method(&self, method: &str) -> String {
        format!("{}.{method}", self.daemon.interface())
    }

    fn parameters(&self, parameters: &impl Serialize) -> Result<Value, Fault> {
        serde_json::to_value(parameters).map_err(|error| Fault::Usage(error.to_string()))
    }

    fn fault(&self, error: CallError) -> Fault {
        let daemon = self.daemon;
        match error {
            CallError::NotThere { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                Fault::NotLetIn { daemon, path, source }
            }
            CallError::NotThere { path, source } if daemon == Daemon::Controller && is_node(&path) => {
                Fault::OnNode { path, source }
            }
            CallError::NotThere { path, source } => match self.elsewhere() {
                Some(elsewhere) => Fault::Passive { path, source, elsewhere },
                None => Fault::NoDaemon { daemon, path, source },
            },
            CallError::Closed => Fault::WentAway { daemon, why: "connection closed".to_owned() },
            CallError::Io(source) => Fault::WentAway { daemon, why: source.to_string() },
            CallError::TimedOut(limit) => Fault::NoAnswer { daemon, limit },
            CallError::Malformed(why) => Fault::Malformed { daemon, why },
            CallError::Remote { name, parameters } => self.remote(&name, &parameters),
            other => Fault::Remote { daemon, what: other.to_string() },
        }
    }

    /// Returns a text that names the hosts where the controller may run instead; `None`: it has one host, or the daemon
    /// is an agent.
    fn elsewhere(&self) -> Option<String> {
        (self.daemon == Daemon::Controller).then(crate::verb::failover::elsewhere)?
    }

    fn remote(&self, name: &str, parameters: &Value) -> Fault {
        let daemon = self.daemon;
        let text = |key: &str| parameters.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match name.rsplit_once('.').unwrap_or(("", name)) {
            ("io.perilog.Controller", "Refused") => Fault::Refused { code: text("code"), text: text("text") },
            ("io.perilog.Agent", "Refused") => Fault::RefusedByNode { text: text("text") },
            (_, "PermissionDenied") => {
                let why =
                    format!("only root and the group that the {}'s configuration names may do that", daemon.as_str());
                Fault::NotPermitted { text: Some(text("text")).filter(|t| !t.is_empty()).unwrap_or(why) }
            }
            (_, "Busy") => Fault::Busy { daemon, text: text("text") },
            ("org.varlink.service", "InvalidParameter") => {
                Fault::Unsupported { daemon, what: format!("the parameter {:?}", text("parameter")) }
            }
            ("org.varlink.service", "MethodNotFound" | "MethodNotImplemented") => {
                Fault::Unsupported { daemon, what: format!("the method {}", text("method")) }
            }
            ("org.varlink.service", "InterfaceNotFound") => {
                Fault::Unsupported { daemon, what: format!("the interface {}", text("interface")) }
            }
            _ => Fault::Remote { daemon, what: format!("{name} {parameters}") },
        }
    }
}

/// Moves the entries of the array at `list` in `page` behind those in `whole`.
fn join(whole: &mut Value, page: &mut Value, list: &str) {
    if let (Some(Value::Array(whole)), Some(Value::Array(more))) = (whole.pointer_mut(list), page.pointer_mut(list)) {
        whole.append(more);
    }
}

/// Returns `true` if this host has an agent and no controller, as far as files show: the agent's socket is beside
/// `controller_socket`, and the controller has no configuration.
fn is_node(controller_socket: &Path) -> bool {
    controller_socket.with_file_name("agent.sock").exists() && !Path::new(CONTROLLER_CONFIG).exists()
}

/// The controller's configuration file. A host without this file counts as a host without a controller.
const CONTROLLER_CONFIG: &str = "/etc/perilog/controller.toml";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_distinguished_from_the_controllers_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("controller.sock");
        assert!(!is_node(&path));
        std::fs::write(dir.path().join("agent.sock"), "").unwrap();
        assert_eq!(is_node(&path), !Path::new(CONTROLLER_CONFIG).exists());
    }

    #[test]
    fn errors_of_a_daemon_end_in_the_right_exit_code() {
        let endpoint = Endpoint { daemon: Daemon::Controller, path: "/c.sock".into() };
        #[rustfmt::skip]
        let table = [
            ("io.perilog.Controller.Refused", json!({"code": "no-such-job", "text": "no job f1"}), 9, "no job f1"),
            ("io.perilog.Controller.PermissionDenied", json!({"text": "reading is for group ops"}), 8,
             "not permitted: reading is for group ops"),
            ("org.varlink.service.PermissionDenied", json!({}), 8,
             "not permitted: only root and the group that the controller's configuration names may do that"),
            ("io.perilog.Agent.Refused", json!({"text": "no directory /x"}), 5, "this node refuses: no directory /x"),
            ("org.varlink.service.MethodNotFound", json!({"method": "Why"}), 8,
             "the controller does not know the method Why, because its version is not that of this perilog; upgrade \
              the older of the two"),
            ("odd", json!({}), 8, "the controller answered with an error: odd {}"),
        ];
        for (name, parameters, code, text) in table {
            let fault = endpoint.remote(name, &parameters);
            assert_eq!((fault.exit().code(), fault.to_string().as_str()), (code, text));
        }
    }
}
