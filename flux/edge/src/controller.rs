//! Client of perilog's controller over its Varlink socket. The edge keeps one connection for the feed, the
//! stream of changes to attempts and drains. For all calls of an action, the edge makes another connection.

use std::io;
use std::path::Path;
use std::time::Duration;

use perilog_core::HostList;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

const INTERFACE: &str = "io.perilog.Controller";
/// Maximum size of a reply in bytes. A page of the feed has a few hundred attempts.
const MAX_REPLY: u64 = 64 * 1024 * 1024;

/// The controller's program, which prints the controller's configuration.
const PROGRAM: &str = "/usr/sbin/perilog-controller";
/// Time limit for that program: it waits 10 s for a directory that does not answer.
const PRINT_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error("the controller is away: {0}")]
    Away(#[from] io::Error),
    /// The controller has several hosts (`[failover]`), and does not run on this one. `elsewhere`: where it may run.
    #[error("the controller is away: {source}; {elsewhere}")]
    Elsewhere { source: io::Error, elsewhere: String },
    /// The controller refuses the edge, or the system does not let the edge open the controller's socket; with the text
    /// of the refusal.
    #[error(
        "the controller does not let perilog-flux in ({0}): write `[edge]`, `group = \"flux\"` and `drains = true` \
         into /etc/perilog/controller.d/edge.toml \
         (group: that of perilog-flux.service), then: systemctl restart perilog-controller"
    )]
    Forbidden(String),
    #[error("{code}: {text}")]
    Refused { code: String, text: String },
    #[error("the controller's reply cannot be read: {0}")]
    Malformed(String),
}

impl CallError {
    /// Returns `true` if the controller will refuse the same call for ever.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused { code, .. } => {
                matches!(code.as_str(), "attempt-closed" | "conflict" | "invalid" | "parameter")
            }
            Self::Away(_) | Self::Elsewhere { .. } | Self::Forbidden(_) | Self::Malformed(_) => false,
        }
    }
}

/// A connection to the controller.
#[derive(Debug)]
pub struct Controller {
    stream: BufReader<UnixStream>,
}

impl Controller {
    /// Connects to the controller's socket.
    ///
    /// # Errors
    /// [`CallError::Forbidden`]: the system does not let the edge open `socket`. [`CallError::Elsewhere`] or
    /// [`CallError::Away`]: the controller does not listen there.
    pub async fn connect(socket: &Path) -> Result<Self, CallError> {
        let source = match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(Self { stream: BufReader::new(stream) }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(CallError::Forbidden(format!("{}: {error}", socket.display())));
            }
            Err(error) => error,
        };
        Err(match elsewhere(Path::new(PROGRAM)).await {
            Some(elsewhere) => CallError::Elsewhere { source, elsewhere },
            None => source.into(),
        })
    }

    /// Makes one call and returns its reply.
    ///
    /// # Errors
    /// [`CallError::Away`]: the connection ended, or the reply is too long. [`CallError::Malformed`]: it is no JSON.
    /// [`CallError::Refused`], [`CallError::Forbidden`]: the controller refuses the call.
    pub async fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, CallError> {
        self.send(method, parameters, false).await?;
        self.reply().await.map(|(value, _)| value)
    }

    /// Starts a call with several replies; [`Controller::reply`] returns the replies.
    ///
    /// # Errors
    /// [`CallError::Away`]: the connection ended.
    pub async fn call_more(&mut self, method: &str, parameters: &Value) -> Result<(), CallError> {
        self.send(method, parameters, true).await
    }

    /// Sends several calls at once, without waiting for replies. Each call of [`Controller::reply`] then returns the
    /// next reply, in the order of the calls.
    ///
    /// # Errors
    /// [`CallError::Away`]: the connection ended.
    pub async fn send_all(&mut self, calls: &[(&str, Value)]) -> Result<(), CallError> {
        let bytes: Vec<u8> = calls.iter().flat_map(|(method, parameters)| message(method, parameters, false)).collect();
        Ok(self.stream.get_mut().write_all(&bytes).await?)
    }

    async fn send(&mut self, method: &str, parameters: &Value, more: bool) -> Result<(), CallError> {
        Ok(self.stream.get_mut().write_all(&message(method, parameters, more)).await?)
    }

    /// Returns the next reply to [`Self::call_more`] or [`Self::send_all`], and `true` if more replies to the same call
    /// follow.
    ///
    /// # Errors
    /// [`CallError::Away`]: the connection ended, or the reply is too long. [`CallError::Malformed`]: it is no JSON.
    /// [`CallError::Refused`], [`CallError::Forbidden`]: the controller refuses the call.
    pub async fn reply(&mut self) -> Result<(Value, bool), CallError> {
        let mut bytes = Vec::new();
        (&mut self.stream).take(MAX_REPLY).read_until(0, &mut bytes).await?;
        if bytes.pop() != Some(0) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut reply: Value =
            serde_json::from_slice(&bytes).map_err(|error| CallError::Malformed(error.to_string()))?;
        let parameters = reply["parameters"].take();
        let text = |key: &str| parameters[key].as_str().unwrap_or_default().to_owned();
        match reply["error"].as_str().map(|name| name.rsplit('.').next().unwrap_or(name)) {
            None => Ok((parameters, reply["continues"] == true)),
            Some("Refused") => Err(CallError::Refused { code: text("code"), text: text("text") }),
            Some("InvalidParameter") => {
                Err(CallError::Refused { code: "parameter".to_owned(), text: text("parameter") })
            }
            Some("PermissionDenied") => Err(CallError::Forbidden(text("text"))),
            // Other errors may pass: a full controller gets room, for example.
            Some(other) => Err(CallError::Refused { code: other.to_owned(), text: text("text") }),
        }
    }
}

fn message(method: &str, parameters: &Value, more: bool) -> Vec<u8> {
    let call = json!({ "method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": more });
    let mut bytes = call.to_string().into_bytes();
    bytes.push(0);
    bytes
}

/// Returns the text of where else the controller may run, by the configuration that its `program` prints; `None`: the
/// controller has one host, or the program is not installed here or prints no such configuration.
async fn elsewhere(program: &Path) -> Option<String> {
    let printed = perilog_host::program::ask(program, &["--print-config"], b"", PRINT_LIMIT).await.ok()?;
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    by_config(std::str::from_utf8(&printed.output).ok()?, own.trim())
}

fn by_config(config: &str, own: &str) -> Option<String> {
    let config: toml::Table = config.parse().ok()?;
    let hosts: HostList = config.get("failover")?.get("hosts")?.as_str()?.parse().ok()?;
    perilog_core::elsewhere(&hosts, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edge on the passive host of two said that the controller is away, and not where to look.
    #[tokio::test]
    async fn an_edge_without_a_controller_names_the_other_host() {
        let two = "cluster = 'c'
[failover]
hosts = 'ctl[0-1]'
";
        let elsewhere = by_config(two, "ctl1").unwrap();
        let text = CallError::Elsewhere { source: io::ErrorKind::NotFound.into(), elsewhere }.to_string();
        assert!(text.contains("the controller is away") && text.contains("there: perilog -H ctl0 COMMAND"), "{text}");
        assert_eq!(by_config("cluster = 'c'", "ctl1"), None);
        assert_eq!(by_config("= no TOML", "ctl1"), None);
        assert_eq!(super::elsewhere(Path::new("/none")).await, None, "no controller is installed here");
    }
}
