//! A call of a method on the local socket.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{PeerCred, ReplySink};

/// A mistake in the parameters of a call. The text names the parameter and the expected form.
#[derive(Debug, thiserror::Error)]
pub enum WrongParameter {
    /// A parameter is missing, unknown, or of another type: the client may be of another version.
    #[error("{0}")]
    Form(String),
    /// A value is malformed, such as a list of hosts.
    #[error("{0}")]
    Value(String),
}

impl WrongParameter {
    /// Parses a part of the parameters. An error names its place in the whole, such as `attempts[2]`.
    ///
    /// # Errors
    /// [`WrongParameter`]
    pub fn parse_at<T: DeserializeOwned>(json: &RawValue, place: impl std::fmt::Display) -> Result<T, Self> {
        parse(json.get(), "").map_err(|wrong| match wrong {
            Self::Form(text) => Self::Form(format!("{place}: {text}")),
            Self::Value(text) => Self::Value(format!("{place}: {text}")),
        })
    }
}

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
        let parsed = self.parameters().map_err(|wrong| wrong.to_string());
        // Drops the request first: a client that does not read its answer must not keep it in memory.
        let (peer, reply) = (self.peer.clone(), self.into_reply());
        match parsed {
            Ok(parameters) => Some((parameters, peer, reply)),
            Err(text) => {
                // A client that has disconnected makes no difference: the call has ended.
                let _ = reply.invalid_parameter(&text).await;
                None
            }
        }
    }

    /// Parses the parameters, as [`Self::parse`] does.
    ///
    /// # Errors
    /// [`WrongParameter`]
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, WrongParameter> {
        parse(self.parameters.get(), "")
    }

    /// Parses the call as one of the requests `T`: an enum with a variant for each method, which has the method's
    /// parameters.
    ///
    /// # Errors
    /// [`WrongParameter`]
    pub fn request<T: DeserializeOwned>(&self) -> Result<T, WrongParameter> {
        request(&self.method, &self.parameters)
    }

    /// Returns the sink for the replies; drops the request.
    pub fn into_reply(self) -> ReplySink {
        self.reply
    }
}

/// Parses a call of `method`, the full name, as a request.
pub(super) fn request<T: DeserializeOwned>(method: &str, parameters: &RawValue) -> Result<T, WrongParameter> {
    let method = method.rsplit('.').next().unwrap_or_default();
    parse(&format!("{{\"{method}\":{}}}", parameters.get()), method)
}

/// Parses a JSON text. The error names the place in the text, below the member `below`.
fn parse<T: DeserializeOwned>(json: &str, below: &str) -> Result<T, WrongParameter> {
    let json = &mut serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(json).map_err(|error| {
        let message = error.inner().to_string();
        // The client made the text of a value, and knows no columns.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let path = error.path().to_string();
        let text = match path.strip_prefix(below).unwrap_or(&path).trim_start_matches('.') {
            "" => message.to_owned(),
            path => format!("{path}: {message}"),
        };
        // Names of parameters come from the client, and the text is one line of a log or a terminal.
        let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        // serde has no other mark of an error that a type made itself, about a value of the right type.
        let of_serde = ["unknown field", "missing field", "duplicate field", "invalid type", "invalid value"];
        match of_serde.iter().any(|words| message.starts_with(words)) {
            true => WrongParameter::Form(text),
            false => WrongParameter::Value(text),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by fuzzing: a parameter that a method does not have was quoted with its line breaks.
    #[test]
    fn an_error_is_one_line() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        let error = parse::<Nothing>(r#"{"a\nb":1}"#, "").unwrap_err().to_string();
        assert_eq!(error, "a\u{fffd}b: unknown field `a\u{fffd}b`, there are no fields");
    }
}
