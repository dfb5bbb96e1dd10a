//! Errors in a message from the peer: one type for all decoders, with the path to the malformed field.

use std::fmt;

use perilog_core::ParseError;

/// A malformed frame. The receiver ends the session, because the sender does not speak this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {message}: {field}{why}", field = self.place())]
pub struct DecodeError {
    /// The name of the malformed message, such as `Finished`; `frame`: the frame is too long, or too short for a
    /// message number.
    pub message: &'static str,
    /// The path to the malformed field, the outermost name first, joined by dots: `ended.steps.script`. Empty: the
    /// message as a whole is malformed.
    pub field: String,
    pub why: String,
}

impl DecodeError {
    fn place(&self) -> String {
        if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) }
    }
}

/// The reason why the body of a frame decodes to no message.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The message contains a kind of value that this version does not know, such as a new outcome.
    Unknown,
    /// A malformed value. `path`: the names of the fields around the value, the innermost first.
    Bad { path: Vec<&'static str>, why: String },
}

impl Fault {
    pub(crate) fn bad(why: impl fmt::Display) -> Self {
        Self::Bad { path: Vec::new(), why: why.to_string() }
    }

    /// Returns the error of a malformed message with this name; `None` for [`Fault::Unknown`], which is no error.
    pub(crate) fn in_message(self, message: &'static str) -> Option<DecodeError> {
        match self {
            Self::Unknown => None,
            Self::Bad { path, why } => {
                let field = path.into_iter().rev().collect::<Vec<_>>().join(".");
                Some(DecodeError { message, field, why })
            }
        }
    }
}

impl From<ParseError> for Fault {
    fn from(error: ParseError) -> Self {
        Self::bad(error)
    }
}

impl From<prost::DecodeError> for Fault {
    fn from(error: prost::DecodeError) -> Self {
        Self::bad(error)
    }
}

/// Adds the name of a field to the path of an error in that field.
pub(crate) trait At<T> {
    fn at(self, field: &'static str) -> Result<T, Fault>;
}

impl<T, E: Into<Fault>> At<T> for Result<T, E> {
    fn at(self, field: &'static str) -> Result<T, Fault> {
        self.map_err(|error| match error.into() {
            Fault::Bad { mut path, why } => {
                path.push(field);
                Fault::Bad { path, why }
            }
            Fault::Unknown => Fault::Unknown,
        })
    }
}

/// Returns the value of a mandatory field.
///
/// # Errors
/// A [`Fault`] if the peer omitted the field.
pub(crate) fn need<T>(field: Option<T>) -> Result<T, Fault> {
    field.ok_or_else(|| Fault::bad("missing"))
}

/// Returns the kind that a `oneof` contains. An empty `oneof` gives [`Fault::Unknown`]: a later version sent a kind
/// that this version does not know.
pub(crate) fn known<T>(kind: Option<T>) -> Result<T, Fault> {
    kind.ok_or(Fault::Unknown)
}
