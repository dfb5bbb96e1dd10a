//! Counts of tests, from the summaries that the test programs print.

use std::fmt;
use std::ops::AddAssign;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Number of checks that could not run here; the output has their reasons.
    pub(crate) skipped: usize,
}

impl Tally {
    /// Reads the last line like `test result: ok. 5 passed; 0 failed; 1 ignored; ...` of one test program; `None` if
    /// the program ended before it printed one. Earlier lines may be quotes from a failed test. Ignored tests do not
    /// count as skipped: other tests run them in a process of their own.
    pub(crate) fn read(output: &str) -> Option<Self> {
        let result = output.lines().filter_map(|line| line.strip_prefix("test result: ")).next_back()?;
        let count = |word: &str| -> Option<usize> {
            let part = result.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(word))?;
            part.trim().parse().ok()
        };
        Some(Self { passed: count("passed")?, failed: count("failed")?, skipped: count("skipped").unwrap_or(0) })
    }

    /// Returns the counts of a finished test program. A program that failed without a failed test, for instance by a
    /// crash, counts as one failure; so does a success without a summary.
    pub(crate) fn judge(output: &str, success: bool) -> Self {
        let mut tally = Self::read(output).unwrap_or(Self { failed: 1, ..Self::default() });
        if !success {
            tally.failed = tally.failed.max(1);
        }
        tally
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
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
            (&format!("running\ntest result: ok. 9 passed; 9 failed\nmore\n{line}\n"), Some((5, 2))),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(passed, failed)| Tally { passed, failed, skipped: 0 });
            assert_eq!(Tally::read(text), expected, "{text}");
        }
        let tally = Tally { passed: 123, ..Tally::default() };
        assert_eq!(tally.to_string(), "123 passed, 0 failed");
        assert_eq!(Tally { skipped: 2, ..tally }.to_string(), "123 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let result = "test result: ok. 5 passed; 0 failed; 0 ignored;";
        let cases = [
            (result, true, (5, 0)),
            (result, false, (5, 1)),
            ("", true, (0, 1)),
            ("test a ... ", false, (0, 1)),
            ("test result: FAILED. 5 passed; 2 failed", false, (5, 2)),
        ];
        for (output, success, (passed, failed)) in cases {
            assert_eq!(Tally::judge(output, success), Tally { passed, failed, skipped: 0 }, "{output}");
        }
    }
}
