//! Parts and terms of a job: decides whether the terms are valid, and how many failed ranks the job forgives.
//!
//! A job consists of **ranks** and of **named resources** (a rabbit, a licence). The resource manager allocates both
//! once; the job and its actions hold them. perilog releases both in parts ([`Part`]) that are disjoint and add up to
//! the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{CheckName, ResourceName};
use crate::idset::IdSet;
use crate::parse::{ParseError, or_default};
use crate::resource_set::ResourceSet;

/// A part of a job: ranks and named resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub ranks: IdSet,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<ResourceName>,
}

impl Part {
    pub const fn of_ranks(ranks: IdSet) -> Self {
        Self { ranks, resources: BTreeSet::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty() && self.resources.is_empty()
    }

    pub fn extend_with(&mut self, other: &Self) {
        self.ranks.extend_with(&other.ranks);
        self.resources.extend(other.resources.iter().cloned());
    }

    pub fn subtract(&mut self, other: &Self) {
        self.ranks.subtract(&other.ranks);
        self.resources.retain(|name| !other.resources.contains(name));
    }

    /// Returns `true` if `other` contains every rank and resource of this part.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.ranks.is_subset(&other.ranks) && self.resources.is_subset(&other.resources)
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let resources = self.resources.intersection(&other.resources).cloned().collect();
        Self { ranks: self.ranks.intersection(&other.ranks), resources }
    }
}

/// Formats a part for people: `ranks 0-3 and rabbit1, rabbit2`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.resources.iter().map(ResourceName::as_str).collect();
        let word = if self.ranks.len() == 1 { "rank" } else { "ranks" };
        match (self.ranks.is_empty(), names.is_empty()) {
            (true, true) => f.write_str("nothing"),
            (false, true) => write!(f, "{word} {}", self.ranks),
            (true, false) => f.write_str(&names.join(", ")),
            (false, false) => write!(f, "{word} {} and {}", self.ranks, names.join(", ")),
        }
    }
}

/// The number of failed ranks that a job forgives: `2`, or `10%` of the job's ranks, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tolerance {
    Ranks(u32),
    /// A percentage of the job's ranks, from 0 to 100; the number of ranks is rounded down.
    Percent(u8),
}

impl Default for Tolerance {
    fn default() -> Self {
        Self::Ranks(0)
    }
}

impl Tolerance {
    /// Returns the number of failed ranks that a job of `ranks` ranks forgives.
    pub const fn of(self, ranks: u64) -> u64 {
        match self {
            Self::Ranks(count) => count as u64,
            Self::Percent(percent) => ranks.saturating_mul(percent as u64) / 100,
        }
    }
}

