//! Parses RFC 22 text to [`IdSet`], without ever walking the ids.
//!
//! ```text
//! idset = list | "[" list "]"      list = "" | item *("," item)      item = id | id "-" higher-id
//! ```

use std::str::FromStr;

use super::IdSet;
use crate::ParseError;

const WHAT: &str = "idset";

impl FromStr for IdSet {
    type Err = ParseError;

    /// Parses an idset (RFC 22), with or without its brackets.
    ///
    /// # Errors
    ///
    /// [`ParseError`] at the first byte that RFC 22 does not allow. If an id is too large, has a leading zero, or does
    /// not exceed the id before, the error points to the start of the id.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut reader = Reader { text, at: 0 };
        let close = reader.skip(b'[').then_some(b']');
        let mut set = Self::new();
        if reader.peek() != close {
            let mut least = Some(0);
            loop {
                let lo = reader.id(least)?;
                let hi = if reader.skip(b'-') { reader.id(lo.checked_add(1))? } else { lo };
                set.insert_range(lo, hi);
                least = hi.checked_add(1);
                if !reader.skip(b',') {
                    break;
                }
            }
        }
        match close {
            Some(bracket) if !reader.skip(bracket) => Err(reader.expected(reader.at, "',', '-', ']' or a digit")),
            _ if reader.at == text.len() => Ok(set),
            Some(_) => Err(reader.expected(reader.at, "nothing after ']'")),
            None => Err(reader.expected(reader.at, "',', '-' or a digit")),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Parses the next id, which must be at least `least`. `None`: the id before was `u32::MAX`, so any further id is
    /// an error.
    fn id(&mut self, least: Option<u32>) -> Result<u32, ParseError> {
        let from = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = &self.text[from..self.at];
        if digits.is_empty() {
            return Err(self.expected(from, "a number"));
        }
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(self.expected(from, "a number without leading zeros"));
        }
        let id: u32 = digits.parse().map_err(|_| self.expected(from, format!("a number up to {}", u32::MAX)))?;
        match least {
            Some(least) if id >= least => Ok(id),
            Some(least) => Err(self.expected(from, format!("ids in ascending order, here {least} or more"))),
            None => Err(self.expected(from, format!("nothing after {}", u32::MAX))),
        }
    }

    fn expected(&self, at: usize, expected: impl Into<String>) -> ParseError {
        ParseError::new(WHAT, self.text, at, expected)
    }
}
