//! Parses RFC 23 text to [`Span`]: `N[ms|s|m|h|d]`, where N is a number as in C99's strtod. `inf` and `infinity`, in
//! upper or lower case, have no unit. Beyond RFC 23: the units `min` and `w`, and several whole numbers with falling
//! units (`7m14s`).

use super::Span;
use crate::ParseError;

const WHAT: &str = "duration";

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
    let Some(unit) = (if suffix.is_empty() { Some(1000) } else { unit(suffix) }) else {
        return compound(rest).map_or_else(|| err(sign + length, "a length of time such as 90s, 5m, 2h, 7d"), Ok);
    };
    let span = match hex_digits(digits) {
        Some(hex) => u64::from_str_radix(hex, 16).ok().and_then(|n| from_whole(n, unit)),
        None => decimal(digits, unit),
    };
    span.map_or_else(|| err(sign, "less than 2^64 milliseconds, or \"infinity\""), Ok)
}

/// Returns the milliseconds of a unit.
fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 86400 * 1000,
        "w" => 7 * 86400 * 1000,
        _ => return None,
    })
}

/// Parses whole numbers with falling units, such as `7m14s`; `None`: the text has another form, or is too long a time.
fn compound(text: &str) -> Option<Span> {
    let (mut rest, mut sum, mut smallest) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let (number, more) = rest.split_at(digits(rest, |b| b.is_ascii_digit()));
        let (name, more) = more.split_at(digits(more, |b| b.is_ascii_lowercase()));
        let unit = unit(name).filter(|unit| *unit < smallest)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        (rest, smallest) = (more, unit);
    }
    from_whole(sum, 1)
}

fn decimal(digits: &str, unit: u64) -> Option<Span> {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        return from_whole(digits.parse().ok()?, unit);
    }
    // A positive number too small for an f64 reads as zero, but the duration is above zero.
    let positive = digits.bytes().take_while(|b| !b"eE".contains(b)).any(|b| matches!(b, b'1'..=b'9'));
    from_f64(digits.parse().ok()?, unit, positive)
}

/// Returns the span of `value` times `unit` milliseconds; `None`: too long for a finite span.
pub(super) fn from_whole(value: u64, unit: u64) -> Option<Span> {
    value.checked_mul(unit).map(Span::from_millis).filter(|span| !span.is_infinite())
}

/// Returns the span of `value` times `unit` milliseconds, rounded. `positive`: whether the parsed number is above zero;
/// the span is then at least one millisecond. `None`: negative, NaN, or too long for a finite span.
pub(super) fn from_f64(value: f64, unit: u64, positive: bool) -> Option<Span> {
    // 2^64. The next smaller f64 is below `u64::MAX`, which means infinity.
    const END: f64 = 18_446_744_073_709_551_616.0;
    let millis = (value * unit as f64).round();
    let fits = !value.is_sign_negative() && millis < END;
    fits.then(|| Span::from_millis((millis as u64).max(u64::from(positive))))
}

/// Returns the length in bytes of the number at the start of `text`; 0: no number that perilog accepts. The form is
/// that of C's strtod, except that a hexadecimal number has neither fraction nor exponent.
fn number(text: &str) -> usize {
    if let Some(hex) = hex_digits(text) {
        return 2 + digits(hex, |b| b.is_ascii_hexdigit());
    }
    let decimals = |text: &str| digits(text, |b| b.is_ascii_digit());
    let whole = decimals(text);
    let fraction = text[whole..].strip_prefix('.').map(decimals);
    if whole + fraction.unwrap_or(0) == 0 {
        return 0;
    }
    let mantissa = whole + fraction.map_or(0, |n| n + 1);
    // An exponent counts only with digits of its own.
    let Some(exponent) = text[mantissa..].strip_prefix(['e', 'E']) else {
        return mantissa;
    };
    let sign = usize::from(exponent.starts_with(['+', '-']));
    match decimals(&exponent[sign..]) {
        0 => mantissa,
        n => mantissa + 1 + sign + n,
    }
}

/// Returns the digits after `0x`, if at least one hexadecimal digit follows.
fn hex_digits(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    rest.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(rest)
}

fn digits(text: &str, fits: fn(u8) -> bool) -> usize {
    text.bytes().position(|b| !fits(b)).unwrap_or(text.len())
}
