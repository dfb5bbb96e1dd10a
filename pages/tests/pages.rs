//! Tests of the manual pages and the other installed pages, as a reader gets them. They are complete, their programs
//! accept the examples, and neither mandoc nor groff complains about the pages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use perilog_pages::page::{Block, Page};

fn page(file: &str) -> Page {
    perilog_pages::pages().unwrap().into_iter().find(|page| page.file() == file).unwrap()
}

/// Returns the terms that the page explains, such as keys or options, without backticks and asterisks.
fn terms(page: &Page) -> Vec<String> {
    let blocks = page.sections.iter().flat_map(|(_, blocks)| blocks);
    let tags = blocks.filter_map(|block| if let Block::Tagged(tags, _) = block { Some(tags) } else { None });
    tags.flatten().map(|tag| tag.replace(['`', '*'], "")).collect()
}

/// Asserts that the example file explains each key that the program knows, or a key below it (`env` has keys that a
/// site chooses). Asserts that the manual page `file` has an entry for each explained key, except keys
/// within `retries`.
fn assert_explained(file: &str, known: &[String], explained: &[String]) {
    assert!(known.len() >= 5, "{known:?}");
    let is_there = |key: &&String| explained.iter().any(|there| there == *key || there.starts_with(&format!("{key}.")));
    let missing: Vec<_> = known.iter().filter(|key| !is_there(key)).collect();
    assert!(
        missing.is_empty(),
        "{file}: the program takes these keys, and its example, which is its page, does not explain them: {missing:?}"
    );
    let terms = terms(&page(file));
    for key in known.iter().filter(|key| explained.contains(key) && !key.contains("retries.")) {
        let name = key.rsplit('.').next().unwrap_or_default();
        assert!(terms.iter().any(|term| term.starts_with(&format!("{name} = "))), "{file}: no term for {key}");
    }
}

#[test]
fn every_key_that_the_agent_takes_is_on_its_page() {
    let known = perilog_host::config::keys::<perilog_agent::config::Config>();
    assert_explained("perilog-agent.toml.5", &known, &perilog_pages::agent_example().unwrap().keys());
}

#[test]
fn every_key_that_the_controller_takes_is_on_its_page() {
    let known = perilog_host::config::keys::<perilog_controller::config::Config>();
    assert_explained("perilog-controller.toml.5", &known, &perilog_pages::controller_example().unwrap().keys());
}

#[test]
fn every_key_that_the_edge_takes_is_on_its_page() {
    let known = perilog_host::config::keys::<perilog_flux::config::Config>();
    assert_explained("perilog-edge.toml.5", &known, &perilog_pages::edge_example().unwrap().keys());
}

#[test]
fn every_event_is_on_its_page() {
    let terms = terms(&page("perilog-events.7"));
    for event in perilog_core::milestone::EVENTS {
        assert!(terms.iter().any(|term| term == event), "perilog-events(7) says nothing of {event}");
    }
}

/// Collects the journal names of all fields that the daemon's sources in this directory log.
fn names_in(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for level in ["trace", "debug", "info", "warn", "error"] {
                for call in text.split(&format!("tracing::{level}!(")).skip(1) {
                    // The part before the text: `%error, uid = peer.uid, job`.
                    let before = call.split('"').next().unwrap_or_default();
                    let names = before.split(',').map(|field| field.split('=').next().unwrap_or_default().trim());
                    let names = names.map(|name| name.trim_start_matches(['%', '?'])).filter(|name| !name.is_empty());
                    found.extend(names.map(|name| format!("PERILOG_{}", name.to_uppercase())));
                }
            }
        }
    }
}

#[test]
fn every_journal_field_is_documented_on_the_daemons_pages() {
    let fields = perilog_pages::journal::fields();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (daemon, file) in [("agent", "perilog-agent.8"), ("controller", "perilog-controller.8")] {
        let mut printed = BTreeSet::new();
        names_in(&root.join(daemon).join("src"), &mut printed);
        let own = printed.len();
        names_in(&root.join("host/src"), &mut printed);
        assert!(own >= 3, "{daemon}: {printed:?}");
        let terms = terms(&page(file));
        let here = |name: &str| fields.iter().any(|field| field.name == name && field.of.contains(&daemon));
        for name in &printed {
            assert!(here(name), "docs/operate.md: no {name} of the {daemon}");
            assert!(terms.contains(name), "{file}: no {name}");
        }
        for field in fields.iter().filter(|field| field.of.contains(&daemon) && field.name.starts_with("PERILOG_")) {
            assert!(printed.contains(field.name), "docs/operate.md: no line of the {daemon} has {}", field.name);
        }
    }
}

