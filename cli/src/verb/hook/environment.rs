//! Environment that the resource manager gave this process. A hook reads from it which job is meant, and passes a part
//! of it on to the scripts.

use std::collections::BTreeMap;
use std::str::FromStr;

use perilog_core::{ParseError, environment};

use crate::fault::Fault;
use crate::out::aside;

/// Maximum number of bytes that the hook passes on. A node refuses more than [`environment::MAX_BYTES`], and a refusal
/// drains the node. The job's owner chooses the name, comment and variables of a job, so the hook drops the excess
/// here.
const MOST: usize = environment::MAX_BYTES / 2;

pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Reads the process's environment; skips variables that are not UTF-8.
    pub(super) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// Returns the value of a variable; `None` if the variable is unset or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Parses the value of a variable; `None` if the variable is unset or empty.
    pub(super) fn read<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, Fault> {
        let wrong = |value: &str, error: T::Err| Fault::Usage(format!("{name}={value:?}: {error}"));
        self.get(name).map(|value| value.trim().parse().map_err(|error| wrong(value, error))).transpose()
    }

    /// Parses the value of a variable, and fails if the variable is unset or empty. `who`: the program that sets it,
    /// for the error.
    pub(super) fn need<T: FromStr<Err = ParseError>>(&self, name: &str, who: &str) -> Result<T, Fault> {
        let missing = || {
            Fault::Usage(format!(
                "{name} is not set: {who} runs this hook and sets this variable; to try the hook manually, set what \
                 {who} sets (perilog hook --help)"
            ))
        };
        self.read(name)?.ok_or_else(missing)
    }

    /// Returns the variables to pass on to the node: those that `wanted` accepts, without the largest ones if all
    /// together have more than [`MOST`] bytes. The node's own list decides which of them a script sees.
    pub(super) fn offer(&self, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let good = |name: &&String| wanted(name) && environment::check_name(name).is_ok();
        let mut by_size: Vec<(&String, &String)> = self.0.iter().filter(|(name, _)| good(name)).collect();
        by_size.sort_by_key(|(name, value)| name.len() + value.len());
        let (mut offered, mut left_out, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        for (name, value) in by_size {
            bytes += name.len() + value.len();
            if bytes > MOST {
                left_out.push(name.as_str());
            } else {
                offered.insert(name.clone(), value.clone());
            }
        }
        if !left_out.is_empty() {
            aside(format_args!(
                "the environment is too large; variables not passed to the scripts: {}",
                left_out.join(", ")
            ));
        }
        offered
    }
}

#[cfg(test)]
impl Environment {
    pub(super) fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_can_choose_makes_no_node_refuse() {
        let long = "x".repeat(environment::MAX_BYTES);
        let env = Environment::of(&[
            ("SLURM_JOB_ID", "5"),
            ("SLURM_JOB_COMMENT", &long),
            ("SPANK_A-B", "no name for a shell"),
            ("HOME", "/root"),
        ]);
        let offered = env.offer(|name| name.starts_with('S'));
        assert_eq!(offered.keys().collect::<Vec<_>>(), ["SLURM_JOB_ID"]);
        let all: Vec<String> = offered.keys().cloned().collect();
        assert!(environment::admit(&offered, &all).is_ok());
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        let env = Environment::of(&[("A", ""), ("B", "x"), ("C", " 7\n")]);
        let why = |name: &str| env.need::<perilog_core::Attempt>(name, "slurmd").unwrap_err().to_string();
        assert!(why("A").starts_with("A is not set: slurmd runs this hook"), "{}", why("A"));
        assert!(why("B").starts_with("B=\"x\": "), "{}", why("B"));
        assert_eq!(env.need::<perilog_core::Attempt>("C", "slurmd").unwrap(), perilog_core::Attempt::from_number(7));
    }
}
