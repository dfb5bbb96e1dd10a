//! Check of the words in comments, strings and pages: the field has a word for each idea of perilog (docs/glossary.md),
//! and a reader knows it. A private word for the same idea has to be learned first.

use anyhow::{Context, Result};

use super::Findings;
use super::rust::texts;

/// Private words and phrases, each with the words of the field. A space stands for any white space, also for the end of
/// a line.
pub(super) const WORDS: [(&str, &str); 32] = [
    ("told", "notified, reported, sent"),
    ("untold", "not reported, pending"),
    ("heard", "received, acknowledged"),
    ("hears", "gets, is notified of"),
    ("put back", "restored"),
    ("puts back", "restores"),
    ("go back", "are released"),
    ("goes back", "is released"),
    ("went back", "was released"),
    ("given back", "released"),
    ("gives back", "releases"),
    ("let go", "dropped, released"),
    ("lets go", "drops, releases"),
    ("owes", "has pending work"),
    ("lost life", "lost epoch"),
    ("obey", "accept"),
    ("obeys", "accepts"),
    ("obeyed", "accepted"),
    ("bury", "write the tombstone"),
    ("buries", "writes the tombstone"),
    ("buried", "has a tombstone"),
    ("but for", "except"),
    ("in the place of", "instead of"),
    ("of yesterday", "yesterday's"),
    ("likewise", "also"),
    ("by hand", "manually, by an operator"),
    ("whoever", "the caller, anyone who"),
    ("somebody", "an operator, a client, a user"),
    ("any more", "no longer"),
    ("vouch", "confirm"),
    ("vouched", "confirmed"),
    ("disowned", "revoked"),
];

/// Files that may have a word of the list, each with the reason. A name that ends with `/` is a folder.
const SANCTIONED: [(&str, &str); 12] = [
    ("CHANGELOG.md", "names what earlier versions had"),
    ("controller/src/store/schema.rs", "columns of earlier versions"),
    ("controller/src/store/tests.rs", "columns of earlier versions"),
    ("controller/src/store/tests/", "columns of earlier versions, and stores that they wrote"),
    ("docs/SUMMARY.md", "titles of the records of decisions"),
    ("docs/decisions/", "records, as they were written"),
    ("docs/requests.md", "a record of what others asked for"),
    ("schema/frozen/", "interfaces of releases, as they were"),
    ("tests/disk/tests/power/migration.rs", "columns of earlier versions"),
    ("proto/tests/common/samples.rs", "samples, whose bytes are in proto/golden/"),
    ("xtask/src/tidy/identifiers.rs", "the list for names"),
    ("xtask/src/tidy/words.rs", "the list"),
];

/// Endings of the names of the files that people read.
const KINDS: [&str; 13] =
    ["rs", "md", "varlink", "toml", "example", "service", "timer", "socket", "html", "js", "py", "txt", "yml"];

/// Checks all files of the source.
pub(super) fn check_all(findings: &mut Findings) -> Result<()> {
    let listed = crate::git::command().args(["ls-files", "-z"]).output().context("git ls-files")?;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| is_read(name)) {
        let text =
            std::fs::read_to_string(crate::cargo::root().join(name)).with_context(|| format!("reading {name}"))?;
        check(name, &text, findings);
    }
    Ok(())
}

/// Returns `true` for a file that people read and that has no exception.
fn is_read(name: &str) -> bool {
    KINDS.iter().any(|kind| name.rsplit_once('.').is_some_and(|(_, ending)| ending == *kind)) && !is_sanctioned(name)
}

/// Returns `true` for a file that may have the words of the list.
pub(super) fn is_sanctioned(name: &str) -> bool {
    SANCTIONED.iter().any(|(file, _)| name == *file || file.ends_with('/') && name.starts_with(file))
}

/// Checks one file: the comments and strings of a Rust file, the whole text of any other.
pub(super) fn check(name: &str, text: &str, findings: &mut Findings) {
    let texts = if name.ends_with(".rs") { texts(text) } else { vec![(1, text.to_owned())] };
    for (line, text) in texts {
        let lower = text.to_lowercase();
        for (word, instead) in WORDS {
            for at in places(&lower, word) {
                let line = line + lower[..at].matches('\n').count();
                findings.errors.push(format!("{name}:{line}: \"{word}\": the field says: {instead}"));
            }
        }
    }
}

/// Returns where `phrase` begins in `text`, as whole words with white space or marks of a comment between them.
fn places(text: &str, phrase: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let (first, rest) = phrase.split_once(' ').map_or((phrase, ""), |(first, rest)| (first, rest));
    for (at, _) in text.match_indices(first) {
        let mut after = &text[at + first.len()..];
        let starts = !text[..at].ends_with(is_of_word);
        let follows = rest.split_whitespace().all(|word| {
            let gap = after.trim_start_matches([' ', '\n', '/', '!', '#', '\\', '*']);
            let is_there = gap.len() < after.len() && gap.starts_with(word);
            after = gap.strip_prefix(word).unwrap_or(gap);
            is_there
        });
        if starts && follows && !after.starts_with(is_of_word) {
            found.push(at);
        }
    }
    found
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_words_are_found_in_texts_and_pages() {
        let found = |name: &str, text: &str| {
            let mut findings = Findings::default();
            check(name, text, &mut findings);
            findings.errors
        };
        for (word, instead) in WORDS {
            let error = |line: u32| vec![format!("a.rs:{line}: \"{word}\": the field says: {instead}")];
            assert_eq!(found("a.rs", &format!("let x = 1;\n// Say {word} here.\n")), error(2), "{word}");
            assert_eq!(found("a.rs", &format!("say(\"{word}\");")), error(1), "{word}");
            assert_eq!(found("a.rs", &format!("say(r#\"\n{word}\"#);")), error(2), "{word}");
            assert_eq!(found("a.md", &format!("# Page\n{word}\n")).len(), 1, "{word}");
        }
        for (name, text, count) in [
            ("a.rs", "/// A rank is put\n/// back.", 1),
            ("a.rs", "\"a rank is put \\\n   back\"", 1),
            ("a.rs", "fn told() {}", 0),
            ("a.rs", "// The option `--let-go`, and the event job-let-go.", 0),
            ("a.rs", "// Said `is_told`, unfoldable.", 0),
            ("a.md", "A Store that was Put\nback.", 1),
            ("a.md", "An output goes, back then.", 0),
        ] {
            assert_eq!(found(name, text).len(), count, "{text}: {:?}", found(name, text));
        }
    }

    #[test]
    fn files_that_people_read_are_checked() {
        for (name, expect) in [
            ("core/src/lib.rs", true),
            ("docs/api.md", true),
            ("docs/decisions/0001-x.md", false),
            ("controller/src/store/tests/steps.rs", false),
            ("sim/regressions/x.json", false),
            ("LICENSE", false),
        ] {
            assert_eq!(is_read(name), expect, "{name}");
        }
    }
}
