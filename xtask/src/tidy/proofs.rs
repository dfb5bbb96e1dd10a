//! Check of docs/testing.md: each module of the tests on real nodes (a file of tests/tests) has a row there, and each
//! row names a module that exists. Each of these files is a module of the tests' program.

use std::collections::BTreeSet;

use super::Findings;

pub(crate) const PAGE: &str = "docs/testing.md";
/// Heading of the part of docs/testing.md that has a row for each test on nodes.
const PART: &str = "## Real nodes";
/// The program of the tests on nodes, which names its modules.
const PROGRAM: &str = "tests/tests/nodes.rs";

/// Modules of the tests on nodes.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Names of the files beside the program.
    files: BTreeSet<String>,
    /// Names of the modules that the program names.
    named: BTreeSet<String>,
}

impl Modules {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        if name == PROGRAM {
            let module = |line: &str| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned());
            self.named.extend(text.lines().filter_map(module));
            return;
        }
        let file = name.strip_prefix("tests/tests/").and_then(|name| name.strip_suffix(".rs"));
        self.files.extend(file.map(str::to_owned));
    }

    /// Checks that the program of the tests on nodes names each of its files, that each has a row in docs/testing.md,
    /// and that each row names an existing one. `page`: the text of docs/testing.md.
    pub(super) fn check(&self, page: &str, findings: &mut Findings) {
        for file in self.files.difference(&self.named) {
            findings.errors.push(format!("{PROGRAM}: lacks `mod {file};`, so that none of its tests runs"));
        }
        let mut find = |text: String| findings.errors.push(format!("{PAGE}: {text}"));
        let part = page.split("\n## ").find(|part| PART.ends_with(part.lines().next().unwrap_or_default()));
        let rows: BTreeSet<&str> = part.unwrap_or_default().lines().flat_map(row).collect();
        for file in self.files.iter().filter(|file| !rows.contains(file.as_str())) {
            find(format!("{file} has no row under \"{PART}\""));
        }
        for name in rows.iter().filter(|name| !self.files.contains(**name)) {
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
        let mut modules = Modules::default();
        for name in ["tests/tests/a_kill.rs", "tests/tests/a_cut.rs", "tests/src/bed.rs", "host/tests/varlink.rs"] {
            modules.read(name, "mod unnamed;");
        }
        modules.read(PROGRAM, "//! mod x\nmod a_cut;\nmod a_kill;\n");
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
            modules.check(&page(rows), &mut findings);
            assert_eq!(findings.errors.len(), expected.len(), "{rows}: {:?}", findings.errors);
            for (found, expected) in findings.errors.iter().zip(expected) {
                assert!(found.starts_with(&format!("{PAGE}: {expected}")), "{found}");
            }
        }
    }

    #[test]
    fn a_file_that_is_no_module_is_found() {
        let mut modules = Modules::default();
        modules.read("tests/tests/a_kill.rs", "");
        modules.read("tests/tests/a_cut.rs", "");
        modules.read(PROGRAM, "mod a_cut;\n");
        let mut findings = Findings::default();
        modules.check(&format!("{PART}\n| kill | `a_kill`, `a_cut` |\n"), &mut findings);
        assert_eq!(findings.errors, [format!("{PROGRAM}: lacks `mod a_kill;`, so that none of its tests runs")]);
    }
}
