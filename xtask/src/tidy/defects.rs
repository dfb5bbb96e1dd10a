//! Check of the deliberate defects (core/src/defect.rs). Each defect in the table is used in the code, as
//! `defect!(Name)`, and each used one is in the table. Each test that the table names exists. No release build can have
//! a defect. No site is within a rule of the product: a reader sees the rule, and the switch beside it.

use std::collections::BTreeSet;

use super::Findings;
use super::rust::{Token, tokens};

pub(crate) const TABLE: &str = "core/src/defect/table.rs";
const GUARD: &str = "core/src/defect.rs";
/// Source text that refuses the feature `defects` in programs without debug assertions, such as every release build.
const REFUSAL: &str = "#[cfg(all(feature = \"defects\", not(debug_assertions)))]\ncompile_error!(";

/// Source file through which core's own tests learn which deliberate defect is on. It may read an environment variable,
/// as no other file of the core may (`purity.rs`).
pub(super) const CHOSEN: &str = "core/src/defect/chosen.rs";
/// The declaration that keeps the file `chosen.rs` out of every program except tests.
const TESTS_ALONE: &str = "#[cfg(all(test, feature = \"defects\"))]\nmod chosen;";

/// Defects in all source files read so far: those in the table (core/src/defect/table.rs), and those named at sites,
/// the places `defect!(Name)` in the code.
#[derive(Debug, Default)]
pub(super) struct Defects {
    table: BTreeSet<String>,
    sites: BTreeSet<String>,
    /// Each site that is part of an expression, as `file:line: defect`.
    within: Vec<String>,
    /// The text of each `filter: "..."` in the table: a part of the name of a test, or of a file with tests, that must
    /// find the defect.
    filters: BTreeSet<String>,
    /// Names of all source files and functions read so far. Each of `filters` must be a part of one of these names.
    named: BTreeSet<String>,
    guarded: bool,
    asks_in_tests_alone: bool,
}

