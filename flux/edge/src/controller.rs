//! Client of perilog's controller over its Varlink socket. The edge keeps one connection for the feed, the
//! stream of changes to attempts and drains. For all calls of an action, the edge makes another connection.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

const INTERFACE: &str = "io.perilog.Controller";
/// Maximum size of a reply in bytes. A page of the feed has a few hundred attempts.
const MAX_REPLY: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error("the controller is away: {0}")]
    Away(#[from] io::Error),
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
            Self::Away(_) | Self::Forbidden(_) | Self::Malformed(_) => false,
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
    /// The controller does not listen at `socket`.
    pub async fn connect(socket: &Path) -> Result<Self, CallError> {
        let stream = UnixStream::connect(socket).await.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => CallError::Forbidden(format!("{}: {error}", socket.display())),
            _ => error.into(),
        })?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Makes one call and returns its reply.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, CallError> {
        self.send(method, parameters, false).await?;
        self.reply().await.map(|(value, _)| value)
    }

    /// Starts a call with several replies; [`Controller::reply`] returns the replies.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn call_more(&mut self, method: &str, parameters: &Value) -> Result<(), CallError> {
        self.send(method, parameters, true).await
    }

    /// Sends several calls at once, without waiting for replies. Each call of [`Controller::reply`] then returns the
    /// next reply, in the order of the calls.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_all(&mut self, calls: &[(&str, Value)]) -> Result<(), CallError> {
        let bytes: Vec<u8> = calls.iter().flat_map(|(method, parameters)| message(method, parameters, false)).collect();
        Ok(self.stream.get_mut().write_all(&bytes).await?)
    }

    async fn send(&mut self, method: &str, parameters: &Value, more: bool) -> Result<(), CallError> {
        Ok(self.stream.get_mut().write_all(&message(method, parameters, more)).await?)
    }

    /// Returns the next reply, and `true` if more replies follow.
    ///
    /// # Errors
    /// [`CallError`]
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