#[test]
fn every_verb_has_a_page_with_examples_that_it_understands() {
    let pages = perilog_pages::pages().unwrap();
    let mut parsed = 0;
    let root = perilog::command();
    for verb in root.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let file = format!("{}.1", perilog_pages::cli::page_name(&root, verb));
        let page = pages.iter().find(|page| page.file() == file).unwrap_or_else(|| panic!("no {file}"));
        for title in ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            let section = page.sections.iter().find(|(there, _)| there == title);
            assert!(
                section.is_some(),
                "{file}: no {title} (pages/text/verbs.md has what the command line does not say)"
            );
        }
    }
    for page in &pages {
        for (_, blocks) in &page.sections {
            for line in blocks
                .iter()
                .filter_map(|block| if let Block::Literal(lines) = block { Some(lines) } else { None })
                .flatten()
            {
                let Some(command) = line.trim().strip_prefix("perilog ") else { continue };
                let words = words(command.split(" | ").next().unwrap_or_default());
                let words = std::iter::once("perilog".to_owned()).chain(words);
                if let Err(error) = perilog::command().try_get_matches_from(words) {
                    panic!("{}: an example that perilog does not understand: {line}\n{error}", page.file());
                }
                parsed += 1;
            }
        }
    }
    assert!(parsed > 50, "only {parsed} examples");
}

/// Splits a command into words, as a shell would; knows only double quotes.
fn words(command: &str) -> Vec<String> {
    let outside = command.split('"').enumerate();
    let mut words: Vec<String> = Vec::new();
    for (at, part) in outside {
        if at % 2 == 1 { words.push(part.to_owned()) } else { words.extend(part.split_whitespace().map(str::to_owned)) }
    }
    words
}

#[test]
fn pages_that_are_named_are_there() {
    let pages = perilog_pages::pages().unwrap();
    let files: Vec<String> = pages.iter().map(|page| format!("{}({})", page.name, page.section)).collect();
    for page in &pages {
        let text = format!("{:?}", page.sections);
        for word in text.split(|c: char| c.is_whitespace() || "\"`,;:".contains(c)) {
            let word = word.trim_end_matches('.').trim_start_matches('(');
            let is_page = word.starts_with("perilog") && word.ends_with(')') && word.contains('(');
            assert!(!is_page || files.iter().any(|file| file == word), "{}: {word} is no page of ours", page.file());
        }
    }
}

/// Regression test: `man perilog-controller` opened the page of the verb `perilog controller`, not that of the daemon.
#[test]
fn no_page_of_a_command_hides_that_of_a_daemon() {
    let pages = perilog_pages::pages().unwrap();
    let of = |section| pages.iter().filter(move |page| page.section == section).map(|page| page.name.as_str());
    let daemons: BTreeSet<&str> = of(8).collect();
    assert_eq!(of(1).filter(|name| daemons.contains(name)).collect::<Vec<_>>(), [""; 0]);
}

/// Regression test: three links of the installed guides led nowhere, and the installed api.md lacked the interface
/// that it is about.
#[test]
fn installed_guides_are_whole_and_lead_to_what_is_installed() {
    let mut links = 0;
    for (name, text) in perilog_pages::guides::guides() {
        assert!(!text.contains("{{#"), "{name}: the book would include something");
        let mut rest = text.as_str();
        while let Some((_, target, after)) = perilog_pages::guides::next_link(rest) {
            assert!(perilog_pages::guides::is_installed(target), "{name}: {target} is not installed");
            links += 1;
            rest = after;
        }
        let has = |part: &str| assert!(text.contains(part), "{name}: no {part}");
        match name {
            "api.md" => ["method Status()", "method Exec("].into_iter().for_each(has),
            "administration.md" => ["\nBuilding packages says how", "(quickstart.md)"].into_iter().for_each(has),
            _ => {}
        }
    }
    assert!(links > 20, "only {links} links");
}

