//! Check of the security model (docs/security.md): every row of "What cannot be done" names a test, which is to attempt
//! the attack of that row, and each test that any table names exists.

use super::Findings;
use super::requests::Tests;

pub(crate) const PAGE: &str = "docs/security.md";
/// Heading of the part of docs/security.md that lists what cannot be done, with tests.
const PART: &str = "## What cannot be done";

/// Checks that each row of docs/security.md names a test, and that the test exists. `page`: the text of that page.
pub(super) fn check(page: &str, tests: &Tests, findings: &mut Findings) {
    let part = page.split("\n## ").find(|part| PART.ends_with(part.lines().next().unwrap_or_default()));
    let mut rows = 0;
    for (cannot, named) in part.unwrap_or_default().lines().filter_map(row) {
        rows += 1;
        let mut find = |text: String| findings.errors.push(format!("{PAGE}: \"{cannot}\" {text}"));
        if named.is_empty() {
            find("names no test".to_owned());
        }
        for name in named.into_iter().filter(|name| !tests.has(name)) {
            find(format!("names {name}, and there is no such test"));
        }
    }
    for (first, named) in page.split("\n\n").filter(|table| has_tests(table)).flat_map(str::lines).filter_map(row) {
        for name in named.into_iter().filter(|name| name.contains('_') && !tests.has(name)) {
            findings.errors.push(format!("{PAGE}: \"{first}\" names {name}, and there is no such test"));
        }
    }
    if rows == 0 {
        findings.errors.push(format!("{PAGE}: no rows under \"{PART}\""));
    }
}

/// Returns `true` for a table whose last column is `test`.
fn has_tests(table: &str) -> bool {
    let head = table.lines().find(|line| line.starts_with('|')).unwrap_or_default();
    head.trim_end().ends_with("| test |") && !head.starts_with("| cannot |")
}

/// Returns the first cell and the test names of a row such as `| cannot | why | `test`, `test` |`. `None`: the table's
/// head, or no row.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let (first, rest) = line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split_once('|')?;
    let first = first.trim();
    let is_row = first != "cannot" && first.bytes().any(|byte| byte != b'-');
    let last = rest.rsplit('|').next().unwrap_or_default();
    is_row.then(|| (first, last.split('`').skip(1).step_by(2).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cannot_has_a_test() {
        let mut known = Tests::default();
        known.read("core/src/x.rs", "#[test]\nfn there() {}");
        known.read("tests/tests/program.rs", "#[test]\nfn inside() {}");
        let head = "| cannot | why | test |\n|---|---|---|\n";
        let page = |rows: &str| {
            format!("# S\n\n## Doors\n| x | `no` |\n\n{PART}\n\n### A\n{head}{rows}\n\n## After\n| x | y | `no` |\n")
        };
        let mut findings = Findings::default();
        let entry = "| door | test |\n|---|---|\n| in | `was_here` |\n\n";
        check(&format!("# S\n\n{entry}{}", page("| fly | no | `there` |")), &known, &mut findings);
        assert_eq!(findings.errors, ["docs/security.md: \"in\" names was_here, and there is no such test"]);
        for (rows, expected) in [
            ("| fly | no wings | `there`, `program` |", ""),
            ("| fly `high` | no wings | `there` |\n| swim | - | manual |", "\"swim\" names no test"),
            ("| fly | no `there` | `gone` |", "\"fly\" names gone, and there is no such test"),
            ("", "no rows under"),
        ] {
            let mut findings = Findings::default();
            check(&page(rows), &known, &mut findings);
            assert_eq!(findings.errors.is_empty(), expected.is_empty(), "{rows}: {:?}", findings.errors);
            assert!(findings.errors.iter().all(|error| error.contains(expected)), "{:?}", findings.errors);
        }
    }
}
