//! Check of the words in names: of files, of identifiers, and of the keys, options and variables that a string holds as
//! a whole. None of them has a private word ([`super::words`]).

use anyhow::{Context, Result};

use super::Findings;
use super::rust::{texts, tokens};
use super::words::{WORDS, is_sanctioned};

/// Private words that texts may have, because English has other uses for them, and names may not; each with the words
/// of the field.
const IN_NAMES: [(&str, &str); 46] = [
    ("tell", "notify, report, send"),
    ("tells", "notifies, reports, sends"),
    ("telling", "notice_id, notifying"),
    ("teller", "sender"),
    ("said", "output, message, reported"),
    ("saying", "sending"),
    ("unsaid", "suppressed, not reported"),
    ("hear", "receive"),
    ("hearing", "reader, receiver"),
    ("unheard", "no receiver"),
    ("hearsay", "unconfirmed"),
    ("owe", "pending"),
    ("owed", "pending"),
    ("owing", "pending"),
    ("exhume", "load the tombstone"),
    ("exhumed", "loaded"),
    ("unvouched", "unconfirmed"),
    ("disown", "revoke"),
    ("thaw", "resume"),
    ("thawed", "resumed"),
    ("bereft", "daemon_died"),
    ("bereave", "set_daemon_died"),
    ("thief", "attacker"),
    ("thieves", "attackers"),
    ("stray", "unknown unit"),
    ("strays", "unknown units"),
    ("door", "listener, entry"),
    ("doors", "listeners, entries"),
    ("seat", "connection"),
    ("seats", "connections"),
    ("visitor", "client"),
    ("visitors", "clients"),
    ("happening", "event"),
    ("happenings", "events"),
    ("stir", "wakeup"),
    ("stirs", "wakeups"),
    ("stirred", "woken"),
    ("weigh", "decide, apply, size"),
    ("weighed", "decided, applied"),
    ("stands", "state, delta"),
    ("look", "inspect, check, lookup"),
    ("looked", "inspected, checked"),
    ("looks", "inspections, checks"),
    ("took", "elapsed"),
    ("life", "generation, epoch"),
    ("lives", "generations, epochs; is_alive"),
];

/// Names that may have such a word, each with the reason.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("Visitor", "a trait of serde"),
    ("visitor", "a parameter of serde's Deserializer"),
    ("heard_ms", "the key of the column's rows in stores of earlier versions"),
];

/// Folders and files without this check, each with the reason.
const FOLDERS: [(&str, &str); 2] =
    [("docs/decisions/", "records, as they were written"), ("xtask/src/tidy/identifiers.rs", "the list")];

/// Checks the names of all files of the source, and the names in all Rust files.
pub(super) fn check_all(findings: &mut Findings) -> Result<()> {
    let listed = crate::git::command().args(["ls-files", "-z"]).output().context("git ls-files")?;
    let is_left_out = |name: &str| FOLDERS.iter().any(|(folder, _)| name.starts_with(folder)) || is_sanctioned(name);
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !is_left_out(name)) {
        check_path(name, findings);
        if name.ends_with(".rs") {
            let text =
                std::fs::read_to_string(crate::cargo::root().join(name)).with_context(|| format!("reading {name}"))?;
            check(name, &text, findings);
        }
    }
    Ok(())
}

/// Checks each part of a path.
fn check_path(path: &str, findings: &mut Findings) {
    for part in path.split('/') {
        findings.errors.extend(private(part).map(|why| format!("{path}: the name {part}: {why}")));
    }
}

/// Checks the identifiers of a Rust file, and its strings that are a name as a whole, such as `"last_report_ms"`,
/// `"--drop-hold"` or `"PERILOG_END_RECEIVED"`.
fn check(name: &str, text: &str, findings: &mut Findings) {
    let identifiers = tokens(text).into_iter().map(|token| (token.line, token.text));
    let names = texts(text).into_iter().filter_map(|(line, text)| Some((line, in_quotes(&text)?.to_owned())));
    let mut found: Vec<(usize, String)> = identifiers
        .chain(names)
        .filter_map(|(line, identifier)| Some((line, format!("`{identifier}`: {}", private(&identifier)?))))
        .collect();
    found.sort();
    findings.errors.extend(found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
}

/// Returns the content of a string that is one name; `None`: it is a comment, or another text.
fn in_quotes(text: &str) -> Option<&str> {
    let content = text.strip_prefix('b').unwrap_or(text).strip_prefix('"')?.strip_suffix('"')?;
    let is_name = content.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    (is_name && content.contains(['_', '-'])).then_some(content)
}

/// Returns the private word of a name and the field's words for it; `None`: it has none, or is an exception.
fn private(name: &str) -> Option<String> {
    if EXCEPTIONS.iter().any(|(exception, _)| *exception == name) {
        return None;
    }
    let words = split(name);
    let has = |phrase: &str| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        words.windows(phrase.len()).any(|window| window.iter().eq(&phrase))
    };
    let (word, instead) = WORDS.iter().chain(&IN_NAMES).find(|(phrase, _)| has(phrase))?;
    Some(format!("\"{word}\": the field says: {instead}"))
}

/// Splits a name of any style (`snake_case`, `CamelCase`, `SCREAMING_CASE`, `kebab-case`) into its words, in lower
/// case.
fn split(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (index, letter) in letters.iter().copied().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let ends_capitals =
            before.is_some_and(char::is_uppercase) && letters.get(index + 1).is_some_and(|c| c.is_lowercase());
        if letter.is_uppercase() && (before.is_some_and(|before| !before.is_uppercase()) || ends_capitals) {
            words.push(String::new());
        }
        match letter.is_alphabetic() {
            true => words.last_mut().unwrap_or(&mut String::new()).extend(letter.to_lowercase()),
            false => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        for (name, words) in [
            ("is_told", "is told"),
            ("HeardFrom", "heard from"),
            ("UNTIL_TOLD", "until told"),
            ("--let-go", "let go"),
            ("HTTPHeard2ms", "http heard ms"),
            ("limit_passed_unheard.rs", "limit passed unheard rs"),
            ("unfolded", "unfolded"),
            ("_", ""),
        ] {
            assert_eq!(split(name).join(" "), words, "{name}");
        }
    }

    #[test]
    fn private_words_are_found_in_names() {
        for (text, errors) in [
            ("fn told() {}", 1),
            ("let is_told = HeardFrom::new(UNTIL_TOLD);", 3),
            ("fn a_release_told_twice_is_one() {}", 1),
            ("json!({ \"heard_at\": 1 }); arg(\"--let-go\"); b\"PERILOG_HEARD\"", 3),
            ("fn a_rank_goes_back() {}", 1),
            ("self.looked_up", 1),
            ("fn unfolded_threshold(outlook: Bold) {}", 0),
            ("// told\nsay(\"is told of let-go, HeardFrom\"); say(\"told\")", 0),
            ("impl Visitor for X {} #[serde(alias = \"heard_ms\")]", 0),
        ] {
            let mut findings = Findings::default();
            check("a.rs", text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{text}: {:?}", findings.errors);
        }
    }

    #[test]
    fn names_of_files_are_checked() {
        for (path, errors) in
            [("tests/tests/what_is_told.rs", 1), ("a/stray/heard.md", 2), ("cli/src/verb/hook/pending.rs", 0)]
        {
            let mut findings = Findings::default();
            check_path(path, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{path}: {:?}", findings.errors);
        }
    }
}