/// A packaged configuration file has few comments, because each changed comment would make every upgrade ask the
/// administrator about the file.
#[test]
fn packaged_configuration_is_short_and_points_at_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (file, page) in [
        ("agent.toml", "perilog-agent.toml(5)"),
        ("controller.toml", "perilog-controller.toml(5)"),
        ("edge.toml", "perilog-edge.toml(5)"),
    ] {
        let text = std::fs::read_to_string(root.join("packaging").join(file)).unwrap();
        let comments: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        assert!(comments.len() <= 3 && comments[0].contains(page), "{file}: {comments:?}");
    }
    let agent = std::fs::read_to_string(root.join("packaging/agent.toml")).unwrap();
    let actions = perilog_agent::config::Config::parse("agent.toml", &agent).unwrap().action;
    // Every word that `--help` uses as an action is an action of an unconfigured node.
    assert_eq!(actions.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["epilog", "housekeeping", "prolog"]);
}

fn written() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    perilog_pages::write(directory.path(), "2026-11-21").unwrap();
    let path = directory.path().to_owned();
    (directory, path)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Runs a program. Returns `true` if it succeeded, and its standard output followed by its standard error.
fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error} (cargo xtask test installs it)"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn mandoc_and_groff_have_nothing_to_complain_of() {
    let (_kept, directory) = written();
    let pages = files(&directory.join("man"));
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let page = page.to_string_lossy().into_owned();
        let (well, printed) = run("mandoc", &["-T", "lint", &page]);
        // Pages that are not installed here.
        let bad: Vec<&str> = printed.lines().filter(|line| !line.contains("referenced manual not found")).collect();
        assert!(bad.is_empty() && (well || !printed.is_empty()), "{}", bad.join("\n"));
        let (well, printed) = run("groff", &["-man", "-Tutf8", "-ww", "-K", "utf8", "-z", &page]);
        assert!(well && printed.is_empty(), "groff: {page}: {printed}");
    }
}

#[test]
fn bash_completes_verbs_and_options() {
    let (_kept, directory) = written();
    let script = directory.join("completions/perilog.bash");
    let complete = |words: &[&str]| {
        let line = format!(
            "set -u; source {}; COMP_WORDS=(perilog {}); COMP_CWORD={}; _perilog \
             perilog \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            script.display(),
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len()
        );
        let (well, printed) = run("bash", &["--norc", "-c", &line]);
        assert!(well, "{line}\n{printed}");
        printed.trim().to_owned()
    };
    assert_eq!(complete(&["mil"]), "milestone");
    assert_eq!(complete(&["job", "fin"]), "finish");
    assert!(complete(&["run", "--pro"]).contains("--propagate"));
}

/// Writes a stand-in for `perilog` that lists names of jobs and nodes. One job's name is code that a shell must not
/// run. Returns a value of PATH with which shells find the stand-in.
fn with_names(directory: &Path) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let program = directory.join("perilog");
    let text =
        "#!/bin/sh\ncase $2 in ps) printf '%s\\n' f1 f2 'f$(touch /tmp/x)';; nodes) printf '%s\\n' n0 n1;; esac\n";
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", directory.display())
}

