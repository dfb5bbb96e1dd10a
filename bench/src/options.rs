//! Options `--name value` that say how much to measure. Each value is a number or a list of numbers: `--rounds 3`,
//! `--agents 1000,10000`. Without an option, a measurement takes as many samples as its figures in docs/performance.md
//! need.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

#[derive(Debug, Default)]
pub struct Options(BTreeMap<String, Vec<usize>>);

/// Names of all options that any measurement knows.
const KNOWN: [&str; 7] = ["samples", "bursts", "seconds", "agents", "rounds", "ranks", "jobs"];

impl Options {
    pub fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = BTreeMap::new();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { bail!("{} has no value", pair[0]) };
            let name = name.strip_prefix("--").filter(|name| KNOWN.contains(name));
            let name = name.with_context(|| format!("no such option: {}; there are {}", pair[0], KNOWN.join(", ")))?;
            let numbers: Result<Vec<usize>, _> = value.split(',').map(str::parse).collect();
            options.insert(name.to_owned(), numbers.with_context(|| format!("--{name} {value}: not numbers"))?);
        }
        Ok(Self(options))
    }

    pub fn list(&self, name: &str, default: &[usize]) -> Vec<usize> {
        self.0.get(name).cloned().unwrap_or_else(|| default.to_vec())
    }

    pub fn number(&self, name: &str, default: usize) -> usize {
        self.list(name, &[default]).first().copied().unwrap_or(default)
    }

    /// Returns the options as command line arguments, for a part of the bench in another process.
    pub fn arguments(&self) -> Vec<String> {
        let text = |numbers: &Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        self.0.iter().flat_map(|(name, numbers)| [format!("--{name}"), text(numbers)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_wins_over_the_default() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("--agents 10,20 --rounds 3")).unwrap();
        assert_eq!(options.list("agents", &[1]), [10, 20]);
        assert_eq!((options.number("rounds", 9), options.number("samples", 9)), (3, 9));
        assert_eq!(options.arguments(), words("--agents 10,20 --rounds 3"));
        for wrong in ["--rounds", "--rounds x", "--frob 1", "rounds 1"] {
            assert!(Options::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
