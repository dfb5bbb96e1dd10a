//! `perilog lint`: mistakes in directories of scripts, for their authors, before a node runs them.
//!
//! The list of scripts is the runner's (`perilog_host::scripts`). `script` inspects one script; this file reads the
//! node's configuration and shows the findings.

mod outside;
mod script;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use perilog_core::environment;
use perilog_host::limited::Lookup;
use perilog_host::scripts::{self, Entry, Wrong};
use toml::Table;

use super::doctor::{self, Finding, Report, Reports};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::text;

/// Find mistakes in directories of scripts
///
/// Checks mode and owner, which users can write, skipped files, the `#!` line and its interpreter, lines with CR LF,
/// and variables PERILOG_..., SLURM_... and FLUX_... that this node does not pass to scripts. Runs no script. Also
/// checks a directory that is not installed yet; there, write permission of other users is only a warning. Exits with 0
/// if nothing is wrong, 1 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// The agent's configuration, which names the variables that scripts get.
    #[arg(long, value_name = "FILE", default_value = "/etc/perilog/agent.toml")]
    config: PathBuf,
}

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let passed = doctor::configuration(&args.config).map(|table| passed(&table));
    let mut reports = Vec::new();
    for directory in &args.directories {
        let (given, names) = (directory.clone(), passed.clone());
        let seen = Lookup::begin(format!("directory {}", directory.display()), move || {
            let path = given.canonicalize()?;
            let findings = inspect(&path, names.as_ref());
            Ok::<_, std::io::Error>((path, findings))
        });
        let (path, mut findings) = match seen.answer() {
            Ok(seen) => seen.map_err(|source| Fault::File { what: "cannot read", path: directory.clone(), source })?,
            Err(none) => {
                let todo = "check the file system of this directory (findmnt -T), and whether its server answers";
                (directory.clone(), vec![Finding::wrong("directory", none.to_string(), todo)])
            }
        };
        if passed.is_none() {
            let what = format!(
                "{}: perilog-agent is not installed or refuses this configuration, so variables are not checked",
                args.config.display()
            );
            findings.push(Finding::skipped("variables", what));
        }
        reports.push(Report::of("directory", path.display().to_string(), findings));
    }
    let reports = Reports(reports);
    out.show(&reports)?;
    Ok(if reports.are_wrong() { Exit::Failed } else { Exit::Ok })
}

/// Returns the names of variables that scripts of any action see: perilog's own, those that the node passes on, and
/// those that it sets.
fn passed(config: &Table) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = environment::OWN.iter().map(ToString::to_string).collect();
    let texts = |value: &toml::Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    names.extend(config.get("env-allow").map(texts).unwrap_or_default());
    let actions = config.get("action").and_then(toml::Value::as_table);
    for action in actions.into_iter().flat_map(Table::values) {
        let own = action.get("env").and_then(toml::Value::as_table);
        names.extend(own.into_iter().flat_map(Table::keys).cloned());
    }
    names
}

fn inspect(directory: &Path, passed: Option<&BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let entries = match scripts::directory(directory) {
        Err(Wrong::Untrusted(untrusted)) => {
            let todo = "nodes run scripts only from a directory that root owns: install -d -o root -g root -m 755 \
                        /etc/perilog/ACTION.d";
            findings.push(Finding::warning("owner", format!("{untrusted}"), todo));
            scripts::list(directory)
        }
        listed => listed,
    };
    let entries = match entries {
        Ok(entries) => entries,
        Err(why) => {
            findings.push(Finding::wrong("directory", why.to_string(), "see what it is"));
            return findings;
        }
    };
    let mut count = 0;
    for entry in &entries {
        match entry {
            Entry::Script { name, path } => {
                count += 1;
                findings.extend(doctor::parked(name, path));
                findings.extend(script::inspect(name, path, passed));
            }
            Entry::Skipped { path, why } => findings.push(doctor::skipped(path, *why)),
            Entry::Wrong(why) => findings.push(doctor::refused("scripts", why)),
        }
    }
    findings.extend(left_behind(directory));
    if findings.is_empty() {
        findings.push(Finding::ok("scripts", text::count(count, "script")));
    }
    findings
}

/// Reports files that the runner skips in silence because of their names, such as the backups that editors and packages
/// leave.
fn left_behind(directory: &Path) -> Option<Finding> {
    use std::os::unix::ffi::OsStrExt as _;
    let entries = std::fs::read_dir(directory).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter(|name| scripts::is_leaving(name.as_bytes()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    let what = format!("never run, by their names: {}", names.join(" "));
    (!names.is_empty()).then(|| Finding::skipped("names", what))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_a_node_passes_is_read_from_its_configuration() {
        let config = "env-allow = ['SLURM_JOB_ID']\n[action.prolog.env]\nSITE = 'x'\n[action.epilog]\ntimeout = '1m'";
        let names = passed(&config.parse().unwrap());
        for name in ["SLURM_JOB_ID", "SITE", "PERILOG_JOB", "PERILOG_RANKS_FILE"] {
            assert!(names.contains(name), "{name}");
        }
        assert!(!names.contains("SLURM_JOB_USER"));
    }

    #[test]
    fn an_authors_own_directory_is_read_as_it_will_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, mode, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        put("10-good", 0o755, "#!/bin/sh\nexit 0\n");
        let whats = || {
            let findings = inspect(dir.path(), None);
            findings.iter().map(Finding::shown).collect::<Vec<_>>()
        };
        // It is below /tmp, which everyone can write.
        assert_eq!(whats().len(), 1, "{:?}", whats());
        assert!(
            whats()[0].starts_with("warning owner: /tmp") || whats()[0].starts_with("warning owner: "),
            "{:?}",
            whats()
        );
        put("20-data", 0o644, "#!/bin/sh\n");
        put("30-old.bak", 0o755, "#!/bin/sh\n");
        put("40-no-line", 0o755, "exit 0\n");
        put("50-x.disabled", 0o755, "#!/bin/sh\n");
        fs::create_dir(dir.path().join("__pycache__")).unwrap();
        let found = whats();
        assert!(found.iter().any(|what| what.ends_with("__pycache__ is skipped: not a regular file")), "{found:?}");
        let parked = "50-x.disabled runs like any other script: its name does not disable it";
        assert!(found.iter().any(|what| what.ends_with(parked)), "{found:?}");
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.iter().any(|what| what.ends_with("20-data is skipped: not executable")), "{found:?}");
        assert!(found.contains(&"skipped names: never run, by their names: 30-old.bak".to_owned()), "{found:?}");
        assert!(found.iter().any(|what| what.starts_with("wrong #!: 40-no-line")), "{found:?}");
    }
}