impl FromStr for Tolerance {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        let wrong = |at, expected| ParseError::new("tolerance", text, at, expected);
        if let Some(at) = digits.bytes().position(|b| !b.is_ascii_digit()) {
            return Err(wrong(at, "a digit: a number of ranks, or a percentage such as 10%"));
        }
        let number: u32 = match digits.parse() {
            Ok(number) => number,
            Err(_) if digits.is_empty() => return Err(wrong(0, "a number of ranks, or a percentage such as 10%")),
            Err(_) => return Err(wrong(0, "a number of 32 bits")),
        };
        match (digits.len() == text.len(), u8::try_from(number)) {
            (true, _) => Ok(Self::Ranks(number)),
            (false, Ok(percent @ 0..=100)) => Ok(Self::Percent(percent)),
            (false, _) => Err(wrong(0, "at most 100%")),
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl TryFrom<String> for Tolerance {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Tolerance> for String {
    fn from(tolerance: Tolerance) -> Self {
        tolerance.to_string()
    }
}

/// Maximum number of checks for which the terms of a job name a tolerance. The bound is needed because the controller
/// goes through all these checks each time a rank fails.
pub const MAX_CHECKS: usize = 64;

/// The terms of a job, which the requester states when adding the job: its resources, and the failures that it
/// forgives. The names of the members in JSON are those of the local API. Stores of earlier versions have `r` and
/// `checks`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// R, from which perilog cuts the fragments of releases; `None`: the resource manager gave none.
    #[serde(rename = "R", alias = "r", default, skip_serializing_if = "Option::is_none")]
    pub r: Option<Box<ResourceSet>>,
    /// The named resources of the job.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<ResourceName>,
    /// The number of failed ranks that the job forgives. `None`: with `keep`, the job forgives all ranks beyond `keep`.
    /// Without `keep`, it forgives the sum of `checks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerate: Option<Tolerance>,
    /// For each of these checks, the number of ranks that may fail the check, within `tolerate`. Without `tolerate` and
    /// `keep`, the job forgives failures of these checks alone.
    #[serde(
        rename = "tolerate_checks",
        alias = "checks",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub checks: BTreeMap<CheckName, Tolerance>,
    /// The number of good ranks that the job needs. The job goes on with exactly this number of ranks, never with
    /// fewer, and hands over all others. `None`: the job hands over no surplus rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Whether the job hands over the ranks that failed within the tolerance, once the action in which they failed has
    /// succeeded without them.
    #[serde(default, deserialize_with = "or_default")]
    pub shrink: bool,
}

impl Terms {
    /// Returns `true` if the job hands over ranks that failed, and goes on without them: `shrink` or `keep` is set.
    pub const fn sheds(&self) -> bool {
        self.shrink || self.keep.is_some()
    }

    /// Checks whether a job of `ranks` ranks can have these terms.
    ///
    /// # Errors
    ///
    /// A text for the requester: too many checks, or `keep` is 0 or more than `ranks`.
    pub fn check(&self, ranks: u64) -> Result<(), String> {
        if self.checks.len() > MAX_CHECKS {
            return Err(format!(
                "{} checks have their own tolerance, and the limit is {MAX_CHECKS}",
                self.checks.len()
            ));
        }
        match self.keep {
            Some(0) => Err("keep at least one rank".to_owned()),
            Some(keep) if u64::from(keep) > ranks => Err(format!("cannot keep {keep} ranks of a job that has {ranks}")),
            _ => Ok(()),
        }
    }

    /// Returns `true` if `other` means the same for a job as these terms. Without `keep` and `checks`, a tolerance of
    /// zero ranks equals no tolerance.
    pub fn is_same(&self, other: &Self) -> bool {
        let zero = |terms: &Self| terms.keep.is_none() && terms.checks.is_empty();
        let tolerate = |terms: &Self| terms.tolerate.filter(|of| !zero(terms) || *of != Tolerance::Ranks(0));
        let but = |terms: &Self| Self { tolerate: tolerate(terms), ..terms.clone() };
        but(self) == but(other)
    }

    /// Returns the number of ranks that may fail in a job of `ranks` ranks. Without `tolerate`, that is the number of
    /// ranks beyond `keep`; without both, the sum of `checks`.
    pub fn forgives(&self, ranks: u64) -> u64 {
        match (self.tolerate, self.keep) {
            (Some(tolerate), _) => tolerate.of(ranks),
            (None, Some(keep)) => ranks.saturating_sub(u64::from(keep)),
            (None, None) => self.checks.values().fold(0, |sum: u64, check| sum.saturating_add(check.of(ranks))),
        }
    }

    /// Returns `true` if the job also forgives a tolerable failure that names no check, or a check without a tolerance
    /// of its own.
    pub const fn forgives_others(&self) -> bool {
        self.tolerate.is_some() || self.keep.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ranks: &str, names: &[&str]) -> Part {
        let resources = names.iter().map(|name| ResourceName::new(name).unwrap()).collect();
        Part { ranks: ranks.parse().unwrap(), resources }
    }

    #[test]
    fn parts_add_up() {
        let whole = part("0-5", &["rabbit1", "rabbit2"]);
        let mut rest = whole.clone();
        rest.subtract(&part("1,3,9", &["rabbit2", "x"]));
        assert_eq!(rest, part("0,2,4-5", &["rabbit1"]));
        assert_eq!(whole.intersection(&part("4-9", &["x", "rabbit2"])), part("4-5", &["rabbit2"]));
        rest.extend_with(&part("1,3", &["rabbit2"]));
        assert_eq!(rest, whole);
        for (part, text) in [
            (part("", &[]), "nothing"),
            (part("1-2", &[]), "ranks 1-2"),
            (part("", &["a", "b"]), "a, b"),
            (part("1", &["a"]), "rank 1 and a"),
            (part("7", &[]), "rank 7"),
        ] {
            assert_eq!(part.to_string(), text);
        }
    }

    #[test]
    fn tolerances() {
        for (text, ranks, forgiven) in [
            ("0", 50, 0),
            ("3", 50, 3),
            ("60", 50, 60),
            ("10%", 50, 5),
            ("10%", 9, 0),
            ("33%", 10, 3),
            ("100%", 7, 7),
            ("0%", 7, 0),
            ("4294967295", 5, 4_294_967_295),
        ] {
            let tolerance: Tolerance = text.parse().unwrap();
            assert_eq!(tolerance.of(ranks), forgiven, "{text} of {ranks}");
            assert_eq!(tolerance.to_string(), text);
        }
        for (text, at) in [
            ("", 0),
            ("%", 0),
            ("-1", 0),
            ("1.5", 1),
            ("101%", 0),
            ("300%", 0),
            ("4294967296", 0),
            ("5 %", 1),
            ("5%%", 1),
        ] {
            assert_eq!(text.parse::<Tolerance>().unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn who_asks_for_more_than_is_kept_is_forgiven_the_rest() {
        let terms = |tolerate: &str, keep| Terms { tolerate: tolerate.parse().ok(), keep, ..Terms::default() };
        for (terms, ranks, forgiven) in [
            (terms("", None), 60, 0),
            (terms("0", None), 60, 0),
            (terms("", Some(50)), 60, 10),
            (terms("3", Some(50)), 60, 3),
            (terms("0", Some(50)), 60, 0),
            (terms("0%", Some(50)), 60, 0),
            (terms("", Some(70)), 60, 0),
        ] {
            assert_eq!(terms.forgives(ranks), forgiven, "{terms:?}");
        }
    }

    #[test]
    fn a_job_that_names_checks_alone_is_forgiven_their_sum() {
        let check = |name: &str, of: &str| (CheckName::new(name).unwrap(), of.parse().unwrap());
        let terms = Terms { checks: [check("gpu", "10%"), check("lustre", "2")].into(), ..Terms::default() };
        assert_eq!((terms.forgives(60), terms.forgives_others()), (8, false));
        let all = Terms { tolerate: Some(Tolerance::Ranks(3)), ..terms.clone() };
        assert_eq!((all.forgives(60), all.forgives_others()), (3, true));
        // A tolerance of zero beside a check differs from no tolerance: zero forgives nothing.
        assert!(!terms.is_same(&Terms { tolerate: Some(Tolerance::Ranks(0)), ..terms.clone() }));
        let many = (0..=MAX_CHECKS).map(|n| check(&format!("c{n}"), "1")).collect();
        assert!(Terms { checks: many, ..Terms::default() }.check(60).is_err_and(|why| why.contains("the limit is 64")));
        // Terms that an older version wrote.
        let old = r#"{"tolerate":"2","shrink":false}"#;
        let read: Terms = serde_json::from_str(old).unwrap();
        assert_eq!((read.checks.len(), serde_json::to_string(&read).unwrap().as_str()), (0, old));
    }
}
