//! Check of docs/requests.md, which lists what users asked for in three issues of flux-core, point by point: each point
//! has a row, and each row names existing tests, except those of points that only a resource manager can satisfy.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::rust::{Token, tokens};

pub(crate) const PAGE: &str = "docs/requests.md";
/// Letter of each of the three issues in docs/requests.md, and the number of points.
const POINTS: [(char, u32); 3] = [('A', 31), ('B', 16), ('C', 32)];
/// Points of docs/requests.md that only a resource manager can satisfy: their rows may have prose instead of a test.
const PROSE: [&str; 8] = ["A5", "A14", "A28", "C4", "C10", "C11", "C12", "C24"];

/// Names of all tests in the files read so far.
#[derive(Debug, Default)]
pub(super) struct Tests(BTreeSet<String>);

impl Tests {
    /// Records the names of the tests in the source file `name`. If the file is a program of tests on real nodes,
    /// records the program's name, too.
    pub(super) fn read(&mut self, name: &str, text: &str) {
        let tests = tests(&tokens(text));
        let program = name.strip_prefix("tests/tests/").and_then(|name| name.strip_suffix(".rs"));
        self.0.extend(program.filter(|_| !tests.is_empty()).map(str::to_owned));
        self.0.extend(tests);
    }

    /// Returns `true` if `name` is the name of a test, or of a program of tests on real nodes.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Checks that docs/requests.md has exactly one row for each point that users asked for (such as A1), and that each
    /// test named in a row exists. `page`: the text of docs/requests.md.
    pub(super) fn check(&self, page: &str, findings: &mut Findings) {
        let mut find = |text: String| findings.errors.push(format!("{PAGE}: {text}"));
        let mut seen = BTreeMap::<&str, u32>::new();
        for (point, named) in page.lines().filter_map(row) {
            *seen.entry(point).or_default() += 1;
            if named.is_empty() && !PROSE.contains(&point) {
                find(format!("{point} names no test"));
            }
            for name in named.iter().filter(|name| !self.0.contains(**name)) {
                find(format!("{point} names {name}, and there is no such test"));
            }
        }
        let points = POINTS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")));
        for point in points {
            match seen.get(point.as_str()) {
                None => find(format!("{point} has no row")),
                Some(1) => {}
                Some(_) => find(format!("{point} has more than one row")),
            }
        }
    }
}

/// Returns the point and the test names of a row such as `| A1 | ... | `test`, `test` |`; the names are in the last
/// column. `None`: no such row.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect();
    let (point, last) = (*cells.first()?, *cells.last()?);
    let number = point.strip_prefix(['A', 'B', 'C'])?;
    let is_point = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let names = last.split('`').skip(1).step_by(2);
    is_point.then(|| (point, names.collect()))
}

/// Returns the names of all functions marked `#[test]` or `#[tokio::test]`, without ignored ones.
fn tests(tokens: &[Token]) -> BTreeSet<String> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for at in 0..tokens.len() {
        match word(at) {
            "test" if word(at + 1) == "]" || word(at + 1) == "(" => is_test = true,
            "ignore" if word(at.wrapping_sub(1)) == "[" => is_test = false,
            "fn" if std::mem::take(&mut is_test) => drop(found.insert(word(at + 1).to_owned())),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(change: impl Fn(&str) -> Option<String>) -> String {
        let points = POINTS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")));
        let row = |point: String| change(&point).unwrap_or_else(|| format!("| {point} | text | `there`, `too` |"));
        points.map(row).collect::<Vec<_>>().join("\n")
    }

    fn errors(page: &str) -> Vec<String> {
        let mut known = Tests::default();
        known.read(
            "core/src/x.rs",
            "#[test]\nfn there() {}\n#[tokio::test(flavor = \"x\")]\n#[allow(x)]\nasync fn too() {} fn helper() {}",
        );
        known.read("core/src/y.rs", "#[test]\n#[ignore = \"a child\"]\nfn child() {}");
        known.read("tests/tests/program.rs", "#[test]\nfn inside() {}");
        known.read("tests/tests/helper.rs", "fn inside() {}");
        let mut findings = Findings::default();
        known.check(page, &mut findings);
        findings.errors
    }

    #[test]
    fn every_point_has_one_row_and_tests_that_exist() {
        assert_eq!(errors(&page(|_| None)), Vec::<String>::new());
        let change = |of: &'static str, to: &'static str| page(move |p| (p == of).then(|| to.to_owned()));
        // Points for a resource manager may be answered in prose.
        assert_eq!(errors(&change("A5", "| A5 | text | - |")), Vec::<String>::new());
        for (of, to, expected) in [
            ("B7", "", "B7 has no row"),
            ("C9", "| C9 | text | `there` |\n| C9 | text | `there` |", "C9 has more than one row"),
            ("A1", "| A1 | text | `program`, `helper` |", "A1 names helper, and there is no such test"),
            ("A1", "| A1 | text | manual |", "A1 names no test"),
            ("A1", "| A1 | `there` | `helper` |", "A1 names helper, and there is no such test"),
            ("A1", "| A1 | text | `child` |", "A1 names child, and there is no such test"),
        ] {
            let errors = errors(&change(of, to));
            assert!(errors.len() == 1 && errors[0].ends_with(expected), "{errors:?}");
        }
    }
}
