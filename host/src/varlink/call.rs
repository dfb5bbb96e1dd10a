//! One method call.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{PeerCred, ReplySink};

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
    /// The parameters as a type. On failure the client has been told which one is wrong (`InvalidParameter`), and there is nothing left to do.
    ///
    /// `T` with `deny_unknown_fields` refuses what it does not know; a misspelt option must not be taken for none.
    pub async fn parse<T: DeserializeOwned>(self) -> Option<(T, PeerCred, ReplySink)> {
        match serde_path_to_error::deserialize(self.parameters) {
            Ok(parameters) => Some((parameters, self.peer, self.reply)),
            Err(error) => {
                let path = error.path().to_string();
                let text = match path.as_str() {
                    "." => error.inner().to_string(),
                    _ => format!("{path}: {}", error.inner()),
                };
                // Whether they still listen makes no difference: the call is over.
                let _ = self.reply.invalid_parameter(&text).await;
                None
            }
        }
    }
}
