//! Scripts of a task: all scripts of the node's directories, in the order of the directories and the byte order of the
//! names; or one command.
//!
//! The runner finds and checks all scripts before it runs the first: a problem with a prolog's last script is known
//! before the first script changes anything. `perilog_host::scripts` decides which entries of a directory are scripts,
//! for `perilog doctor` too.

use std::path::{Path, PathBuf};

use perilog_core::task::Run;
use perilog_host::scripts::{self, Entry, Wrong};
use perilog_host::trust;

/// A script to execute: its name, path and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// File name, as used in records, in the plan and by people.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) scripts: Vec<Script>,
    /// Files that the runner skipped and that may have been meant as scripts, each with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Finds the scripts that `run` names.
///
/// # Errors
/// A sentence for the result's `configuration`: a directory, a script or the command is missing or unreadable, can be
/// written by other users than root, or is on a file system mounted `noexec`; a path is not absolute; a script's name
/// is not UTF-8; or the command is empty.
pub(crate) fn find(run: &Run) -> Result<Found, String> {
    let mut found = Found::default();
    match run {
        Run::Directories(directories) => {
            for directory in directories {
                collect_scripts(absolute(directory, "script directory")?, &mut found)?;
            }
        }
        Run::Command(words) => {
            let (program, args) = words.split_first().ok_or("the command is empty")?;
            let path = absolute(program, "command")?;
            trust::check(path).map_err(|untrusted| untrusted.to_string())?;
            if scripts::is_noexec(path) {
                return Err(Wrong::NoExec { path: path.to_owned() }.to_string());
            }
            let name = path.file_name().map_or_else(|| program.clone(), |n| n.to_string_lossy().into_owned());
            found.scripts.push(Script { name, path: path.to_owned(), args: args.to_vec() });
        }
    }
    Ok(found)
}

fn absolute<'a>(path: &'a str, what: &str) -> Result<&'a Path, String> {
    let path = Path::new(path);
    if path.is_absolute() { Ok(path) } else { Err(format!("{what} {path:?} is not an absolute path")) }
}

fn collect_scripts(directory: &Path, found: &mut Found) -> Result<(), String> {
    let entries = scripts::directory(directory).map_err(|wrong| format!("script directory {wrong}"))?;
    for entry in entries {
        match entry {
            Entry::Script { name, path } => found.scripts.push(Script { name, path, args: Vec::new() }),
            Entry::Skipped { path, why } => found.skipped.push(format!("{} is skipped: {why}", path.display())),
            Entry::Wrong(wrong) => return Err(wrong.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_run_is_named() {
        let directories = |d: &str| Run::Directories(vec![d.to_owned()]);
        let command = |c: &[&str]| Run::Command(c.iter().map(|w| (*w).to_owned()).collect());
        for (run, part) in [
            (directories("prolog.d"), "\"prolog.d\" is not an absolute path"),
            (directories("/nowhere/prolog.d"), "script directory /nowhere: No such file"),
            (directories("/tmp"), "script directory /tmp: everyone can write it"),
            (directories("/proc/version"), "script directory /proc/version: Not a directory"),
            (command(&[]), "the command is empty"),
            (command(&["true"]), "not an absolute path"),
            (command(&["/nowhere/x"]), "/nowhere: No such file"),
        ] {
            let why = find(&run).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(find(&Run::Directories(Vec::new())), Ok(Found::default()));
    }
}
