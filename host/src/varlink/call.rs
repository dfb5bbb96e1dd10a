//! A call of a method on the local socket.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{PeerCred, ReplySink};

/// A call of a method, with the sink for its replies.
#[derive(Debug)]
pub struct Call {
    /// Full name, `io.perilog.Agent.Status`.
    pub method: String,
    /// The unparsed text of an object: `{}` if the client sent none.
    pub(super) parameters: Box<RawValue>,
    /// Whether the client accepts more than one reply: Varlink's flag `more`.
    pub more: bool,
    pub peer: PeerCred,
    pub reply: ReplySink,
}

impl Call {
    /// Parses the parameters. If they are wrong, replies with the error `InvalidParameter`, which ends the call, and
    /// returns `None`.
    ///
    /// A `T` with `deny_unknown_fields` refuses unknown parameters, so a misspelt option does not pass silently. The
    /// parser builds no tree: a request takes no more memory than its type.
    pub async fn parse<T: DeserializeOwned>(self) -> Option<(T, PeerCred, ReplySink)> {
        let Self { parameters, peer, reply, .. } = self;
        let parsed = parse(&parameters);
        // Drops the request first: a client that does not read its answer must not keep it in memory.
        drop(parameters);
        match parsed {
            Ok(parameters) => Some((parameters, peer, reply)),
            Err(text) => {
                // A client that has disconnected makes no difference: the call has ended.
                let _ = reply.invalid_parameter(&text).await;
                None
            }
        }
    }

    /// Returns the sink for the replies; drops the request.
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