impl Defects {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        match name {
            GUARD => {
                self.guarded = text.contains(REFUSAL);
                self.asks_in_tests_alone = text.contains(TESTS_ALONE) && text.matches("mod chosen").count() == 1;
            }
            TABLE => {
                self.table = rows(&tokens(text));
                self.filters = text
                    .split("filter: \"")
                    .skip(1)
                    .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
                    .collect();
            }
            _ => {
                let tokens = tokens(text);
                self.sites.extend(sites(&tokens).map(|(_, site)| site.to_owned()));
                // A test has no rule of the product.
                if !name.split('/').any(|part| part == "tests") {
                    self.within.extend(within(&tokens).map(|(line, site)| format!("{name}:{line}: {site}")));
                }
                self.named.extend(functions(&tokens));
                self.named.insert(name.to_owned());
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        let mut find = |text: String| findings.errors.push(text);
        if !self.guarded {
            find(format!("{GUARD}: a build without debug assertions must refuse the feature `defects`"));
        }
        if !self.asks_in_tests_alone {
            find(format!("{GUARD}: {CHOSEN} is for tests with the feature `defects` alone"));
        }
        for defect in self.table.difference(&self.sites) {
            find(format!("{TABLE}: {defect} has no site"));
        }
        for defect in self.sites.difference(&self.table) {
            find(format!("{TABLE}: {defect} has a site and is not in the table"));
        }
        for site in &self.within {
            find(format!(
                "{site} bends an expression: make it the whole condition of an `if` or of a match arm ({GUARD})"
            ));
        }
        for filter in self.filters.iter().filter(|filter| !self.named.iter().any(|name| name.contains(*filter))) {
            find(format!("{TABLE}: no test is called {filter}"));
        }
    }
}

/// Reports each line of a manifest that enables the feature `defects`, by which a release could have a defect.
pub(super) fn check_manifest(name: &str, text: &str, findings: &mut Findings) {
    for line in text.lines().filter(|line| line.contains("defects")) {
        let declares = line.starts_with("defects = [") || line.trim_start().starts_with('#');
        if !declares {
            findings.errors.push(format!("{name}: `{}`: only `cargo xtask mutate` asks for that feature", line.trim()));
        }
    }
}

/// Returns the names in a table of defects as a user types them: `ack-before-commit` for `AckBeforeCommit`.
pub(crate) fn names(table: &str) -> BTreeSet<String> {
    let name = |ident: &String| {
        let parts = ident.split_inclusive(|_: char| true).map(|c| match c.chars().next() {
            Some(c) if c.is_ascii_uppercase() => format!("-{}", c.to_ascii_lowercase()),
            _ => c.to_owned(),
        });
        parts.collect::<String>().trim_start_matches('-').to_owned()
    };
    rows(&tokens(table)).iter().map(name).collect()
}

/// Returns the names of the defects in `table! { ... }`: each `Name: "...",`.
fn rows(tokens: &[Token]) -> BTreeSet<String> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let begin = (0..tokens.len()).find(|at| word(*at) == "table" && word(at + 1) == "!" && word(at + 2) == "{");
    let mut found = BTreeSet::new();
    let mut depth = 0;
    for at in begin.map_or(tokens.len(), |at| at + 2)..tokens.len() {
        match word(at) {
            "{" => depth += 1,
            "}" => depth -= 1,
            name if depth == 1 && word(at + 1) == ":" && (word(at - 1) == "{" || word(at - 1) == ";") => {
                found.insert(name.to_owned());
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Returns all sites `defect!(Name)`: the index of the token `defect`, and the name.
fn sites(tokens: &[Token]) -> impl Iterator<Item = (usize, &str)> {
    let is = |window: &[Token]| window[0].text == "defect" && window[1].text == "!" && window[2].text == "(";
    let windows = tokens.windows(4).enumerate().filter(move |(_, window)| is(window));
    windows.map(|(at, window)| (at, window[3].text.as_str()))
}

/// Returns the line and the name of each site that is part of an expression. The others are of these shapes, each also
/// as `else if`:
///
/// * `if defect!(A) {` and `if !defect!(A) {`, as a statement or as the value of a `let`;
/// * `if defect!(A) && condition {`, where the whole statement belongs to the defect;
/// * a match arm `PATTERN if defect!(A) =>`, or `PATTERN if defect!(A) && condition =>`.
fn within(tokens: &[Token]) -> impl Iterator<Item = (usize, &str)> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let is_whole = move |at: usize| {
        let path = if word(at.wrapping_sub(1)) == "::" { 2 } else { 0 };
        let negated = usize::from(word(at.wrapping_sub(path + 1)) == "!");
        let condition = at.wrapping_sub(path + negated + 1);
        // `=>` and `&&` are two tokens each.
        let is_arm_or_narrowed = matches!([word(at + 5), word(at + 6)], ["=", ">"] | ["&", "&"]) && negated == 0;
        let begins = matches!(word(condition.wrapping_sub(1)), "{" | "}" | ";" | "else" | "=");
        word(condition) == "if" && (is_arm_or_narrowed || word(at + 5) == "{" && begins)
    };
    sites(tokens).filter(move |(at, _)| !is_whole(*at)).map(|(at, site)| (tokens[at].line, site))
}

/// Returns the names of all functions that the tokens of a source file define.
fn functions(tokens: &[Token]) -> impl Iterator<Item = String> {
    tokens.windows(2).filter(|window| window[0].text == "fn").map(|window| window[1].text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let mut defects = Defects::default();
        files.iter().for_each(|(name, text)| defects.read(name, text));
        let mut findings = Findings::default();
        defects.check(&mut findings);
        findings.errors
    }

    #[test]
    fn table_and_sites_are_one_and_a_release_refuses_both() {
        let guard = format!("{REFUSAL}\"no\");\n{TESTS_ALONE}\n");
        let anywhere = format!("{REFUSAL}\"no\");\nmod chosen;\n");
        let unrefused = format!("{TESTS_ALONE}\n");
        let table = "enum X { A: b }\ntable! {\n A: \"a\", \"b\", Hunt::S;\n\
                     \x20B: \"c: d\", \"e\", Hunt::U { program: \"f\", filter: \"g\" };\n}\n";
        let site = "fn a_g() {} if defect!(A) { } // defect!(C)\nlet s = \"defect!(D)\"; if !crate::defect!(B) { }";
        assert_eq!(errors(&[(GUARD, &guard), (TABLE, table), ("a.rs", site)]), Vec::<String>::new());
        for (files, expected) in [
            ([(GUARD, unrefused.as_str()), (TABLE, table), ("a.rs", site)], "must refuse"),
            ([(GUARD, anywhere.as_str()), (TABLE, table), ("a.rs", site)], "for tests"),
            ([(GUARD, guard.as_str()), (TABLE, table), ("a.rs", "fn g() { if defect!(A) { } }")], "B has no site"),
            ([(GUARD, guard.as_str()), (TABLE, "table! { A: 1; }"), ("a.rs", site)], "B has a site"),
            (
                [(GUARD, guard.as_str()), (TABLE, &table.replace("\"g\"", "\"h\"")), ("a.rs", site)],
                "no test is called h",
            ),
        ] {
            let errors = errors(&files);
            assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
        }
    }

    #[test]
    fn a_site_is_a_whole_condition() {
        for (text, whole) in [
            ("; if defect!(A) { return; }", true),
            ("; if !core::defect!(A) { f(); }", true),
            ("} else if !defect!(A) { f(); }", true),
            ("; if defect!(A) { } else if x { f(); }", true),
            ("let x = if defect!(A) { 0 } else { x };", true),
            ("; if defect!(A) && x { return; }", true),
            ("match x { Some(_) if defect!(A) => 0, None if defect!(A) && y => 1, _ => 2 }", true),
            ("; if x && !defect!(A) { f(); }", false),
            ("; if !defect!(A) && x { f(); }", false),
            ("; if x || defect!(A) { f(); }", false),
            ("; if defect!(A) || x { f(); }", false),
            ("match x { Some(_) if !defect!(A) => 0, _ => 2 }", false),
            ("match x { Some(_) if y && defect!(A) => 0, _ => 2 }", false),
            ("x.filter(|_| !defect!(A));", false),
            ("f(if defect!(A) { 0 } else { x });", false),
            ("Row { x: if defect!(A) { 0 } else { x } }", false),
            ("|x| if defect!(A) { 0 } else { x };", false),
            ("let x = !defect!(A);", false),
        ] {
            let found: Vec<String> = within(&tokens(text)).map(|(line, site)| format!("{line} {site}")).collect();
            assert_eq!(found.is_empty(), whole, "{text}: {found:?}");
            let mut defects = Defects::default();
            defects.read("core/src/tests/a.rs", text);
            assert_eq!(defects.within, Vec::<String>::new());
            defects.read("core/src/a.rs", text);
            assert_eq!(defects.within.is_empty(), whole, "{text}");
        }
    }

    #[test]
    fn nothing_asks_for_defects_by_itself() {
        for (text, clean) in [
            ("[features]\n# defects\ndefects = [\"perilog-core/defects\"]", true),
            ("default = [\"defects\"]", false),
            ("perilog-core = { path = \"../core\", features = [\"defects\"] }", false),
        ] {
            let mut findings = Findings::default();
            check_manifest("Cargo.toml", text, &mut findings);
            assert_eq!(findings.errors.is_empty(), clean, "{text}");
        }
    }
}
