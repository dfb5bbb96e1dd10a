//! Reads a script: its mode, its first line, its line ends, and the variables in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Finding;

/// Maximum number of bytes that `lint` reads of a script: more than any prolog has. A compiled program is cut off here.
const MOST: u64 = 1024 * 1024;
/// Beginnings of the names of variables that a resource manager, or perilog, sets.
const PREFIXES: [&str; 3] = ["PERILOG_", "SLURM_", "FLUX_"];
/// Directories in which env(1) finds interpreters in a clean environment.
const PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Inspects a script. `passed`: names of variables that the node passes to scripts; `None`: unknown.
pub(super) fn inspect(name: &str, path: &Path, passed: Option<&BTreeSet<String>>) -> Vec<Finding> {
    let read = || -> std::io::Result<(u32, Vec<u8>)> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
        Ok((fs::metadata(path)?.permissions().mode(), bytes))
    };
    let (mode, bytes) = match read() {
        Ok(read) => read,
        Err(error) => return vec![Finding::wrong("scripts", format!("{name}: {error}"), "see what it is")],
    };
    let mut findings = Vec::new();
    if mode & 0o022 != 0 {
        let what = format!("{name}: users other than its owner can write it (mode {:04o})", mode & 0o7777);
        findings.push(Finding::wrong("mode", what, format!("chmod go-w {}", path.display())));
    }
    if bytes.starts_with(b"\x7fELF") {
        return findings;
    }
    let text = String::from_utf8_lossy(&bytes);
    findings.extend(first_line(name, &text, &|program| is_program(Path::new(program))));
    findings.extend(line_ends(name, &text));
    findings.extend(super::outside::inspect(name, &text));
    findings.extend(passed.and_then(|passed| variables(name, &text, passed)));
    findings
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Checks that the kernel can run a script by its `#!` line (execve(2)); `None`: nothing is wrong. `name`: the script's
/// name, for the finding. `is_program`: returns `true` for the path of an executable file of this host.
fn first_line(name: &str, text: &str, is_program: &dyn Fn(&str) -> bool) -> Option<Finding> {
    const ABOUT: &str = "#!";
    let line = text.split('\n').next().unwrap_or_default();
    let Some(rest) = line.strip_prefix("#!") else {
        let what = format!("{name}: its first line is no `#!` line, so the kernel does not run it");
        return Some(Finding::wrong(
            ABOUT,
            what,
            "begin the script with #!/bin/sh, or with the interpreter of its language",
        ));
    };
    if rest.ends_with('\r') {
        let what =
            format!("{name}: its `#!` line ends with CR, which the kernel takes for a part of the interpreter's name");
        return Some(Finding::wrong(ABOUT, what, format!("sed -i 's/\\r$//' {name}")));
    }
    let mut words = rest.split_ascii_whitespace();
    let Some(interpreter) = words.next() else {
        let what = format!("{name}: its `#!` line names no interpreter");
        return Some(Finding::wrong(ABOUT, what, "name one, such as #!/bin/sh"));
    };
    if !interpreter.starts_with('/') {
        let what =
            format!("{name}: its #! line has a relative path ({interpreter}), which works in one directory only");
        return Some(Finding::wrong(ABOUT, what, "write the absolute path of the interpreter"));
    }
    if !is_program(interpreter) {
        let what = format!("{name}: there is no {interpreter} on this host");
        return Some(Finding::wrong(ABOUT, what, "install it on every node, or name another interpreter"));
    }
    let through_env = interpreter.ends_with("/env");
    // env takes options, such as -S, and variables.
    let of_env = words.find(|word| !word.starts_with('-') && !word.contains('=')).filter(|_| through_env)?;
    let there =
        of_env.contains('/') && is_program(of_env) || PATH.iter().any(|dir| is_program(&format!("{dir}/{of_env}")));
    (!there).then(|| {
        let what = format!("{name}: env finds no {of_env} on this host");
        Finding::wrong(ABOUT, what, "install it on every node, or name another interpreter")
    })
}

fn line_ends(name: &str, text: &str) -> Option<Finding> {
    let odd = text.lines().count() > 1 && text.split('\n').skip(1).any(|line| line.ends_with('\r'));
    odd.then(|| {
        let what = format!("{name}: lines end with CR LF, and a shell takes the CR for a part of the last word");
        Finding::wrong("lines", what, format!("sed -i 's/\\r$//' {name}"))
    })
}

