//! Call of a method on the local socket.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{PeerCred, ReplySink};

/// Call of a method, with the sink for its replies.
#[derive(Debug)]
pub struct Call {
    /// Full name, `io.perilog.Agent.Status`.
    pub method: String,
    /// The text of an object, not looked into: `{}` if the client sent none.
    pub(super) parameters: Box<RawValue>,
    /// Does the client accept more than one reply?
    pub more: bool,
    pub peer: PeerCred,
    pub reply: ReplySink,
}

impl Call {
    /// Parses the parameters. On failure the client has been told the wrong parameter (`InvalidParameter`), and the
    /// call is over.
    ///
    /// A `T` with `deny_unknown_fields` refuses unknown parameters, so a misspelt option is not silently ignored. No
    /// tree is built on the way: a request takes no more memory than its type.
    pub async fn parse<T: DeserializeOwned>(self) -> Option<(T, PeerCred, ReplySink)> {
        let Self { parameters, peer, reply, .. } = self;
        let parsed = parse(&parameters);
        // Drops the request first: a client that does not read its answer must not keep it in memory.
        drop(parameters);
        match parsed {
            Ok(parameters) => Some((parameters, peer, reply)),
            Err(text) => {
                // Whether they still listen makes no difference: the call is over.
                let _ = reply.invalid_parameter(&text).await;
                None
            }
        }
    }

    /// All that an answer takes; the request is dropped.
    pub(super) fn into_reply(self) -> ReplySink {
        self.reply
    }
}

fn parse<T: DeserializeOwned>(parameters: &RawValue) -> Result<T, String> {
    let json = &mut serde_json::Deserializer::from_str(parameters.get());
    serde_path_to_error::deserialize(json).map_err(|error| {
        let said = error.inner().to_string();
        // The client made the text of a value, and knows no columns.
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        match error.path().to_string().as_str() {
            "." => said.to_owned(),
            path => format!("{path}: {said}"),
        }
    })
}
