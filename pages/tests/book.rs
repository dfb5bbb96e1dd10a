//! Commands in the book and beside it: perilog's command line accepts every `perilog` command on a page. Their effects
//! are tested where they run (`tests/tests/book.rs`); many pages show commands that no test can type.
//!
//! A hostlist with brackets is a pattern to a shell. So each page quotes it, and no page creates a file that such a
//! pattern would match.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::path::{Path, PathBuf};

/// Kinds of clap's errors that the test allows for a command in a sentence. A sentence may name a verb without its
/// arguments, such as `perilog cancel`.
const LEFT_OUT: [&str; 4] =
    ["MissingRequiredArgument", "MissingSubcommand", "ValueValidation", "DisplayHelpOnMissingArgumentOrSubcommand"];
/// Results of clap that are no errors: the command asks for help or the version.
const SHOWN: [&str; 2] = ["DisplayHelp", "DisplayVersion"];

/// Returns the name and text of each file to check: README, the book, manual texts, example configurations and units.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<PathBuf> =
        ["docs", "README.md", "pages/text", "agent/agent.toml.example", "controller/controller.toml.example", "units"]
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

/// Returns the `perilog` command after the prompt of a line: `# `, `ctl# `, `n[0-3]# `. Variables before the command
/// (`NAME=value`) are left out. `None`: the line has no prompt, or another command.
fn typed(line: &str) -> Option<&str> {
    let (prompt, command) = line.trim_start().split_once("# ")?;
    if prompt.contains(char::is_whitespace) {
        return None;
    }
    let at = command.find("perilog ").filter(|at| {
        // After another command, the word is an argument.
        command[..*at].split_whitespace().all(|word| word.contains('='))
    })?;
    // The shell handles the rest.
    command[at..].split(['|', ';', '>', '&']).next()?.split("  #").next()
}

/// Returns each `perilog` command that the line names between two backticks.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("perilog "))
}

/// Splits a command into words, as a shell would.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in command.replace('\'', "\"").replace("$(hostname)", "n0").split('"').enumerate() {
        if at % 2 == 1 { words.push(part.to_owned()) } else { words.extend(part.split_whitespace().map(str::to_owned)) }
    }
    words
}

/// Turns a line of usage into a command that the parser can check. Keeps optional parts (`[--ranks ...]`) without their
/// brackets, takes the first of each choice (`ok|failed`), and replaces `{{ $labels.action }}` by `labels.action`.
fn example(usage: &str) -> String {
    let word = |word: &str| match word {
        "{{" | "}}" => String::new(),
        _ => word.split('|').next().unwrap_or_default().replace(['[', ']', '$'], "") + " ",
    };
    usage.split(' ').map(word).collect()
}

/// Returns the kind and text of the error with which perilog's command line refuses the command. `None` if it accepts
/// the command, or shows help or the version.
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

/// Returns the first hostlist with brackets outside of quotes, such as `n[0-3]`.
fn bare_hostlist(text: &str) -> Option<&str> {
    let mut open: Option<char> = None;
    for (at, c) in text.char_indices() {
        match (c, open) {
            ('"' | '\'', None) => open = Some(c),
            (c, Some(quote)) if c == quote => open = None,
            ('[', None) => {
                let list = text[at + 1..].split(']').next().unwrap_or_default();
                let ranges = list.starts_with(|c: char| c.is_ascii_digit())
                    && list.chars().all(|c| c.is_ascii_digit() || ",-".contains(c));
                let name = text[..at].rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |before| before + 1);
                if ranges && name < at {
                    return Some(&text[name..at + list.len() + 2]);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the command after the prompt (`# ` or `$ `) of a line, without the comment at the end; `None`: no prompt.
fn command_line(line: &str) -> Option<&str> {
    let (prompt, command) = line.trim_start().split_once("# ").or_else(|| line.trim_start().split_once("$ "))?;
    (!prompt.contains(char::is_whitespace)).then(|| command.split("  #").next().unwrap_or_default())
}

/// Is `name` a node's name in the book, such as `n0`?
fn is_a_nodes_name(name: &str) -> bool {
    name.strip_prefix('n').is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[test]
fn every_hostlist_is_quoted_and_no_file_is_called_like_a_node() {
    let (mut wrong, mut quoted) = (Vec::new(), 0);
    let mut check = |place: &str, command: &str| {
        quoted += usize::from(command.contains("]\"") && bare_hostlist(&command.replace('"', "")).is_some());
        wrong.extend(bare_hostlist(command).map(|list| format!("{place}: {list} is not quoted: {command}")));
        let mut words = command.split_whitespace();
        let makes = words.any(|word| word == "--out" || word == "mkdir").then(|| words.next()).flatten();
        wrong.extend(
            makes.filter(|path| is_a_nodes_name(path)).map(|_| format!("{place}: n[0-3] matches that: {command}")),
        );
    };
    for (file, text) in texts() {
        let mut block: Option<&str> = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{file}:{}", number + 1);
            match (line.trim_start().strip_prefix("```"), block) {
                (Some(kind), None) => block = Some(kind.trim()),
                (Some(_), Some(_)) => block = None,
                (None, Some("console")) => command_line(line).into_iter().for_each(|command| check(&place, command)),
                // Pages of the manual show commands without a prompt.
                (None, Some("")) => Some(line)
                    .filter(|line| line.starts_with("perilog "))
                    .into_iter()
                    .for_each(|command| check(&place, command)),
                (None, Some(_)) => {}
                (None, None) => named(line).for_each(|command| check(&place, command)),
            }
        }
    }
    let mut open = vec![perilog::command()];
    while let Some(mut command) = open.pop() {
        // In prose ' is no quote.
        let help = command.render_long_help().to_string().replace('\'', " ");
        check(&format!("perilog {} --help", command.get_name()), &help);
        open.extend(command.get_subcommands().cloned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(quoted > 10, "only {quoted} were found");
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
                if let Some((kind, why)) = against(command).filter(|(kind, _)| !left_out.contains(&kind.as_str())) {
                    wrong.push(format!("{file}:{}: {command}: {kind}: {why}", number + 1));
                }
            };
            if let Some(command) = typed(line).filter(|_| fenced && !fence) {
                seen[0] += 1;
                check(command, &[]);
            }
            if !fenced {
                for command in named(line) {
                    seen[1] += 1;
                    check(&example(command), &LEFT_OUT);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen[0] > 60 && seen[1] > 100, "only {seen:?} were found");
}

#[test]
fn what_is_typed_and_what_is_named_is_distinguished_from_text() {
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
    for (command, list) in [
        ("perilog nodes n[0-3]", Some("n[0-3]")),
        ("x \"y\" cn7[0-3,9] 'z'", Some("cn7[0-3,9]")),
        ("perilog nodes \"n[0-3]\"", None),
        ("perilog nodes 'n[0-3]' [--quiet]", None),
        ("dnf install ./perilog-[0-9]*.rpm", None),
    ] {
        assert_eq!(bare_hostlist(command), list, "{command}");
    }
    assert_eq!(command_line("n[0-3]# apt install x  # why"), Some("apt install x"));
    assert_eq!(words("perilog drain n0 \"a b\" 'c d'"), ["perilog", "drain", "n0", "a b", "c d"]);
    assert_eq!(against("perilog frobnicate").unwrap().0, "InvalidSubcommand");
    assert_eq!(against("perilog ps --frob").unwrap().0, "UnknownArgument");
    assert_eq!(against("perilog cancel").unwrap().0, "MissingRequiredArgument");
}
