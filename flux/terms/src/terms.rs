//! The terms of a job, and the cap of a site. The terms are an object of a jobspec. The cap is the table `[perilog]` in
//! Flux's configuration.

use std::collections::BTreeMap;

use crate::count::Count;
use crate::json;

/// Maximum length in bytes of a check's name, as `perilog-report` accepts it.
const MAX_NAME: usize = 64;
/// Maximum number of checks that a job's terms name, and also of those that a site's cap names. The controller accepts
/// twice as many, because a job may get the checks of both.
const MAX_CHECKS: usize = 32;

/// Terms that a user sets with `--setattr=perilog.TERM=VALUE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Maximum number of failed ranks that the job tolerates, over all checks together; `None`: `keep` or `checks`
    /// decides.
    pub tolerate: Option<Count>,
    /// Number of good ranks with which the job goes on, at least 1: all other ranks may fail. Counts only without
    /// `tolerate`. `None`: the user asks for no such number.
    pub keep: Option<u32>,
    /// Maximum number of ranks that may fail each named check; these ranks also count against `tolerate`. Without
    /// `tolerate` and `keep`, the job tolerates failures of the named checks alone.
    pub checks: BTreeMap<String, Count>,
}

impl Terms {
    /// Reads the terms of a job from its jobspec (`attributes.system.perilog`).
    ///
    /// # Errors
    /// One line for the user who submits the job: the mistake, normally with the term, the expected form and the value
    /// found.
    pub fn read(perilog: &str) -> Result<Self, String> {
        let mut terms = Self::default();
        for (name, value) in table("perilog", perilog)? {
            match name {
                "tolerate" => terms.tolerate = Some(count("perilog.tolerate", value)?),
                "keep" => terms.keep = Some(keep(value)?),
                "tolerate-check" => terms.checks = checks("perilog.tolerate-check", value)?,
                other => return Err(unknown("perilog", other, "tolerate, keep and tolerate-check.NAME")),
            }
        }
        Ok(terms)
    }

    /// Reads the terms of a job that the plugin may not have checked. For malformed terms returns no terms, and a text
    /// that describes the mistake; `None`: the terms are well formed.
    pub fn read_or_none(perilog: &str) -> (Self, Option<String>) {
        match Self::read(perilog) {
            Ok(terms) => (terms, None),
            Err(why) => (Self::default(), Some(why)),
        }
    }

    /// Confirms that the site allows these terms. Only a job's size can compare a number with a percentage, so such a
    /// pair passes here; the edge calls [`Terms::within`] once it knows the size.
    ///
    /// # Errors
    /// A text for the user about the first term above its cap.
    pub fn check(&self, cap: &Cap) -> Result<(), String> {
        let within = |name: &str, asked: Option<Count>, most: Option<Count>| match (asked, most) {
            (Some(asked), Some(most)) if asked.exceeds(most) == Some(true) => {
                Err(format!("{name}: {asked} is more than the limit of this site, {most}"))
            }
            _ => Ok(()),
        };
        within("perilog.tolerate", self.tolerate, cap.tolerate)?;
        if self.names_checks_alone() {
            within("perilog.tolerate-check, in sum", Count::sum(self.checks.values()), cap.tolerate)?;
        }
        self.checks.iter().try_for_each(|(check, asked)| {
            within(&format!("perilog.tolerate-check.{check}"), Some(*asked), cap.checks.get(check).copied())
        })
    }

    /// Returns `true` if the terms ask to tolerate failures at all, be it a single rank.
    pub(crate) fn tolerates(&self) -> bool {
        let asks = |count: &Count| count.of(u64::MAX) > 0;
        self.keep.is_some() || self.tolerate.iter().chain(self.checks.values()).any(asks)
    }

    /// Returns `true` if the job tolerates named checks and no other failures.
    fn names_checks_alone(&self) -> bool {
        self.tolerate.is_none() && self.keep.is_none() && !self.checks.is_empty()
    }

