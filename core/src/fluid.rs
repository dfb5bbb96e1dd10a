//! A Flux job id: a 64-bit FLUID in the forms of RFC 19. The forms are F58 (`ƒuZZybuNNy`, plain `fuZZybuNNy`), decimal,
//! hexadecimal (`0x17e9fb8df16c2e`) and dotted hexadecimal (`0017.e9fb.8df1.6c2e`).
//!
//! Flux itself hands the same id out in different forms: stock prologs and epilogs get F58 in `FLUX_JOB_ID`,
//! housekeeping gets the decimal number. A [`JobId`] is opaque and has one form. [`Fluid::job`] returns that form, the
//! plain F58, so all forms of an id name the same job.
//!
//! The parser decides about the form as RFC 19 does: a `.` means dotted, a leading `f` or `ƒ` F58, a leading `0x`
//! hexadecimal, anything else decimal. The parser refuses a number of 2^64 or more; Flux's decoder wraps such a number
//! to a small one. The parser also refuses the forms for people, in words and in emoji: no program hands these forms
//! out.

use std::fmt;
use std::str::FromStr;

use crate::ids::JobId;
use crate::parse::ParseError;

const WHAT: &str = "Flux job id";
/// The 58 digits of the base, from 0 to 57: digits and letters without those that look alike (RFC 19).
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// The prefix `ƒ` (U+0192) of an F58 id. Flux prints `ƒ` if the terminal's locale has the character, and `f` otherwise.
const SIGN: char = '\u{192}';

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fluid(pub u64);

impl Fluid {
    /// Returns the job id under which perilog knows the job: plain F58.
    pub fn job(self) -> JobId {
        JobId::new(&self.to_string()).expect("an `f` and at most eleven letters and digits are a job id")
    }

    /// Returns the id as F58 with the prefix `ƒ`, as `flux jobs` prints ids: `ƒuZZybuNNy`.
    pub fn to_sign(self) -> String {
        format!("{SIGN}{}", self.digits())
    }

    /// Returns the id in dotted hexadecimal: `0017.e9fb.8df1.6c2e`.
    pub fn to_dothex(self) -> String {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| self.0 >> shift & 0xffff);
        format!("{a:04x}.{b:04x}.{c:04x}.{d:04x}")
    }

    fn digits(self) -> String {
        let mut digits = Vec::new();
        let mut rest = self.0;
        loop {
            digits.push(char::from(ALPHABET[(rest % 58) as usize]));
            rest /= 58;
            if rest == 0 {
                return digits.iter().rev().collect();
            }
        }
    }
}

/// Formats the id as plain F58: `fuZZybuNNy`.
impl fmt::Display for Fluid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("f{}", self.digits()))
    }
}

impl FromStr for Fluid {
    type Err = ParseError;

    /// Parses a Flux id in any form of RFC 19; ignores white space around the id.
    ///
    /// # Errors
    /// [`ParseError`] with the position of the first character that does not fit the form, or of the digit with which
    /// the number exceeds 64 bits.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let id = text.trim();
        let before = text.len() - text.trim_start().len();
        let read = |from: usize, base: u64, expected: &str, value: fn(u8) -> Option<u64>| {
            number(&id[from..], base, value).map(Self).map_err(|at| {
                ParseError::new(WHAT, text, before + from + at.0, if at.1 { OF_64_BITS } else { expected })
            })
        };
        if id.contains('.') {
            return dothex(id)
                .map_err(|at| ParseError::new(WHAT, text, before + at, "0000.0000.0000.0000 in hexadecimal"));
        }
        match id.chars().next() {
            Some(first @ ('f' | SIGN)) => read(first.len_utf8(), 58, "a digit of base 58 (no 0, I, O or l)", base58),
            _ if id.starts_with("0x") => read(2, 16, "a hexadecimal digit", base16),
            _ => read(0, 10, "a digit, or another form of RFC 19 (f..., 0x..., or with dots)", base10),
        }
    }
}

const OF_64_BITS: &str = "a number of at most 64 bits";

/// An error in the digits of an id: its byte position, and whether the number exceeds 64 bits.
struct Wrong(usize, bool);

