//! A number of ranks, or a percentage of a job's ranks.

use std::fmt;

use crate::json;

/// A number of ranks (`2`), or a part of the job's ranks (`"10%"`). The controller's API reads the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    Ranks(u32),
    /// A percentage, 0 to 100.
    Percent(u8),
}

impl Count {
    /// Reads a count from a JSON value.
    ///
    /// # Errors
    /// A text with the expected form and the value found.
    pub(crate) fn read(value: &str) -> Result<Self, String> {
        let text = json::text(value);
        let percent = text.and_then(|text| text.strip_suffix('%')).and_then(digits);
        let read = match (text, percent) {
            (Some(_), percent) => percent.filter(|percent| *percent <= 100).map(|percent| Self::Percent(percent as u8)),
            (None, _) => digits(value).map(Self::Ranks),
        };
        read.ok_or_else(|| {
            let quoted = text.and_then(digits).map(|count| format!(": write {count} without quotes"));
            let quoted = quoted.unwrap_or_default();
            format!("expected a number of ranks, or a percentage such as \"10%\", not {}{quoted}", json::shown(value))
        })
    }

    /// Returns the sum of the counts; `None`: there is no count, or the sum depends on the job's size.
    pub(crate) fn sum<'a>(mut counts: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let first = *counts.next()?;
        counts.try_fold(first, |sum, count| match (sum, *count) {
            (Self::Ranks(sum), Self::Ranks(count)) => Some(Self::Ranks(sum.saturating_add(count))),
            (Self::Percent(sum), Self::Percent(count)) => Some(Self::Percent((sum + count).min(100))),
            _ => None,
        })
    }

    /// Returns `true` if this count allows more ranks than `other`; `None`: that depends on the job's size.
    pub(crate) fn exceeds(self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::Ranks(mine), Self::Ranks(most)) => Some(mine > most),
            (Self::Percent(mine), Self::Percent(most)) => Some(mine > most),
            // A cap of zero tolerates no rank of any job.
            (mine, Self::Ranks(0) | Self::Percent(0)) => Some(mine.of(u64::MAX) > 0),
            _ => None,
        }
    }

    /// Returns the count for a job of `ranks` ranks; rounds a percentage down.
    pub const fn of(self, ranks: u64) -> u64 {
        match self {
            Self::Ranks(count) => count as u64,
            Self::Percent(percent) => (ranks as u128 * percent as u128 / 100) as u64,
        }
    }
}

/// Parses digits only: `u32::from_str` would also accept a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_counts_and_others() {
        let form = "a number of ranks, or a percentage such as \"10%\"";
        let expected = |value: &str| format!("expected {form}, not {value}");
        for (value, read) in [
            ("0", Some(Count::Ranks(0))),
            ("2", Some(Count::Ranks(2))),
            ("4294967295", Some(Count::Ranks(u32::MAX))),
            ("4294967296", None),
            ("-1", None),
            ("2.0", None),
            ("true", None),
            ("null", None),
            ("[1]", None),
            ("\"10%\"", Some(Count::Percent(10))),
            ("\"100%\"", Some(Count::Percent(100))),
            ("\"101%\"", None),
            ("\"%\"", None),
            ("\"+1%\"", None),
            ("\"abc\"", None),
            ("\"\\u0031%\"", None),
            ("\"", None),
            ("", None),
        ] {
            assert_eq!(Count::read(value), read.ok_or_else(|| expected(value)), "{value}");
        }
        assert_eq!(Count::read("\"2\""), Err(expected("\"2\": write 2 without quotes")));
    }

    #[test]
    fn counts_of_one_kind_are_compared() {
        let (ranks, percent) = (Count::Ranks, Count::Percent);
        for (mine, most, more) in [
            (ranks(2), ranks(2), Some(false)),
            (ranks(3), ranks(2), Some(true)),
            (percent(10), percent(10), Some(false)),
            (percent(11), percent(10), Some(true)),
            (ranks(3), percent(10), None),
            (percent(10), ranks(2), None),
            (ranks(1), percent(0), Some(true)),
            (percent(1), ranks(0), Some(true)),
            (percent(0), ranks(0), Some(false)),
        ] {
            assert_eq!(mine.exceeds(most), more, "{mine} {most}");
        }
        assert_eq!((percent(10).of(19), percent(100).of(u64::MAX), ranks(3).of(1)), (1, u64::MAX, 3));
    }
}
