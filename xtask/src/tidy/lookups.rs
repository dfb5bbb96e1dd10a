//! Check of where the agent's daemon looks at files, directories and accounts. What its event loop looks at must
//! answer: /run, the kernel's own file systems, and the agent's own state. Script directories, links and accounts
//! belong to the site, and their server may be gone: a thread with a limit looks at them (`perilog_host::limited`).

use super::Findings;
use super::rust::tokens;

const FOLDER: &str = "agent/src/";
/// Programs of their own beside the daemon: a runner or a caller may hang, and the agent says so.
const OTHER_PROGRAMS: [&str; 2] = ["runner/", "report/"];

/// The modules that may look at files, each with what it looks at.
const ALLOWED: [(&str, &str); 10] = [
    ("config/check.rs", "directories, programs and accounts of the site, each in a thread with a limit"),
    ("daemon/identity.rs", "/etc/machine-id at the start, and /proc"),
    ("daemon/notes.rs", "notes of hooks, in a thread of its own"),
    ("daemon/reload.rs", "the socket's mode in /run"),
    ("farewell.rs", "/run/perilog"),
    ("inotify.rs", "a type of the kernel's interface"),
    ("link/enroll.rs", "its own key, certificate and token"),
    ("spool/", "/run/perilog"),
    ("systemd/cgroups.rs", "/proc and /sys/fs/cgroup"),
    ("systemd/runner.rs", "/proc"),
];

/// Modules whose functions look at files or accounts, before `::`.
const MODULES: [&str; 6] = ["fs", "File", "OpenOptions", "DirBuilder", "accounts", "scripts"];
/// Methods of a path that look at a file, between `.` and `(`.
const METHODS: [&str; 9] =
    ["canonicalize", "exists", "is_dir", "is_file", "is_symlink", "metadata", "read_dir", "read_link", "try_exists"];

pub(super) fn check(name: &str, text: &str, findings: &mut Findings) {
    let Some(module) = name.strip_prefix(FOLDER) else { return };
    let is_test = module == "testing.rs" || module.ends_with("tests.rs") || module.contains("/tests/");
    let is_allowed = ALLOWED.iter().any(|(allowed, _)| module.starts_with(allowed));
    if is_test || is_allowed || OTHER_PROGRAMS.iter().any(|other| module.starts_with(other)) {
        return;
    }
    let tokens = tokens(text.split("#[cfg(test)]").next().unwrap_or_default());
    for window in tokens.windows(3) {
        let [before, word, after] = [0, 1, 2].map(|at| window[at].text.as_str());
        let is_lookup =
            MODULES.contains(&word) && after == "::" || before == "." && METHODS.contains(&word) && after == "(";
        if is_lookup {
            findings.errors.push(format!(
                "{name}:{}: `{word}`: the agent's event loop looks at /run and its own state alone; use a thread with \
                 a limit (perilog_host::limited), or list the module in xtask/src/tidy/lookups.rs",
                window[1].line
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_outside_of_the_listed_modules_is_found() {
        for (name, text, errors) in [
            ("agent/src/daemon/mod.rs", "fn f() { std::fs::read(x); }", 1),
            ("agent/src/daemon/mod.rs", "fn f() { x.is_dir(); y.exists (); }", 2),
            ("agent/src/local/exec.rs", "use perilog_host::accounts; fn f() { accounts::account(x); }", 1),
            ("agent/src/local/exec.rs", "fn f() { is_dir(); x.exists; }\n#[cfg(test)]\nfn g() { fs::read(x) }", 0),
            ("agent/src/spool/read.rs", "fn f() { fs::read(x) }", 0),
            ("agent/src/runner/scripts.rs", "fn f() { fs::read(x) }", 0),
            ("controller/src/daemon/mod.rs", "fn f() { fs::read(x) }", 0),
        ] {
            let mut findings = Findings::default();
            check(name, text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{name}: {text}: {findings:?}");
        }
    }
}
