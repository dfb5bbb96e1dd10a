//! The error type of every parser in this crate: the input, the place of the error, and the expected form.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// An error in a text. `at` is a byte offset into the text; [`ParseError::column`] counts characters from 1 for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of the text, as a noun: "idset", "job id".
    pub what: &'static str,
    /// The text itself, cut to [`ParseError::SHOWN`] bytes.
    pub input: String,
    /// Byte offset in the whole text of the first byte that does not fit; the text's length for an unexpected end.
    pub at: usize,
    /// Position of that byte's character, counted from 1 over the whole text.
    pub(crate) column: usize,
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
        // Counted in the whole text: the error may lie behind the part that `input` keeps.
        let column = input.char_indices().take_while(|(start, c)| start + c.len_utf8() <= at).count() + 1;
        Self { what, input: input[..end].to_owned(), at, column, expected: expected.into() }
    }

    /// Returns the position of the first wrong character in the whole text, in characters and counted from 1. For an
    /// unexpected end, the position behind the last character.
    pub const fn column(&self) -> usize {
        self.column
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the column was counted in the part of the text that the error repeats, so no column exceeded
    /// 257.
    #[test]
    fn the_column_counts_characters_of_the_whole_text() {
        let long = "ä".repeat(ParseError::SHOWN);
        for (text, at, column) in [
            ("abc", 0, 1),
            ("abc", 3, 4),
            ("äbc", 2, 2),
            ("äbc", 1, 1),
            (&*long, 2 * 200, 201),
            (&*long, long.len(), 257),
        ] {
            let error = ParseError::new("text", text, at, "no such thing");
            assert_eq!(error.column(), column, "{at} in {text:?}");
            assert!(error.to_string().contains(&format!("at character {column}:")), "{error}");
        }
    }
}