    /// Returns how many failed ranks the job's terms forgive within the site's cap, if the job has `ranks` ranks.
    pub fn within<'a>(&'a self, cap: &'a Cap, ranks: u64) -> Forgiven<'a> {
        let least = |asked: u64, most: Option<&Count>| most.map_or(asked, |most| asked.min(most.of(ranks)));
        if self.names_checks_alone() {
            // All checks together stay within the site's cap on failed ranks.
            let mut left = least(u64::MAX, cap.tolerate.as_ref());
            let mut checks = BTreeMap::new();
            for (check, asked) in &self.checks {
                let most = least(asked.of(ranks), cap.checks.get(check)).min(left);
                left -= most;
                checks.insert(check.as_str(), most);
            }
            return Forgiven { all: None, checks };
        }
        let kept = self.keep.map_or(0, |keep| ranks.saturating_sub(u64::from(keep)));
        let all = least(self.tolerate.map_or(kept, |tolerate| tolerate.of(ranks)), cap.tolerate.as_ref());
        // The cap of a check also holds if the user does not name the check.
        let named = self.checks.iter().chain(&cap.checks).map(|(check, _)| check.as_str());
        let most = |check: &str| {
            let asked = self.checks.get(check).map_or(all, |asked| asked.of(ranks).min(all));
            least(asked, cap.checks.get(check))
        };
        Forgiven { all: Some(all), checks: named.filter(|_| all > 0).map(|check| (check, most(check))).collect() }
    }
}

/// How many failed ranks a job of known size tolerates: in all, and of each named check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgiven<'a> {
    /// Maximum number of failed ranks, whatever their failures. `None`: the job tolerates only failures of the named
    /// `checks`, each up to its own number.
    pub all: Option<u64>,
    /// Maximum number of failed ranks of each named check.
    pub checks: BTreeMap<&'a str, u64>,
}

/// The site's limits on what jobs may tolerate; a term without an entry has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cap {
    pub tolerate: Option<Count>,
    pub checks: BTreeMap<String, Count>,
}

impl Cap {
    /// Creates a cap that allows all terms.
    pub const fn all() -> Self {
        Self { tolerate: None, checks: BTreeMap::new() }
    }

    /// Creates a cap that allows no tolerance, for a site whose own cap cannot be read.
    pub fn none() -> Self {
        Self { tolerate: Some(Count::Ranks(0)), checks: BTreeMap::new() }
    }

    /// Reads the cap from its members of the table `[perilog]`, as JSON, such as `{"max-tolerate":2}`.
    ///
    /// # Errors
    /// A text that describes the mistake, normally with the key, the expected form and the value found.
    pub fn read(table_perilog: &str) -> Result<Self, String> {
        Self::of(table("[perilog]", table_perilog)?)
    }

    pub(crate) fn of(members: Vec<(&str, &str)>) -> Result<Self, String> {
        let mut cap = Self::default();
        for (name, value) in members {
            match name {
                "max-tolerate" => cap.tolerate = Some(count("[perilog] max-tolerate", value)?),
                "max-tolerate-check" => cap.checks = checks("[perilog] max-tolerate-check", value)?,
                other => {
                    return Err(unknown(
                        "[perilog]",
                        other,
                        "epilog, max-tolerate, max-tolerate-check and tolerate-needs-instance",
                    ));
                }
            }
        }
        Ok(cap)
    }

    /// Writes the cap as members of a JSON object, in the form of [`Cap::read`]:
    /// `"max-tolerate":2,"max-tolerate-check":{"lustre":"10%"}`.
    pub fn to_members(&self) -> Vec<String> {
        let value = |count: &Count| match count {
            Count::Ranks(_) => count.to_string(),
            Count::Percent(_) => format!("\"{count}\""),
        };
        let tolerate = self.tolerate.iter().map(|most| format!("\"max-tolerate\":{}", value(most)));
        // Names need no escapes: `checks` admits only such names.
        let checks: Vec<_> = self.checks.iter().map(|(check, most)| format!("\"{check}\":{}", value(most))).collect();
        let checks = (!checks.is_empty()).then(|| format!("\"max-tolerate-check\":{{{}}}", checks.join(",")));
        tolerate.chain(checks).collect()
    }
}

pub(crate) fn table<'a>(name: &str, value: &'a str) -> Result<Vec<(&'a str, &'a str)>, String> {
    first_of_table(name, value, usize::MAX)
}

