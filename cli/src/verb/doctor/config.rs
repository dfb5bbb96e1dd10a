//! The configuration, as its daemon reads it.

use std::path::{Path, PathBuf};

use toml::Table;

use super::{Finding, Role, shell, tls};

/// Where packages put daemons; beside ourselves where they are built.
fn program(role: Role) -> PathBuf {
    let installed = Path::new("/usr/sbin").join(role.program());
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(role.program()));
    match beside {
        Some(beside) if !installed.exists() && beside.exists() => beside,
        _ => installed,
    }
}

/// All of it with every default, unless it is wrong.
pub(super) fn look(role: Role, file: &Path, findings: &mut Vec<Finding>) -> Option<Table> {
    const ABOUT: &str = "configuration";
    let (program, file) = (program(role), file.display().to_string());
    let name = program.display().to_string();
    let checked = match shell::ask(&name, &["--config", &file, "--check-config"]) {
        Ok(said) => said,
        Err(why) => {
            let todo = format!("install {} on this host", role.program());
            findings.push(Finding::wrong(ABOUT, format!("cannot be checked: {why}"), todo));
            return None;
        }
    };
    let own = format!("{}: ", role.program());
    let lines: Vec<&str> = checked.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if !checked.ok {
        // What is under a problem shows its place in the file.
        let problems = lines.iter().filter(|line| !line.starts_with(' ') && !line.contains(" | "));
        for problem in problems {
            let what = problem.strip_prefix(&own).unwrap_or(problem);
            findings.push(Finding::wrong(ABOUT, what, format!("correct it; {name} --check-config shows the place")));
        }
        return None;
    }
    for line in &lines {
        let what = line.strip_prefix("warning: ").unwrap_or(line);
        findings.push(Finding::warning(ABOUT, what, format!("see {file}")));
    }
    let printed = shell::ask(&name, &["--config", &file, "--print-config"]);
    let table = printed.ok().filter(|said| said.ok).and_then(|said| said.stdout.parse::<Table>().ok());
    match &table {
        Some(table) => {
            findings.push(Finding::ok(ABOUT, format!("{file} and its drop-ins are right")));
            tls::look(role, table, findings);
        }
        None => findings.push(Finding::wrong(
            ABOUT,
            format!("{name} --print-config says nothing that this perilog can read"),
            "upgrade the older of the two",
        )),
    }
    table
}

/// A text in the configuration, by the names of its tables.
pub(super) fn text<'a>(table: &'a Table, path: &[&str]) -> Option<&'a str> {
    let (last, tables) = path.split_last()?;
    let inner = tables.iter().try_fold(table, |table, name| table.get(*name)?.as_table())?;
    inner.get(*last)?.as_str()
}

/// A list of texts.
pub(super) fn texts<'a>(table: &'a Table, name: &str) -> Vec<&'a str> {
    table.get(name).and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
