//! Checks of each action's scripts, listed by perilog-runner's own rules (`perilog_host::scripts`), so that both agree.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perilog_host::limited::{Lookup, NoAnswer};
use perilog_host::scripts::{self, Entry, Skip, Wrong};
use perilog_host::trust::{self, Untrusted};
use toml::Table;

use super::{Finding, Level, config};
use crate::text;

const ABOUT: &str = "scripts";

/// Checks the scripts of all configured actions. Above all, no user but root may be able to write a script or a
/// directory above it: such a user would be root on this node.
pub(super) fn inspect(config: &Table) -> Vec<Finding> {
    let Some(actions) = config.get("action").and_then(toml::Value::as_table).filter(|actions| !actions.is_empty())
    else {
        let todo = "write a table such as [action.prolog] into /etc/perilog/agent.d/prolog.toml";
        return vec![Finding::warning(ABOUT, "no action is configured: every task is refused", todo)];
    };
    let lookup = |(name, action): (&String, &toml::Value)| {
        let (of, action) = (name.clone(), action.as_table()?.clone());
        let files = [config::texts(&action, "directories"), config::texts(&action, "command")].concat();
        let what = format!("{name}: {}", files.join(", "));
        Some(Lookup::begin(what, move || of_action(&of, &action)))
    };
    let lookups: Vec<Lookup<Vec<Finding>>> = actions.iter().filter_map(lookup).collect();
    let none = |none: NoAnswer| {
        let todo = "check the file system of these paths (findmnt -T), and whether its server answers";
        vec![Finding::wrong(
            ABOUT,
            format!("{none}; every task hangs until its limit passes and the node is drained"),
            todo,
        )]
    };
    lookups.into_iter().flat_map(|lookup| lookup.answer().unwrap_or_else(none)).collect()
}

fn of_action(name: &str, action: &Table) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut count = 0;
    if let Some(program) = config::texts(action, "command").first() {
        count = 1;
        let path = Path::new(program);
        let noexec = || scripts::is_noexec(path).then(|| Wrong::NoExec { path: path.to_owned() });
        let why = trust::check(path).err().map(Wrong::from).or_else(noexec);
        found.extend(why.map(|why| wrong(name, &why)));
    } else {
        for directory in config::texts(action, "directories") {
            match scripts::directory(Path::new(directory)) {
                Err(why) => found.push(wrong(name, &why)),
                Ok(entries) => found.extend(entries.iter().filter_map(|entry| match entry {
                    Entry::Script { name, path } => {
                        count += 1;
                        parked(name, path)
                    }
                    Entry::Skipped { path, why } => Some(skipped(path, *why)),
                    Entry::Wrong(why) => Some(wrong(name, why)),
                })),
            }
        }
    }
    let must_run = action.get("empty").and_then(toml::Value::as_str) == Some("fail");
    match (count, found.is_empty()) {
        (0, _) if must_run => {
            let what = format!("{name}: there is no script, and empty is \"fail\", so every task fails");
            found.push(Finding::wrong(ABOUT, what, "add a script (mode 0755), or remove `empty` from the action"));
        }
        // The administrator may have meant a skipped file as a script.
        (0, false) if found.iter().all(|finding| finding.level == Level::Warning) => found.push(Finding::warning(
            ABOUT,
            format!(
                "{name}: no file in its directories can run as a script, so every task ends as ok and does nothing"
            ),
            "make the scripts executable; if such a task is to fail, set empty = \"fail\"",
        )),
        (_, true) => found.push(Finding::ok(ABOUT, format!("{name}: {}", text::count(count, "script")))),
        _ => {}
    }
    found
}

pub(in crate::verb) fn skipped(path: &Path, why: Skip) -> Finding {
    Finding::warning(ABOUT, format!("{} is skipped: {why}", path.display()), why.remedy(path))
}

/// Warns of a script whose name looks parked, although the runner runs the script.
pub(in crate::verb) fn parked(name: &str, path: &Path) -> Option<Finding> {
    let what = || format!("{} runs like any other script: its name does not disable it", path.display());
    let todo = || format!("chmod -x {0}, or remove it", path.display());
    scripts::is_parked(name).then(|| Finding::warning(ABOUT, what(), todo()))
}

pub(in crate::verb) fn wrong(name: &str, why: &Wrong) -> Finding {
    let todo = match why {
        Wrong::Untrusted(Untrusted::Written { path, .. }) if is_for_everyone(path) => {
            format!("keep scripts in another directory: everyone can write to {}", path.display())
        }
        Wrong::Untrusted(Untrusted::Written { path, .. }) => {
            format!("chown root: {0}; chmod go-w {0}", path.display())
        }
        Wrong::Untrusted(Untrusted::Unseen { path, source }) | Wrong::Unreadable { path, source }
            if source.kind() == ErrorKind::NotFound =>
        {
            format!("create {}, or remove the setting or link that names it", path.display())
        }
        Wrong::NoExec { path } => {
            format!("keep scripts on another file system, or mount this one with exec (findmnt -T {})", path.display())
        }
        Wrong::Untrusted(Untrusted::Unseen { path, .. } | Untrusted::Links { path } | Untrusted::Relative { path })
        | Wrong::Unreadable { path, .. }
        | Wrong::Name { path } => format!("see what {} is", path.display()),
    };
    Finding::wrong(ABOUT, format!("{name}: {why}; every task fails"), todo)
}