/// Returns the first `most` members of a table.
fn first_of_table<'a>(name: &str, value: &'a str, most: usize) -> Result<Vec<(&'a str, &'a str)>, String> {
    json::first_members(value, most).ok_or_else(|| format!("{name}: expected a table, not {}", json::shown(value)))
}

fn count(name: &str, value: &str) -> Result<Count, String> {
    Count::read(value).map_err(|why| format!("{name}: {why}"))
}

fn keep(value: &str) -> Result<u32, String> {
    match Count::read(value) {
        Ok(Count::Ranks(keep @ 1..)) => Ok(keep),
        _ => Err(format!("perilog.keep: expected a number of ranks, at least 1, not {}", json::shown(value))),
    }
}

fn checks(name: &str, value: &str) -> Result<BTreeMap<String, Count>, String> {
    let read = |(check, value): (&str, &str)| {
        let fits =
            |(at, byte): (usize, u8)| byte.is_ascii_alphanumeric() || byte == b'_' || (at > 0 && b".-".contains(&byte));
        if check.is_empty() || check.len() > MAX_NAME || !check.bytes().enumerate().all(fits) {
            let check = json::shown(check);
            return Err(format!(
                "{name}: {check}: the name of a check must be 1 to {MAX_NAME} characters of [A-Za-z0-9._-]"
            ));
        }
        Ok((check.to_owned(), count(&format!("{name}.{check}"), value)?))
    };
    // A user's table may have a hundred thousand members, and Flux waits for the answer.
    let table = first_of_table(name, value, MAX_CHECKS + 1)?;
    if table.len() > MAX_CHECKS {
        return Err(format!("{name}: more than {MAX_CHECKS} checks"));
    }
    table.into_iter().map(read).collect()
}

