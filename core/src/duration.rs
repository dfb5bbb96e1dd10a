//! Durations in the form of RFC 23 (Flux Standard Duration): `500ms`, `30`, `1.5m`, `infinity`. The parser also takes
//! `min` for `m`, weeks (`2w`), and the form in which perilog shows durations: whole numbers with falling units, such
//! as `7m14s` or `3d04h`.
//!
//! A span counts whole milliseconds. The parser rounds a finer text, but never rounds a duration above zero to zero,
//! because zero often means "no limit".
//!
//! The parser is stricter than Flux's reader: it refuses an empty text, a bare unit, `-0`, surrounding white space and
//! durations of 2^64 milliseconds or more. The parser accepts whole hexadecimal numbers as C does (`0x10` is 16, and in
//! `0x1d` the `d` is a digit), and refuses hexadecimal numbers with a point or a binary exponent.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ParseError;

/// A duration in whole milliseconds, or an infinite one. Spans are ordered by length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    pub const ZERO: Self = Self(0);
    pub const INFINITE: Self = Self(u64::MAX);

    /// Creates a span of `millis` milliseconds; `u64::MAX` gives [`Span::INFINITE`].
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates a span of `secs` seconds; 2^64 milliseconds or more give [`Span::INFINITE`].
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Parses an RFC 23 text.
    ///
    /// # Errors
    /// [`ParseError`] with the position where the text stops being a duration.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// Returns the span in milliseconds; `None` if infinite.
    pub const fn as_millis(self) -> Option<u64> {
        if self.is_infinite() { None } else { Some(self.0) }
    }

    /// Returns the span as a `Duration`; `None` if infinite.
    pub fn as_duration(self) -> Option<Duration> {
        self.as_millis().map(Duration::from_millis)
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub const fn is_infinite(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns the RFC 23 text that parses as exactly this span, for storage and messages; [`fmt::Display`] rounds, for
    /// people.
    pub fn to_exact(self) -> String {
        match self.as_millis() {
            None => "infinity".to_owned(),
            Some(millis) if millis % 1000 == 0 => format!("{}s", millis / 1000),
            Some(millis) => format!("{millis}ms"),
        }
    }
}

/// Formats a length of time in milliseconds for people: `42s`, `4m12s`, `2h03m`, `3d04h`. At most two units; the second
/// is left out where it is zero: `5m`.
pub fn age(ms: u64) -> String {
    let two = |big: u64, unit: char, small: u64, less: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small:02}{less}"),
    };
    let (s, m, h) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match () {
        () if s < 60 => format!("{s}s"),
        () if m < 60 => two(m, 'm', s % 60, 's'),
        () if h < 24 => two(h, 'h', m % 60, 'm'),
        () => two(h / 24, 'd', h % 24, 'h'),
    }
}

/// Formats a length of time in milliseconds as [`age`] does, but finer below a minute: `420ms`, `4.2s`, `42s`.
pub fn elapsed(ms: u64) -> String {
    match (ms / 1000, ms % 1000 / 100) {
        (0, _) if ms > 0 => format!("{ms}ms"),
        (s @ 0..60, tenths @ 1..) => format!("{s}.{tenths}s"),
        _ => age(ms),
    }
}

impl std::str::FromStr for Span {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

/// Formats for people, as [`elapsed`] does. [`Span::to_exact`] has the exact text, for programs.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_millis().map_or_else(|| "infinity".to_owned(), elapsed))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_exact())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_exact())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrSeconds)
    }
}

struct TextOrSeconds;

impl de::Visitor<'_> for TextOrSeconds {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"90s\", \"1.5h\" or \"infinity\", or a number of seconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
        Span::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, secs: u64) -> Result<Span, E> {
        parse::from_whole(secs, 1000).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(secs), &self))
    }

    fn visit_i64<E: de::Error>(self, secs: i64) -> Result<Span, E> {
        match u64::try_from(secs) {
            Ok(secs) => self.visit_u64(secs),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(secs), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, secs: f64) -> Result<Span, E> {
        if secs == f64::INFINITY {
            return Ok(Span::INFINITE);
        }
        parse::from_f64(secs, 1000, secs > 0.0).ok_or_else(|| E::invalid_value(de::Unexpected::Float(secs), &self))
    }
}