fn number(digits: &str, base: u64, value: fn(u8) -> Option<u64>) -> Result<u64, Wrong> {
    if digits.is_empty() {
        return Err(Wrong(0, false));
    }
    digits.bytes().enumerate().try_fold(0u64, |number, (at, digit)| {
        let digit = value(digit).ok_or(Wrong(at, false))?;
        number.checked_mul(base).and_then(|number| number.checked_add(digit)).ok_or(Wrong(at, true))
    })
}

fn dothex(id: &str) -> Result<Fluid, usize> {
    let mut number = 0u64;
    for (at, byte) in id.bytes().enumerate() {
        match (at % 5, byte) {
            (4, b'.') if at < 19 => {}
            (0..4, byte) if at < 19 => number = number << 4 | base16(byte).ok_or(at)?,
            _ => return Err(at),
        }
    }
    if id.len() == 19 { Ok(Fluid(number)) } else { Err(id.len()) }
}

fn base58(digit: u8) -> Option<u64> {
    ALPHABET.iter().position(|letter| *letter == digit).map(|value| value as u64)
}

fn base16(digit: u8) -> Option<u64> {
    char::from(digit).to_digit(16).map(u64::from)
}

fn base10(digit: u8) -> Option<u64> {
    char::from(digit).to_digit(10).map(u64::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_the_rfc_is_read_and_written() {
        #[rustfmt::skip]
        let table = [
            (0, "1"), (1, "2"), (57, "z"), (1234, "NH"), (1888, "ZZ"), (3363, "zz"), (3364, "211"), (4369, "2JL"),
            (65_535, "LUv"),
            (4_294_967_295, "7YXq9G"), (633_528_662, "xyzzy"), (6_731_191_091_817_518, "uZZybuNNy"),
            (u64::MAX, "jpXCZedGfVQ"),
        ];
        for (number, f58) in table {
            let id = Fluid(number);
            assert_eq!(id.to_string(), format!("f{f58}"));
            assert_eq!(id.to_sign(), format!("ƒ{f58}"));
            assert_eq!(id.job().as_str(), format!("f{f58}"));
            let forms = [
                id.to_string(),
                id.to_sign(),
                number.to_string(),
                format!("{number:#x}"),
                id.to_dothex(),
                format!("  {id}\n"),
            ];
            for form in forms {
                assert_eq!(form.parse(), Ok(id), "{form:?}");
            }
        }
        assert_eq!(Fluid(6_731_191_091_817_518).to_dothex(), "0017.e9fb.8df1.6c2e");
        assert_eq!("0x17E9FB8DF16C2E".parse(), Ok(Fluid(6_731_191_091_817_518)));
        // Leading ones are zeros, as in Flux.
        assert_eq!("f111".parse(), Ok(Fluid(0)));
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_place() {
        #[rustfmt::skip]
        let table = [
            ("", 0), (" ", 1), ("f", 1), ("ƒ", 2), ("f0", 1), ("f1230", 4), ("flux", 1), ("x1", 0), ("boo", 0),
            ("-1", 0), ("1e3", 1),
            ("0x", 2), ("0X1f", 1), ("18446744073709551616", 19), ("jpXCZedGfVQ", 0), ("fjpXCZedGfVR", 11),
            ("fzzzzzzzzzzz", 11),
            ("0x10000000000000000", 18), ("reform-remote-galileo--heart-package-academy", 0), ("0017.e9fb.8df1", 14),
            ("0017.e9fb.8df1.6c2", 18), ("0017.e9fb.8df1.6c2e.", 19), ("0017.e9fb.8df1.6c2g", 18),
            ("017.e9fb.8df1.6c2e", 3), ("1.5", 1),
            (" f 1", 2), ("f1 2", 2), ("٣", 0),
        ];
        for (text, at) in table {
            let error = text.parse::<Fluid>().unwrap_err();
            assert_eq!(error.at, at, "{text:?}: {error}");
        }
        let error = "fjpXCZedGfVR".parse::<Fluid>().unwrap_err();
        assert!(error.to_string().ends_with("expected a number of at most 64 bits"), "{error}");
    }

    proptest! {
        #[test]
        fn forms_agree(number: u64) {
            let id = Fluid(number);
            for form in [id.to_string(), id.to_sign(), number.to_string(), format!("{number:#x}"), id.to_dothex()] {
                prop_assert_eq!(form.parse(), Ok(id));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,24}|[fƒ0x.1-9a-zA-Z]{0,22}") {
            if let Ok(id) = text.parse::<Fluid>() {
                prop_assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }
}
