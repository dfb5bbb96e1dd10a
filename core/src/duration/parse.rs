//! RFC 23 text to [`Span`]: `N[ms|s|m|h|d]`, N as C99's strtod reads it, or `inf`, `infinity` in any case and without a unit.

use super::Span;
use crate::ParseError;

const WHAT: &str = "duration";
const RANGE: &str = "a duration of less than 2^64 milliseconds; or \"infinity\"";

pub(super) fn parse(text: &str) -> Result<Span, ParseError> {
    let err = |at, expected: &str| Err(ParseError::new(WHAT, text, at, expected));
    let sign = usize::from(text.starts_with('+'));
    let rest = &text[sign..];
    if rest.eq_ignore_ascii_case("inf") || rest.eq_ignore_ascii_case("infinity") {
        return Ok(Span::INFINITE);
    }
    let length = number(rest);
    if length == 0 {
        return err(sign, "a number that is not negative, or \"infinity\"");
    }
    let (digits, suffix) = rest.split_at(length);
    let unit = match suffix {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        "d" => 86400e3,
        _ => return err(sign + length, "nothing, or one of the units ms, s, m, h, d"),
    };
    let hex = hex_digits(digits);
    let value = match hex {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|n| n as f64),
        None => digits.parse().ok(),
    };
    // A number that is too small for an f64 reads as zero, but is none.
    let significant = if hex.is_some() { digits } else { digits.split(['e', 'E']).next().unwrap_or(digits) };
    let positive = significant.bytes().any(|b| b.is_ascii_hexdigit() && b != b'0');
    match value.and_then(|value| from_f64(value, unit, positive)) {
        Some(span) => Ok(span),
        None => err(sign, RANGE),
    }
}

/// `value` units of `unit` milliseconds, rounded; at least one millisecond if `positive`. `None` if negative, NaN or too long.
pub(super) fn from_f64(value: f64, unit: f64, positive: bool) -> Option<Span> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let millis = (value * unit).round();
    let fits = !value.is_sign_negative() && millis < END;
    fits.then(|| Span::from_millis((millis as u64).max(u64::from(positive))))
}

/// How many bytes at the start of `text` strtod would take; 0 if it starts with no number that we read.
fn number(text: &str) -> usize {
    if let Some(hex) = hex_digits(text) {
        return 2 + digits(hex, |b| b.is_ascii_hexdigit());
    }
    let decimal = |text: &str| digits(text, |b| b.is_ascii_digit());
    let whole = decimal(text);
    let fraction = text[whole..].strip_prefix('.').map(decimal);
    if whole + fraction.unwrap_or(0) == 0 {
        return 0;
    }
    let mantissa = whole + fraction.map_or(0, |n| n + 1);
    // An exponent counts only with digits of its own.
    let Some(exponent) = text[mantissa..].strip_prefix(['e', 'E']) else { return mantissa };
    let sign = usize::from(exponent.starts_with(['+', '-']));
    match decimal(&exponent[sign..]) {
        0 => mantissa,
        n => mantissa + 1 + sign + n,
    }
}

/// What follows `0x`, if that starts with a hexadecimal digit.
fn hex_digits(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    rest.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(rest)
}

fn digits(text: &str, fits: fn(u8) -> bool) -> usize {
    text.bytes().position(|b| !fits(b)).unwrap_or(text.len())
}