/// Reports the variables PERILOG_..., SLURM_... and FLUX_... that a script reads and does not set, and that are not in
/// `passed`, the variables that the node passes to scripts. `None`: there are none. `name`: the script's name, for the
/// finding.
fn variables(name: &str, text: &str, passed: &BTreeSet<String>) -> Option<Finding> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut read, mut set) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with('#')) {
        let mut rest = line;
        while let Some(begin) = rest.find(is_part) {
            let word = &rest[begin..];
            let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            if PREFIXES.iter().any(|prefix| word.len() > prefix.len() && word.starts_with(prefix)) {
                // A script may have its own variables of such a name, and defaults for others (`${X:=1}`, `${X:-1}`).
                let own = after.starts_with('=') && !after.starts_with("==")
                    || after.starts_with(":=")
                    || after.starts_with(":-");
                if own {
                    set.insert(word)
                } else {
                    read.insert(word)
                };
            }
            rest = after;
        }
    }
    let unseen: Vec<&str> = read.into_iter().filter(|word| !set.contains(word) && !passed.contains(*word)).collect();
    (!unseen.is_empty()).then(|| {
        let what =
            format!("{name}: the script reads {}, but this node does not pass that to scripts", unseen.join(", "));
        Finding::warning("variables", what, "if the resource manager sets it, add it to env-allow in agent.toml")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_that_the_kernel_refuses_is_named() {
        let there = |path: &str| ["/bin/sh", "/usr/bin/env", "/usr/bin/python3"].contains(&path);
        #[rustfmt::skip]
        let table = [
            ("#!/bin/sh\n", None),
            ("#! /bin/sh -e\n", None),
            ("#!/usr/bin/env python3\n", None),
            ("#!/usr/bin/env -S python3 -u\n", None),
            ("#!/usr/bin/env X=1 python3", None),
            ("", Some("no `#!` line")),
            ("echo\n#!/bin/sh\n", Some("no `#!` line")),
            ("\u{feff}#!/bin/sh\n", Some("no `#!` line")),
            ("#!\n", Some("names no interpreter")),
            ("#!/bin/sh\r\n", Some("ends with CR")),
            ("#!bash\n", Some("relative path (bash)")),
            ("#!/bin/zsh\n", Some("no /bin/zsh")),
            ("#!/usr/bin/env ruby\n", Some("env finds no ruby")),
        ];
        for (text, expect) in table {
            let found = first_line("x", text, &there).map(|finding| finding.shown());
            assert_eq!(found.is_some(), expect.is_some(), "{text:?}: {found:?}");
            assert!(
                expect.is_none_or(|part| found.as_ref().is_some_and(|found| found.contains(part))),
                "{text:?}: {found:?}"
            );
        }
    }

    #[test]
    fn crlf_below_a_good_first_line_is_wrong() {
        assert!(line_ends("x", "#!/bin/sh\necho\r\n").is_some());
        for good in ["#!/bin/sh\necho\n", "#!/bin/sh", "#!/bin/sh\r\n"] {
            // The last one is the first line's finding.
            assert!(line_ends("x", good).is_none(), "{good:?}");
        }
    }

    #[test]
    fn variables_that_no_script_sees_are_named_once_each() {
        let passed = ["PERILOG_JOB".to_owned(), "SLURM_JOB_ID".to_owned()].into();
        let found = |text: &str| variables("x", text, &passed).map(|finding| finding.shown());
        assert_eq!(found("echo $PERILOG_JOB ${SLURM_JOB_ID}\n# $SLURM_JOB_USER\n  # and FLUX_URI\n"), None);
        assert_eq!(found("echo MY_SLURM_X SLURM_ $SLURMX"), None);
        assert_eq!(found("SLURM_MINE=1\necho $SLURM_MINE ${FLUX_X:-none}\n"), None);
        let text =
            "a=$SLURM_JOB_USER\nb=${SLURM_JOB_USER}\nimport os; os.environ['FLUX_JOB_ID']\n[ $PERILOG_NODE == x ]\n";
        let expect = "warning variables: x: the script reads FLUX_JOB_ID, PERILOG_NODE, SLURM_JOB_USER, but this node \
                      does not pass that to scripts";
        assert_eq!(found(text).as_deref(), Some(expect));
    }
}
