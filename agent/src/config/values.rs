//! Types of the values in agent.toml. The parser checks each value: the program never holds a value of a wrong form,
//! and an error shows the wrong value's place in the file.

use std::fmt;

use perilog_core::environment;
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// Defines a type for texts of one form. Takes the type's name, a description of the form, and the check.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $fits:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let fits: fn(&str) -> bool = $fits;
                if fits(&text) { Ok(Self(text)) } else { Err(de::Error::invalid_value(Unexpected::Str(&text),
                    &$expected)) }
            }
        }
    };
}

checked_text! {
    /// An absolute path.
    AbsolutePath, "a path that begins with `/`", |text| text.starts_with('/') && !text.contains('\0')
}
checked_text! {
    /// `host:port`; an IPv6 address has brackets.
    Address, "`host:port`, such as \"mgmt1:5115\" or \"[fd00::1]:5115\"", |text| match text.rsplit_once(':') {
        Some((host, port)) => {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        None => false,
    }
}
checked_text! {
    /// The name of an environment variable that a request may set.
    VariableName,
    "the name of one variable, [A-Za-z_][A-Za-z0-9_]*, not a pattern, and not a variable that changes a loader or an \
     interpreter (LD_*, BASH_ENV, IFS, PATH, PYTHON* ...)",
    |text| environment::check_name(text).is_ok() && !environment::is_honoured(text)
}
checked_text! {
    /// The name of an environment variable that the node's configuration sets for scripts.
    OwnVariable, "the name of a variable ([A-Za-z_][A-Za-z0-9_]*); names that perilog sets itself, such as \
                  PERILOG_JOB, are not allowed",
    |text| environment::check_name(text).is_ok() && !environment::is_own(text)
}
checked_text! {
    /// The value of an environment variable.
    VariableValue, "a text without NUL", |text| !text.contains('\0')
}
checked_text! {
    /// A user's name, or a uid as text.
    UserName, "the name of a user", |text| !text.is_empty() && !text.contains(['\0', ':', '\n'])
}
checked_text! {
    /// File name of a script, without its directory.
    ScriptName, "the file name of a script, without its directory",
    |text| !text.is_empty() && !text.contains(['/', '\0'])
}

/// A file mode mask, written as a text of octal digits: a bare 022 is no TOML, and 22 would be twenty-two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Umask(pub u32);

impl Serialize for Umask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for Umask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Octal;
        impl Visitor<'_> for Octal {
            type Value = Umask;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text of octal digits, such as \"0022\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Umask, E> {
                let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777 && !text.starts_with('+'));
                mask.map(Umask).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Octal)
    }
}

/// A number of bytes or of tasks, or no limit. `K`, `M`, `G` and `T` are powers of 1024, as in systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit(pub Option<u64>);

const SUFFIXES: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(number) = self.0 else { return serializer.serialize_str("infinity") };
        let largest = SUFFIXES.iter().rev().find(|(_, bits)| number > 0 && number % (1 << bits) == 0);
        match largest {
            Some((suffix, bits)) => serializer.collect_str(&format_args!("{}{suffix}", number >> bits)),
            None => serializer.collect_str(&number),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Limit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number above 0, also with K, M, G or T (\"16G\"), or \"infinity\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit, E> {
                let above = u64::try_from(number).ok().filter(|n| *n > 0);
                above.map(|n| Limit(Some(n))).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                if text == "infinity" {
                    return Ok(Limit(None));
                }
                parse_size(text).map(|n| Limit(Some(n))).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(*suffix));
    let (digits, bits) = suffix.map_or((text, 0), |(_, bits)| (&text[..text.len() - 1], *bits));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    // The largest value is systemd's infinity.
    number.checked_mul(1 << bits).filter(|n| *n > 0 && *n < u64::MAX)
}

/// A whole number from `LOW` to `HIGH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Within<const LOW: i64, const HIGH: i64>(pub i64);

impl<const LOW: i64, const HIGH: i64> Within<LOW, HIGH> {
    /// Returns the number as `u64`; zero for a negative number.
    pub fn unsigned(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

impl<'de, const LOW: i64, const HIGH: i64> Deserialize<'de> for Within<LOW, HIGH> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        if (LOW..=HIGH).contains(&number) {
            return Ok(Self(number));
        }
        let expected = format!("a number from {LOW} to {HIGH}");
        Err(de::Error::invalid_value(Unexpected::Signed(number), &expected.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expect) in [
            ("1", Some(1)),
            ("16G", Some(16 << 30)),
            ("3K", Some(3072)),
            ("1T", Some(1 << 40)),
            ("0", None),
            ("", None),
            ("G", None),
            ("1g", None),
            ("1.5G", None),
            ("-1", None),
            ("+1", None),
            ("99999999T", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(parse_size(text), expect, "{text:?}");
        }
    }
}