/// Returns `true` for a directory that everyone can write and that has the sticky bit, such as /tmp.
fn is_for_everyone(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.mode() & 0o1002 == 0o1002)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn of(text: &str) -> Vec<Finding> {
        inspect(&text.parse().unwrap())
    }

    #[test]
    fn an_action_that_cannot_run_is_wrong() {
        assert!(of("x = 1")[0].what.contains("no action is configured"));
        for (action, part, todo) in [
            ("directories = ['/no/such/prolog.d']", "prolog: /no: No such file", "create /no, or"),
            ("command = ['/no/such']", "prolog: /no: No such file", "create /no, or"),
            ("command = ['true']", "prolog: true: not an absolute path", "see what true is"),
            // With the sticky bit, a user cannot rename files of other users, but can still add a file.
            ("directories = ['/tmp']", "prolog: /tmp: everyone can write it", "keep scripts in another directory"),
        ] {
            let found = of(&format!("[action.prolog]\n{action}"));
            assert!(found.len() == 1 && found[0].level == Level::Wrong, "{found:?}");
            assert!(found[0].what.starts_with(part) && found[0].todo.starts_with(todo), "{found:?}");
        }
    }

    /// doctor warns if all scripts of a prolog have lost their execute permission: none of them runs, and every task is
    /// ok. An empty directory is no fault.
    #[test]
    fn skipped_scripts_are_distinguished_from_an_empty_directory() {
        assert!(rustix::process::geteuid().is_root(), "needs root: others cannot make a file that root trusts");
        let dir = tempfile::Builder::new().prefix("perilog-doctor-test-").tempdir_in("/var/lib").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let levels = |more: &str| {
            let found = of(&format!("[action.prolog]\ndirectories = [{:?}]\n{more}", dir.path()));
            found.into_iter().map(|finding| (finding.level, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(levels(""), [(Level::Ok, "prolog: 0 scripts".to_owned())]);
        let fails = "prolog: there is no script, and empty is \"fail\", so every task fails".to_owned();
        assert_eq!(levels("empty = 'fail'"), [(Level::Wrong, fails)]);
        fs::write(dir.path().join("10-hello"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.path().join("10-hello"), Permissions::from_mode(0o644)).unwrap();
        let found = levels("");
        assert!(found[0].1.ends_with("10-hello is skipped: not executable"), "{found:?}");
        let what = "prolog: no file in its directories can run as a script, so every task ends as ok and does nothing";
        assert_eq!(found[1], (Level::Warning, what.to_owned()));
        // A directory has no `chmod +x` that makes it a script.
        let todo = skipped(Path::new("/x/__pycache__"), Skip::NoFile).todo;
        assert_eq!(todo, "remove it");
    }

    /// A script that the runner refuses is wrong for doctor, and a script that the runner skips is a warning. The test
    /// needs root: only root can create files that the runner trusts.
    #[test]
    fn what_the_runner_refuses_is_named() {
        assert!(rustix::process::geteuid().is_root(), "needs root: others cannot make a file that root trusts");
        let dir = tempfile::Builder::new().prefix("perilog-doctor-test-").tempdir_in("/var/lib").unwrap();
        let at = |name: &str| dir.path().join(name);
        for directory in ["real", "real/prolog.d", "open"] {
            fs::create_dir(at(directory)).unwrap();
            fs::set_permissions(at(directory), Permissions::from_mode(0o755)).unwrap();
        }
        let script = |name: &str, mode| {
            fs::write(at(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        };
        script("real/prolog.d/10-good", 0o755);
        script("real/prolog.d/40-old.bak", 0o777);
        symlink(at("real/prolog.d"), at("prolog.d")).unwrap();
        let prolog = || of(&format!("[action.prolog]\ndirectories = [{:?}]", at("prolog.d")));
        assert_eq!(prolog(), [Finding::ok(ABOUT, "prolog: 1 script")]);

        script("real/prolog.d/20-open", 0o777);
        script("real/prolog.d/30-data", 0o644);
        script("open/there", 0o755);
        symlink("../../open/there", at("real/prolog.d/50-link")).unwrap();
        symlink("nowhere", at("real/prolog.d/60-gone")).unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o757)).unwrap();
        let found = prolog();
        let expected = [
            (Level::Wrong, "20-open: everyone can write it"),
            (Level::Warning, "30-data is skipped: not executable"),
            // The check follows links to the real directories above the file.
            (Level::Wrong, "/open: everyone can write it"),
            (Level::Wrong, "60-gone: No such file"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, (level, part)) in found.iter().zip(expected) {
            assert!(finding.level == level && finding.what.contains(part) && !finding.todo.is_empty(), "{finding:?}");
        }

        // A directory above the link's target, which the path in the configuration does not show.
        fs::set_permissions(at("real"), Permissions::from_mode(0o1777)).unwrap();
        let found = prolog();
        assert!(found.len() == 1 && found[0].what.contains("/real: everyone can write it"), "{found:?}");
    }
}
