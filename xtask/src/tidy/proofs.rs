//! Check of docs/testing.md: each test program in tests/tests, which runs on real nodes, has a row there, and each row
//! names a test program that exists.

use std::collections::BTreeSet;

use super::Findings;

pub(crate) const PAGE: &str = "docs/testing.md";
/// Heading of the part of docs/testing.md that has a row for each test on nodes.
const PART: &str = "## Real nodes";

/// Names of the test programs in tests/tests.
#[derive(Debug, Default)]
pub(super) struct Programs(BTreeSet<String>);

impl Programs {
    pub(super) fn read(&mut self, name: &str) {
        let program = name.strip_prefix("tests/tests/").and_then(|name| name.strip_suffix(".rs"));
        self.0.extend(program.map(str::to_owned));
    }

    /// Checks that each test program on nodes has a row in docs/testing.md, and that each row names an existing one.
    /// `page`: the text of docs/testing.md.
    pub(super) fn check(&self, page: &str, findings: &mut Findings) {
        let mut find = |text: String| findings.errors.push(format!("{PAGE}: {text}"));
        let part = page.split("\n## ").find(|part| PART.ends_with(part.lines().next().unwrap_or_default()));
        let named: BTreeSet<&str> = part.unwrap_or_default().lines().flat_map(row).collect();
        for program in self.0.iter().filter(|program| !named.contains(program.as_str())) {
            find(format!("{program} has no row under \"{PART}\""));
        }
        for name in named.iter().filter(|name| !self.0.contains(**name)) {
            find(format!("{name} has a row under \"{PART}\", and there is no tests/tests/{name}.rs"));
        }
    }
}

/// Returns the names in the last column of a row such as `| what happens | `test`, `test` |`.
fn row(line: &str) -> Vec<&str> {
    let last = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|')?.rsplit('|').next());
    last.unwrap_or_default().split('`').skip(1).step_by(2).filter(|name| !name.contains(' ')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_on_nodes_has_a_row_and_every_row_a_test() {
        let mut programs = Programs::default();
        for name in ["tests/tests/a_kill.rs", "tests/tests/a_cut.rs", "tests/src/bed.rs", "host/tests/varlink.rs"] {
            programs.read(name);
        }
        let page = |rows: &str| {
            format!("# T\n\n## Before\n\n| `x` | `no_test` |\n\n{PART}\n\n{rows}\n\n## After\n| `no_test` |\n")
        };
        for (rows, expected) in [
            ("| what | test |\n|---|---|\n| kill | `a_kill`, `a_cut` |", vec![]),
            ("| kill | `a_kill` |\n| cut | `a_cut` |", vec![]),
            ("| kill `a_cut` | `a_kill` |", vec!["a_cut has no row"]),
            ("| kill | `a_kill`, `a_cut` |\n| dance | `a_dance` |", vec!["a_dance has a row"]),
            ("| kill | `a_kill`, `a_cut` (beside a real `perilog failed`) |", vec![]),
            ("", vec!["a_cut has no row", "a_kill has no row"]),
        ] {
            let mut findings = Findings::default();
            programs.check(&page(rows), &mut findings);
            assert_eq!(findings.errors.len(), expected.len(), "{rows}: {:?}", findings.errors);
            for (found, expected) in findings.errors.iter().zip(expected) {
                assert!(found.starts_with(&format!("{PAGE}: {expected}")), "{found}");
            }
        }
    }
}
