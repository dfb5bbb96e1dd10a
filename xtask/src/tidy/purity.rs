//! Check that the core is pure: `handle(input, now) -> effects`, and no other activity.

use super::Findings;
use super::rust::{Token, paths, tokens};

pub(super) const PACKAGE: &str = "perilog-core";

/// Words of asynchronous code, which the core must not contain.
const WORDS: [&str; 4] = ["async", "await", "tokio", "futures"];

/// Parts of the standard library that do I/O, start threads, or read clocks or the environment: the core must not use
/// them.
const WORLD: [&str; 10] = [
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::random",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// The one exception: a file, and the path of the standard library that this file may use. `defects.rs` checks that
/// only core's own tests contain the file.
const ASKED: (&str, &str) = (super::defects::CHOSEN, "std::env::var");

pub(super) fn check(name: &str, text: &str, findings: &mut Findings) {
    let tokens = tokens(text);
    let mut find = |line: usize, what: &str| {
        findings.errors.push(format!("{name}:{line}: `{what}`: the core does nothing but decide (ARCHITECTURE.md)"));
    };
    for token in &tokens {
        if let Token { line, text } = token
            && WORDS.contains(&text.as_str())
        {
            find(*line, text);
        }
    }
    for (line, path) in paths(&tokens, "std") {
        let beyond = |world: &str| path == world || path.strip_prefix(world).is_some_and(|rest| rest.starts_with("::"));
        let known = (name, path.as_str()) == ASKED;
        if !known && (WORLD.into_iter().any(beyond) || path == "std::*" || path == "std::time::*") {
            find(line, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_reads_nothing_but_the_defect_of_its_tests() {
        for (name, text, errors) in [
            (super::super::defects::CHOSEN, "std::env::var(X)", 0),
            (super::super::defects::CHOSEN, "std::env::vars(); std::fs::read(X)", 2),
            ("core/src/defect.rs", "std::env::var(X)", 1),
        ] {
            let mut findings = Findings::default();
            check(name, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{name}: {text}: {findings:?}");
        }
    }

    #[test]
    fn what_reaches_out_is_found_wherever_it_hides() {
        let cases = [
            ("use std::time::Duration;\nuse std::collections::{BTreeMap, HashMap};", None),
            (
                "// std::fs\n/* async /* .await */ std::net */\nlet x = \"std::fs\"; let y = \
                 r#\"async \"std::env\" \"#;",
                None,
            ),
            ("let c = '\"'; let d = '\\''; let s: &'static str = \"async\";", None),
            ("let asynchronous = my::std_fs;", None),
            ("fn f() {}\nuse std::fs;", Some("x.rs:2: `std::fs`")),
            ("use std::{fmt, fs::File};", Some("`std::fs::File`")),
            ("use std::{fmt,\n time::{Duration, Instant as Clock}};", Some("x.rs:2: `std::time::Instant`")),
            ("let now = std::time::SystemTime::now();", Some("`std::time::SystemTime::now`")),
            ("use std::time::*;", Some("`std::time::*`")),
            ("let id = ::std::thread::current().id();", Some("`std::thread::current`")),
            ("async fn f() {}", Some("`async`")),
            ("let c = '\"'; x.await", Some("`await`")),
            ("let s = \"\\\"\"; tokio::spawn(f)", Some("`tokio`")),
        ];
        for (text, expected) in cases {
            let mut findings = Findings::default();
            check("x.rs", text, &mut findings);
            match expected {
                None => assert!(findings.errors.is_empty(), "{text}: {:?}", findings.errors),
                Some(expected) => {
                    assert!(findings.errors.iter().any(|error| error.contains(expected)), "{text}: {findings:?}")
                }
            }
        }
    }
}
