//! The error type of every parser in this crate: the input, the place of the error, and the expected form.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// An error in a text. `at` is a byte offset into `input`; [`ParseError::column`] counts characters from 1 for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of the text, as a noun: "idset", "job id".
    pub what: &'static str,
    /// The text itself, cut to [`ParseError::SHOWN`] bytes.
    pub input: String,
    /// Byte offset of the first byte that does not fit; `input.len()` for an unexpected end.
    pub at: usize,
    /// The form that the parser expected at `at`: "a number", "at most 64 characters".
    pub expected: String,
}

impl ParseError {
    /// Maximum number of bytes of the malformed text that the error repeats.
    pub const SHOWN: usize = 256;

    pub fn new(what: &'static str, input: &str, at: usize, expected: impl Into<String>) -> Self {
        let mut end = input.len().min(Self::SHOWN);
        while !input.is_char_boundary(end) {
            end -= 1;
        }
        Self { what, input: input[..end].to_owned(), at, expected: expected.into() }
    }

    /// Returns the position of the first wrong character in the text, in characters and counted from 1.
    pub fn column(&self) -> usize {
        let mut at = self.at.min(self.input.len());
        while !self.input.is_char_boundary(at) {
            at -= 1;
        }
        self.input[..at].chars().count() + 1
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {} {:?} at character {}: expected {}", self.what, self.input, self.column(), self.expected)
    }
}

impl std::error::Error for ParseError {}

/// Reads a value for serde's `deserialize_with`; `null` stands for the default, as the absence of the value does.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