fn unknown(table: &str, name: &str, known: &str) -> String {
    format!("{table}: unknown key {}; known are {known}", json::shown(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_are_read_and_terms_that_are_refused() {
        let none = Terms::default;
        let count = "expected a number of ranks, or a percentage such as \"10%\", not";
        let long = format!("{{\"tolerate-check\":{{\"{}\":1}}}}", "n".repeat(65));
        let checks: Vec<String> = (0..200_000).map(|at| format!("\"c{at}\":1")).collect();
        let many = format!("{{\"tolerate-check\":{{{}}}}}", checks.join(","));
        for (text, expected) in [
            ("{}", Ok(none())),
            (r#"{"tolerate":2}"#, Ok(Terms { tolerate: Some(Count::Ranks(2)), ..none() })),
            (r#"{"tolerate":"5%","keep":3}"#, Ok(Terms { tolerate: Some(Count::Percent(5)), keep: Some(3), ..none() })),
            (
                r#"{"tolerate-check":{"lustre":2,"gpu.0":"50%"}}"#,
                Ok(Terms {
                    checks: [("lustre".into(), Count::Ranks(2)), ("gpu.0".into(), Count::Percent(50))].into(),
                    ..none()
                }),
            ),
            (r#"{"tolerate":"abc"}"#, Err(format!("perilog.tolerate: {count} \"abc\""))),
            ("{\"tolerate\":\"a\nb\"}", Err(format!("perilog.tolerate: {count} \"a b\""))),
            (&many, Err("perilog.tolerate-check: more than 32 checks".to_owned())),
            (r#"{"tolerate":{"lustre":2}}"#, Err(format!("perilog.tolerate: {count} {{\"lustre\":2}}"))),
            (r#"{"keep":0}"#, Err("perilog.keep: expected a number of ranks, at least 1, not 0".into())),
            (r#"{"keep":"50%"}"#, Err("perilog.keep: expected a number of ranks, at least 1, not \"50%\"".into())),
            (r#"{"tolerate-check":2}"#, Err("perilog.tolerate-check: expected a table, not 2".into())),
            (r#"{"tolerate-check":{"lustre":true}}"#, Err(format!("perilog.tolerate-check.lustre: {count} true"))),
            (
                r#"{"tolerate-check":{"a b":1}}"#,
                Err("perilog.tolerate-check: a b: the name of a check must be 1 to 64 characters of [A-Za-z0-9._-]"
                    .into()),
            ),
            (
                &long,
                Err(format!(
                    "perilog.tolerate-check: {}...: the name of a check must be 1 to 64 characters of [A-Za-z0-9._-]",
                    "n".repeat(40)
                )),
            ),
            (
                r#"{"tolarate":1}"#,
                Err("perilog: unknown key tolarate; known are tolerate, keep and tolerate-check.NAME".into()),
            ),
            ("1", Err("perilog: expected a table, not 1".into())),
        ] {
            assert_eq!(Terms::read(text), expected, "{text}");
            let (terms, why) = Terms::read_or_none(text);
            assert_eq!((terms, why), (expected.clone().unwrap_or_default(), expected.err()), "{text}");
        }
    }

    #[test]
    fn a_sites_cap_takes_precedence() {
        let cap = Cap::read(r#"{"max-tolerate":"10%","max-tolerate-check":{"lustre":2}}"#).unwrap();
        let above = |term: &str, asked: &str, most: &str| {
            Some(format!("{term}: {asked} is more than the limit of this site, {most}"))
        };
        #[rustfmt::skip]
        let table: [(&str, Option<String>, Option<u64>, &[(&str, u64)]); 14] = [
            ("{}", None, Some(0), &[]),
            (r#"{"tolerate":"10%"}"#, None, Some(4), &[("lustre", 2)]),
            (r#"{"tolerate":"11%"}"#, above("perilog.tolerate", "11%", "10%"), Some(4), &[("lustre", 2)]),
            (r#"{"tolerate":9}"#, None, Some(4), &[("lustre", 2)]),
            (r#"{"tolerate":1}"#, None, Some(1), &[("lustre", 1)]),
            (r#"{"keep":38}"#, None, Some(2), &[("lustre", 2)]),
            (r#"{"keep":1}"#, None, Some(4), &[("lustre", 2)]),
            (r#"{"keep":41}"#, None, Some(0), &[]),
            (r#"{"keep":1,"tolerate":0}"#, None, Some(0), &[]),
            (r#"{"tolerate":4,"tolerate-check":{"gpu":1,"lustre":0}}"#, None, Some(4), &[("gpu", 1), ("lustre", 0)]),
            // Checks alone share the cap of the whole.
            (r#"{"tolerate-check":{"lustre":2}}"#, None, None, &[("lustre", 2)]),
            (r#"{"tolerate-check":{"lustre":2,"other":9}}"#, None, None, &[("lustre", 2), ("other", 2)]),
            (r#"{"tolerate-check":{"gpu":"9%","lustre":"5%"}}"#, above("perilog.tolerate-check, in sum", "14%", "10%"),
             None, &[("gpu", 3), ("lustre", 1)]),
            (r#"{"tolerate-check":{"lustre":3}}"#, above("perilog.tolerate-check.lustre", "3", "2"), None,
             &[("lustre", 2)]),
        ];
        for (text, refused, all, checks) in table {
            let terms = Terms::read(text).unwrap();
            assert_eq!(terms.check(&cap).err(), refused, "{text}");
            let expect = Forgiven { all, checks: checks.iter().copied().collect() };
            assert_eq!(terms.within(&cap, 40), expect, "{text}");
        }
        let all = Terms::read(r#"{"tolerate":1}"#).unwrap();
        assert!(all.check(&Cap::none()).is_err() && all.check(&Cap::default()).is_ok());
    }

    #[test]
    fn a_cap_is_written_as_it_is_read() {
        for text in
            ["{}", r#"{"max-tolerate":0}"#, r#"{"max-tolerate":"10%","max-tolerate-check":{"gpu.0":"5%","lustre":2}}"#]
        {
            let cap = Cap::read(text).unwrap();
            assert_eq!(format!("{{{}}}", cap.to_members().join(",")), text);
        }
        for (text, why) in [
            (r#"{"max-tolerate":"x"}"#, "[perilog] max-tolerate: expected a number of ranks"),
            (
                r#"{"max":1}"#,
                "[perilog]: unknown key max; known are epilog, max-tolerate, max-tolerate-check and \
                 tolerate-needs-instance",
            ),
            ("[]", "[perilog]: expected a table, not []"),
        ] {
            assert!(Cap::read(text).unwrap_err().starts_with(why), "{text}");
        }
    }
}
