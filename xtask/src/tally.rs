//! Counting tests, from what the test programs themselves print at their end.

use std::fmt;
use std::ops::AddAssign;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Tally {
    /// Reads all lines like `test result: ok. 5 passed; 0 failed; 1 ignored; ...`; `None` where there is no such line,
    /// which is a program that ended before its end.
    pub(crate) fn read(output: &str) -> Option<Self> {
        let mut results = output.lines().filter_map(|line| line.trim().strip_prefix("test result: ")).peekable();
        results.peek()?;
        let mut tally = Self::default();
        for result in results {
            let count = |word: &str| -> Option<usize> {
                let part = result.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(word))?;
                part.trim().parse().ok()
            };
            tally += Self { passed: count("passed")?, failed: count("failed")? };
        }
        Some(tally)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_printed_at_the_end_counts() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        let cases = [
            ("", None),
            ("test a ... ok\n", None),
            ("test result: ok. many passed; 0 failed", None),
            (line, Some((5, 2))),
            (&format!("running\n{line}\nmore\n{}\n", line.replace("FAILED", "ok")), Some((10, 4))),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(passed, failed)| Tally { passed, failed });
            assert_eq!(Tally::read(text), expected, "{text}");
        }
        assert_eq!(Tally { passed: 123, failed: 0 }.to_string(), "123 passed, 0 failed");
    }
}
