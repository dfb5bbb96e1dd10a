//! Check of each source file: its number of lines, and the comment (`//!`) at its top.

use super::Findings;

/// Number of lines above which a source file gets a warning; above `TOO_LONG`, an error.
const WORTH_A_THOUGHT: usize = 450;
const TOO_LONG: usize = 700;
/// Folder of the rooms of the controller's machine, and the maximum number of lines of a room, tests not counted.
const ROOM: (&str, usize) = ("core/src/controller/", 400);
/// Maximum number of lines of a `main.rs`, which parses, configures, builds, runs and exits.
const MAIN: usize = 80;

pub(super) fn check(name: &str, text: &str, is_main: bool, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > TOO_LONG {
        findings.errors.push(format!("{name}: {lines} lines, more than {TOO_LONG}: what is its second room called?"));
    } else if lines > WORTH_A_THOUGHT {
        findings.warnings.push(format!("{name}: {lines} lines, more than {WORTH_A_THOUGHT}"));
    }
    let (rooms, most) = ROOM;
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
    if name.starts_with(rooms) && !name.contains("/tests/") && code > most {
        findings.errors.push(format!("{name}: {code} lines without tests, more than {most}: split the room"));
    }
    if is_main && lines > MAIN {
        findings.errors.push(format!("{name}: {lines} lines, and a main has at most {MAIN}"));
    }
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    // The tested file explains the tests beside it.
    let beside = name.contains("/src/") && (name.contains("/tests/") || name.ends_with("/tests.rs"));
    let explained = beside || first.is_some_and(|line| line.starts_with("//!"));
    if !explained {
        findings.errors.push(format!("{name}: does not begin with `//!`, what it is and what it is not"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_headers() {
        let lines = |count: usize| format!("//! x\n{}", "\n".repeat(count - 1));
        let cases = [
            (lines(450), false, 0, 0),
            (lines(451), false, 0, 1),
            (lines(700), false, 0, 1),
            (lines(701), false, 1, 0),
            (lines(80), true, 0, 0),
            (lines(81), true, 1, 0),
            ("#![forbid(unsafe_code)]\n//! x\n".into(), false, 0, 0),
            ("// x\n".into(), false, 1, 0),
            (String::new(), false, 1, 0),
        ];
        for (text, is_main, errors, warnings) in cases {
            let mut findings = Findings::default();
            check("x.rs", &text, is_main, &mut findings);
            assert_eq!((findings.errors.len(), findings.warnings.len()), (errors, warnings), "{findings:?}");
        }
        let tests = format!("#[cfg(test)]\n{}", "\n".repeat(40));
        for (name, count, errors) in [("a.rs", 400, 0), ("a.rs", 401, 1), ("tests/a.rs", 401, 0)] {
            let mut findings = Findings::default();
            check(&format!("core/src/controller/{name}"), &(lines(count) + &tests), false, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{name} {count}: {findings:?}");
        }
    }
}