#[test]
fn bash_completes_jobs_nodes_and_actions() {
    let (_kept, directory) = written();
    let script = directory.join("completions/perilog.bash");
    let path = with_names(&directory);
    let complete = |words: &[&str]| {
        let line = format!(
            "PATH={path}; set -u; source {}; COMP_WORDS=(perilog {}); COMP_CWORD={}; _perilog_with_names \
             perilog \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[*]-}}\"",
            script.display(),
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len()
        );
        let (well, printed) = run("bash", &["--norc", "-c", &line]);
        assert!(well, "{line}\n{printed}");
        printed.trim().to_owned()
    };
    for (words, names) in [
        (&["show", "f"][..], "f1 f2"),
        (&["show", "f2"], "f2"),
        (&["why", "n"], "n0 n1"),
        (&["--json", "--socket", "/s", "why", "n"], "n0 n1"),
        (&["cancel", "f1", "pro"], "prolog"),
        (&["cancel", "--ranks", "0", "f"], "f1 f2"),
        (&["run", "prolog", "--job", "f"], "f1 f2"),
        (&["run", "hou"], "housekeeping"),
        (&["run", "prolog", "--job", "f1", "--nodes", "n"], "n0 n1"),
        (&["job", "finish", "f"], "f1 f2"),
        (&["node", "forget", "n1"], "n1"),
        (&["kill", "f1", "prolog", "-s", "K"], "KILL"),
        (&["kill", "f1", "prolog", "--signal", "US"], "USR1 USR2"),
        // A value that is no name, an argument too many, another host.
        (&["run", "prolog", "--timeout", "f"], ""),
        (&["show", "f1", "f"], ""),
        (&["-H", "ctl", "show", "f"], ""),
    ] {
        let names: Vec<&str> = names.split_whitespace().collect();
        let offered = complete(words);
        let offered: Vec<&str> = offered.split_whitespace().filter(|word| !word.starts_with('-')).collect();
        assert!(names.iter().all(|name| offered.contains(name)), "{words:?}: {offered:?}");
        let of_list = offered.iter().filter(|word| ["f1", "f2", "n0", "n1", "prolog"].contains(word)).count();
        assert!(of_list <= names.len(), "{words:?}: {offered:?}");
        assert!(!offered.iter().any(|word| word.contains('$')), "{words:?}: {offered:?}");
    }
    assert_eq!(complete(&["mil"]), "milestone");
    // Regression test: an empty word was offered options beside the nodes, and an action files.
    assert_eq!(complete(&["why", ""]), "n0 n1");
    assert_eq!(complete(&["try", "--action", ""]), "epilog housekeeping prolog");
}

#[test]
fn fish_completes_jobs_nodes_and_actions() {
    let (_kept, directory) = written();
    let script = directory.join("completions/perilog.fish");
    let path = with_names(&directory);
    let complete = |line: &str| {
        let text = format!("set -x PATH {}; source {}; complete -C '{line}'", path.replace(':', " "), script.display());
        let (well, printed) = run("fish", &["--no-config", "-c", &text]);
        assert!(well, "{line}: {printed}");
        printed.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert!(complete("perilog show f").iter().any(|name| name == "f1"));
    assert!(complete("perilog run prolog --job f").iter().any(|name| name == "f2"));
    assert!(complete("perilog node forget n").iter().any(|name| name == "n0"));
    assert!(!complete("perilog -H ctl show f").iter().any(|name| name == "f1"));
}

/// zsh's completion functions offer the names of jobs and nodes, and no names for another host (`-H`). The test calls
/// them without zsh's line editor, with a stand-in for `compadd` that prints the names.
#[test]
fn zsh_lists_jobs_and_nodes_where_they_are_expected() {
    let (_kept, directory) = written();
    let script = directory.join("completions/_perilog");
    let path = with_names(&directory);
    let text = std::fs::read_to_string(&script).unwrap();
    for part in [":JOB:_perilog_jobs'", "':job:_perilog_jobs'", ":_perilog_nodes'", ":_perilog_actions'"] {
        assert!(text.contains(part), "no {part}");
    }
    let call = |words: &str, function: &str| {
        let line = format!(
            "PATH={path}; compdef() {{ }}; compadd() {{ print -l -- $names }}; words=({words}); source {}; {function}",
            script.display()
        );
        run("zsh", &["-f", "-c", &line]).1
    };
    assert!(call("perilog show", "_perilog_jobs").starts_with("f1\nf2\n"), "{}", call("perilog show", "_perilog_jobs"));
    assert_eq!(call("perilog why", "_perilog_nodes"), "n0\nn1\n");
    assert_eq!(call("perilog -H ctl why", "_perilog_nodes"), "");
}

#[test]
fn zsh_and_fish_read_their_completions() {
    let (_kept, directory) = written();
    for (shell, file) in [("zsh", "_perilog"), ("fish", "perilog.fish")] {
        let script = directory.join("completions").join(file);
        let (well, printed) = run(shell, &["-n", &script.to_string_lossy()]);
        assert!(well && printed.is_empty(), "{shell}: {printed}");
        let text = std::fs::read_to_string(script).unwrap();
        assert!(text.contains("milestone") && text.contains("propagate"), "{file}");
    }
}
