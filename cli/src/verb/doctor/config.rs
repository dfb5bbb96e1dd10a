//! Checks of the configuration, as the daemon reads it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Table;

use super::{Finding, Role, enroll, node, shell, tls};
use crate::verb::failover;

/// Time limit for a check of the configuration. The daemon itself waits 10 s for a directory or an account.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// Returns the path of the daemon's program: in /usr/sbin, where packages install it, or else beside this program, as
/// in a build.
pub(super) fn program(role: Role) -> PathBuf {
    let installed = Path::new("/usr/sbin").join(role.program());
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(role.program()));
    match beside {
        Some(beside) if !installed.exists() && beside.exists() => beside,
        _ => installed,
    }
}

/// Checks the configuration, with the TLS files and the enrolment that it names, and adds the findings. Returns the
/// whole configuration with every default; `None` if the configuration is wrong or cannot be read, or the
/// daemon's program is missing.
pub(super) fn inspect(role: Role, file: &Path, findings: &mut Vec<Finding>) -> Option<Table> {
    const ABOUT: &str = "configuration";
    let (program, file) = (program(role), file.display().to_string());
    let name = program.display().to_string();
    let checked = match shell::ask_within(CHECK_LIMIT, &name, &["--config", &file, "--check-config"]) {
        Ok(output) => output,
        Err(why) => {
            let todo = format!("install {} on this host", role.program());
            findings.push(Finding::wrong(ABOUT, format!("cannot be checked: {why}"), todo));
            return None;
        }
    };
    let own = format!("{}: ", role.program());
    let lines: Vec<&str> = checked.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if !checked.ok {
        // Indented lines below a problem show its place in the file.
        let problems = lines.iter().filter(|line| !line.starts_with(' ') && !line.contains(" | "));
        for problem in problems {
            let what = problem.strip_prefix(&own).unwrap_or(problem);
            findings.push(Finding::wrong(
                ABOUT,
                what,
                format!("correct the configuration; {name} --check-config shows the place"),
            ));
        }
        return None;
    }
    for line in &lines {
        let what = line.strip_prefix("warning: ").unwrap_or(line);
        if is_reported_elsewhere(what) {
            continue;
        }
        findings.push(Finding::warning(ABOUT, what, format!("see {file}")));
    }
    let table = printed(role, Path::new(&file));
    match &table {
        Some(table) => {
            findings.push(found(role, Path::new(&file)));
            if role == Role::Controller || node::has_controller(table) {
                tls::inspect(role, table, findings);
            }
            // Enrolment is on the file system that the passive host of two does not have.
            if role == Role::Node || failover::mount(table).is_none_or(failover::is_mounted) {
                findings.extend(enroll::inspect(role, table));
            }
        }
        None => findings.push(Finding::wrong(
            ABOUT,
            format!("this perilog cannot read what {name} --print-config prints"),
            "upgrade the older of the two",
        )),
    }
    table
}

/// Returns the whole configuration with every default, as the daemon prints it; `None` if it is wrong, the daemon's
/// program does not run, or its output is no TOML.
pub(in crate::verb) fn printed(role: Role, file: &Path) -> Option<Table> {
    let (name, file) = (program(role).display().to_string(), file.display().to_string());
    let output = shell::ask(&name, &["--config", &file, "--print-config"]).ok().filter(|output| output.ok)?;
    output.stdout.parse().ok()
}

/// Returns `true` if another module of doctor reports this warning of the daemon, with a remedy. If the daemon's
/// wording changes, the operator sees the warning twice, and never misses it.
fn is_reported_elsewhere(warning: &str) -> bool {
    warning.starts_with("tls: ")
        || warning.starts_with("tls.enabled is false")
        || warning.starts_with("enroll.munge: there is no program ")
        || warning.starts_with("enroll has no effect while tls.enabled is false")
        || warning.starts_with("no [action.NAME] table")
        || warning.starts_with("action.") && warning.contains(": there is no directory ")
}

