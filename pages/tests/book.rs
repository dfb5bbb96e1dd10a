//! The commands in the book and beside it are commands: whatever `perilog` a page has typed, or names in passing, its command line knows. What they do is
//! tested where they are run (`tests/tests/book.rs`); many pages show commands that no test can type.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::path::{Path, PathBuf};

/// What only the end of a sentence can leave out: `perilog cancel` names a verb, and not what is to be cancelled.
const LEFT_OUT: [&str; 4] =
    ["MissingRequiredArgument", "MissingSubcommand", "ValueValidation", "DisplayHelpOnMissingArgumentOrSubcommand"];
/// Asked for, and no error.
const SHOWN: [&str; 2] = ["DisplayHelp", "DisplayVersion"];

/// Pages, what is configured by, and examples.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<PathBuf> =
        ["docs", "README.md", "agent/agent.toml.example", "controller/controller.toml.example", "units"]
            .map(|name| root.join(name))
            .into();
    let mut texts = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            texts.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    texts
}

/// Typed at a prompt: `# `, `ctl# `, `n[0-3]# `, with variables of the environment in front or not.
fn typed(line: &str) -> Option<&str> {
    let (prompt, command) = line.trim_start().split_once("# ")?;
    if prompt.contains(char::is_whitespace) {
        return None;
    }
    let at = command.find("perilog ").filter(|at| {
        // Of other commands it is an argument.
        command[..*at].split_whitespace().all(|word| word.contains('='))
    })?;
    // What the shell makes of the rest.
    command[at..].split(['|', ';', '>', '&']).next()?.split("  #").next()
}

/// Named in passing: what stands between two backticks.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("perilog "))
}

/// As a shell would split it.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in command.replace('\'', "\"").replace("$(hostname)", "n0").split('"').enumerate() {
        if at % 2 == 1 { words.push(part.to_owned()) } else { words.extend(part.split_whitespace().map(str::to_owned)) }
    }
    words
}

/// A command in words of usage: `[--ranks ...]` may be left out, of `ok|failed` one is said, `{{ $labels.action }}` is put in by somebody else.
fn said(usage: &str) -> String {
    let word = |word: &str| match word {
        "{{" | "}}" => String::new(),
        _ => word.split('|').next().unwrap_or_default().replace(['[', ']', '$'], "") + " ",
    };
    usage.split(' ').map(word).collect()
}

/// What the command line says against it.
fn against(command: &str) -> Option<(String, String)> {
    let error = perilog::command().try_get_matches_from(words(command)).err()?;
    let kind = match format!("{:?}", error.kind()) {
        kind if kind == "InvalidValue" && error.to_string().contains("none was supplied") => {
            "ValueValidation".to_owned()
        }
        kind => kind,
    };
    (!SHOWN.contains(&kind.as_str())).then(|| (kind, error.to_string()))
}

#[test]
fn every_command_in_the_book_is_one() {
    let (mut wrong, mut seen) = (Vec::new(), [0, 0]);
    for (file, text) in texts() {
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            let mut check = |command: &str, left_out: &[&str]| {
                if let Some((kind, says)) = against(command).filter(|(kind, _)| !left_out.contains(&kind.as_str())) {
                    wrong.push(format!("{file}:{}: {command}: {kind}: {says}", number + 1));
                }
            };
            if let Some(command) = typed(line).filter(|_| fenced && !fence) {
                seen[0] += 1;
                check(command, &[]);
            }
            if !fenced {
                for command in named(line) {
                    seen[1] += 1;
                    check(&said(command), &LEFT_OUT);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen[0] > 60 && seen[1] > 100, "only {seen:?} were found");
}

#[test]
fn what_is_typed_and_what_is_named_is_told_from_text() {
    for (line, command) in [
        ("ctl# perilog ps; echo", Some("perilog ps")),
        ("   # A=1 B=2 perilog hook slurm-prolog; echo $?", Some("perilog hook slurm-prolog")),
        ("n[0-3]# perilog try /x >/dev/null &", Some("perilog try /x ")),
        ("# apt install perilog ", None),
        ("/x # perilog ps", None),
        ("n0: # of perilog", None),
    ] {
        assert_eq!(typed(line), command, "{line}");
    }
    assert_eq!(
        named("`perilog ps` and `x`, then `perilog why NODE`").collect::<Vec<_>>(),
        ["perilog ps", "perilog why NODE"]
    );
    assert_eq!(words("perilog drain n0 \"a b\" 'c d'"), ["perilog", "drain", "n0", "a b", "c d"]);
    assert_eq!(against("perilog frobnicate").unwrap().0, "InvalidSubcommand");
    assert_eq!(against("perilog ps --frob").unwrap().0, "UnknownArgument");
    assert_eq!(against("perilog cancel").unwrap().0, "MissingRequiredArgument");
}
