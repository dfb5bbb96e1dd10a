//! Warnings of `--check-config`: values that are well formed but cannot work on this host now. The daemon starts all
//! the same, because a file system or a directory service may only be late.

use std::path::Path;

use perilog_core::ids::ActionName;
use perilog_core::task::Empty;
use perilog_host::accounts;
use perilog_host::limited::{Lookup, NoAnswer};
use perilog_host::scripts::{self, Entry};
use perilog_host::tls::ClientTls;

use super::Config;
use super::action::Action;

/// Returns the warnings about this configuration for people, one text for each problem.
///
/// # Errors
/// A directory of scripts, a program or the look-up of a user does not answer.
pub fn warnings(config: &Config) -> Result<Vec<String>, NoAnswer> {
    let mut warnings = Vec::new();
    if config.tls.enabled
        && !config.controller.is_empty()
        && (!config.enroll.is_on() || Path::new(&config.tls.cert.0).exists())
        && let Err(error) = ClientTls::load(&config.tls.files())
    {
        warnings.push(format!("tls: {error}"));
    }
    if !config.tls.enabled && !config.controller.is_empty() {
        warnings
            .push("tls.enabled is false: anyone on the network can impersonate this node or its controller".to_owned());
    }
    if config.enroll.is_on() && !config.tls.enabled {
        warnings.push("enroll has no effect while tls.enabled is false".to_owned());
    }
    if config.enroll.munge && !config.enroll.is_on() {
        warnings.push("enroll.munge has no effect while enroll.controller is not set".to_owned());
    }
    if let Some(program) = config.enroll.munge().filter(|program| !program.is_file()) {
        warnings
            .push(format!("enroll.munge: there is no program {}; this node cannot enrol by munge", program.display()));
    }
    if config.action.is_empty() {
        warnings.push("no [action.NAME] table: every action will be refused".to_owned());
    }
    // All looks begin together, so that they share one limit.
    let checks: Vec<(&ActionName, &Action, Vec<Seen>)> =
        config.action.iter().map(|(name, action)| (name, action, begin_checks(action))).collect();
    for (name, action, checks) in checks {
        let mut found = action.command.iter().count();
        let mut seen = Vec::new();
        for lookup in checks {
            let (scripts, warned) = lookup.answer()?;
            found += scripts;
            seen.extend(warned);
        }
        if found == 0 && action.empty == Empty::Fail {
            seen.push("there is no script, and empty is \"fail\"; the action will fail".to_owned());
        }
        warnings.extend(seen.into_iter().map(|text| format!("action.{name}: {text}")));
    }
    Ok(warnings)
}

/// A look at a directory, a program or a user: the number of scripts found, and the warnings.
type Seen = Lookup<(usize, Vec<String>)>;

fn begin_checks(action: &Action) -> Vec<Seen> {
    let mut checks = Vec::new();
    for directory in action.directories.iter().flatten() {
        let path = directory.0.clone();
        checks.push(Lookup::begin(format!("directory {path}"), move || of_directory(&path)));
    }
    if let Some(program) = action.command.iter().flatten().next().cloned() {
        checks.push(Lookup::begin(format!("program {program}"), move || {
            let path = Path::new(&program);
            let noexec = || scripts::Wrong::NoExec { path: path.to_owned() }.to_string();
            let wrong = match path.is_file() {
                false => Some(format!("there is no program {program}")),
                true => scripts::is_noexec(path).then(noexec),
            };
            (0, wrong.map(|wrong| format!("{wrong}; the action will fail")).into_iter().collect())
        }));
    }
    let users = action.script.values().filter_map(|script| script.user.as_ref());
    for user in std::iter::once(&action.user).chain(users).map(|user| user.0.clone()) {
        checks.push(Lookup::begin(format!("the look-up of user {user}"), move || {
            let error = accounts::account(&user).err();
            (0, error.map(|error| format!("{error}; the scripts of this user will fail")).into_iter().collect())
        }));
    }
    checks
}

fn of_directory(path: &str) -> (usize, Vec<String>) {
    let (mut found, mut warnings) = (0, Vec::new());
    if !Path::new(path).is_dir() {
        warnings.push(format!("there is no directory {path}; the action will fail"));
    }
    for entry in scripts::directory(Path::new(path)).into_iter().flatten() {
        match entry {
            Entry::Script { .. } => found += 1,
            Entry::Skipped { path, why } => {
                warnings.push(format!("{} is skipped: {why} ({})", path.display(), why.remedy(&path)));
            }
            Entry::Wrong(wrong) => warnings.push(format!("{wrong}; the action will fail")),
        }
    }
    (found, warnings)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Checks the warnings about an action without a script, and about a script that is not executable. The test needs
    /// root: it makes scripts that the runner would trust, and only root can create such files.
    #[test]
    fn what_will_not_run_is_warned_of() {
        assert!(rustix::process::geteuid().is_root(), "needs root: others cannot make a file that root trusts");
        let dir = tempfile::Builder::new().prefix("perilog-check-test-").tempdir_in("/var/lib").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let warned = |more: &str| {
            let text = format!("[action.prolog]\ndirectories = [{:?}]\n{more}", dir.path());
            let mut warned = warnings(&Config::parse("t", &text).unwrap()).unwrap();
            warned.iter_mut().for_each(|text| *text = text.replace(&dir.path().display().to_string(), "DIR"));
            warned
        };
        // An action without scripts may be intended.
        assert_eq!(warned(""), [""; 0]);
        let nothing = "action.prolog: there is no script, and empty is \"fail\"; the action will fail";
        assert_eq!(warned("empty = \"fail\"\n"), [nothing]);
        fs::write(dir.path().join("10-hello"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.path().join("10-hello"), Permissions::from_mode(0o644)).unwrap();
        let skipped = "action.prolog: DIR/10-hello is skipped: not executable (if it is a script: chmod 0755 \
                       DIR/10-hello; if not, remove it)";
        assert_eq!(warned(""), [skipped]);
        fs::set_permissions(dir.path().join("10-hello"), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(warned("empty = \"fail\"\n"), [""; 0]);
    }
}