/// Returns the finding about a configuration that the daemon has accepted, with the names of its files. `file`: the
/// main file; its drop-ins are in the directory of the same name with the ending `.d`. The finding has the level ok. If
/// neither the main file nor a drop-in exists, the level is wrong: a daemon with only its defaults does little.
fn found(role: Role, file: &Path) -> Finding {
    const ABOUT: &str = "configuration";
    let shown = file.display();
    let directory = file.with_extension("d");
    let dropins = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let dropins = dropins.filter(|entry| entry.path().extension().is_some_and(|end| end == "toml")).count() as u64;
    let dropins = match dropins {
        0 => None,
        count => Some(format!("{} in {}", crate::text::count(count, "drop-in"), directory.display())),
    };
    match (file.exists(), dropins) {
        (true, None) => Finding::ok(ABOUT, format!("{shown} is right")),
        (true, Some(dropins)) => Finding::ok(ABOUT, format!("{shown} is right, with {dropins}")),
        (false, Some(dropins)) => Finding::ok(ABOUT, format!("{dropins}: right; there is no {shown}")),
        (false, None) => {
            let todo =
                format!("write this file; {} --print-config prints all keys with their defaults", role.program());
            Finding::wrong(
                ABOUT,
                format!("there is neither {shown} nor a drop-in, so {} has only its defaults", role.program()),
                todo,
            )
        }
    }
}

/// Returns the text at `path` (names of tables, then the key) in the configuration; `None`: there is no text.
pub(in crate::verb) fn text<'a>(table: &'a Table, path: &[&str]) -> Option<&'a str> {
    let (last, tables) = path.split_last()?;
    let inner = tables.iter().try_fold(table, |table, name| table.get(*name)?.as_table())?;
    inner.get(*last)?.as_str()
}

/// Returns the texts in the list under the key `name` of the configuration; empty if the list is absent.
pub(in crate::verb) fn texts<'a>(table: &'a Table, name: &str) -> Vec<&'a str> {
    table.get(name).and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_not_right() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        let of = || found(Role::Node, &file);
        let none = of();
        assert!(none.level == Level::Wrong && none.what.contains("agent.toml nor a drop-in"), "{none:?}");
        assert!(none.todo.contains("perilog-agent --print-config"), "{none:?}");
        std::fs::create_dir(dir.path().join("agent.d")).unwrap();
        std::fs::write(dir.path().join("agent.d/prolog.toml"), "").unwrap();
        let (some, end) = (of(), format!("right; there is no {}", file.display()));
        assert!(
            some.level == Level::Ok && some.what.starts_with("1 drop-in in") && some.what.ends_with(&end),
            "{some:?}"
        );
        std::fs::write(&file, "").unwrap();
        assert!(of().what.contains("agent.toml is right, with 1 drop-in in"), "{:?}", of());
    }

    #[test]
    fn nothing_is_reported_twice() {
        for (warning, elsewhere) in [
            ("no [action.NAME] table: every action will be refused", true),
            ("action.prolog: there is no directory /etc/perilog/prolog.d; the action will fail", true),
            ("tls: /etc/perilog/tls/key.pem: others can read it", true),
            ("enroll.munge: there is no program /usr/bin/munge; this node cannot enrol by munge", true),
            ("enroll.munge has no effect while enroll.controller is not set", false),
            ("action.prolog: there is no program /usr/bin/x; the action will fail", false),
            ("action.prolog: there is no account bob; its scripts will fail", false),
        ] {
            assert_eq!(is_reported_elsewhere(warning), elsewhere, "{warning}");
        }
    }

    #[test]
    fn values_are_found_by_their_place() {
        let table: Table = "controller = ['a:1', 'b:2']\n[tls]\nca = '/ca'".parse().unwrap();
        assert_eq!(
            (text(&table, &["tls", "ca"]), text(&table, &["tls", "key"]), text(&table, &[])),
            (Some("/ca"), None, None)
        );
        assert_eq!((texts(&table, "controller"), texts(&table, "tls")), (vec!["a:1", "b:2"], vec![]));
    }
}
