//! The daemon's unit: does it run, what did it say last, and with which program and limits.

use std::collections::HashMap;

use super::{Finding, Role, shell};

/// Open files that a daemon needs beside its connections.
const NOFILE_NODE: u64 = 1_024;
const NOFILE_CONTROLLER: u64 = 16_384;

pub(super) fn look(role: Role, findings: &mut Vec<Finding>) {
    const ABOUT: &str = "service";
    let unit = role.program();
    let properties = "ActiveState,SubState,UnitFileState,LoadState,MainPID,StatusText,LimitNOFILE,NRestarts";
    let said = shell::ask("systemctl", &["show", &format!("{unit}.service"), "--property", properties]);
    let shown = match said {
        Ok(said) if said.ok => properties_of(&said.stdout),
        Ok(said) => {
            let why = said.stderr.lines().next().unwrap_or("no answer").to_owned();
            findings.push(Finding::wrong(
                ABOUT,
                format!("systemd does not answer: {why}"),
                "see whether PID 1 and the bus are well",
            ));
            return;
        }
        Err(why) => {
            findings.push(Finding::wrong(
                ABOUT,
                format!("systemd cannot be asked: {why}"),
                "perilog needs systemd as PID 1",
            ));
            return;
        }
    };
    let get = |name: &str| shown.get(name).map(String::as_str).unwrap_or_default();
    findings.push(state(unit, &get));
    if get("LoadState") == "loaded"
        && !matches!(get("UnitFileState"), "enabled" | "enabled-runtime" | "linked" | "static")
    {
        let what = format!("{unit}.service is not enabled: it does not come up with this host");
        findings.push(Finding::warning(ABOUT, what, format!("systemctl enable {unit}")));
    }
    let pid = get("MainPID").parse::<u32>().ok().filter(|pid| *pid > 0);
    if let Some(pid) = pid {
        findings.extend(program(pid, unit));
    }
    findings.push(nofile(role, pid, get("LimitNOFILE")));
}

fn properties_of(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn state<'a>(unit: &str, get: &impl Fn(&str) -> &'a str) -> Finding {
    const ABOUT: &str = "service";
    match (get("LoadState"), get("ActiveState")) {
        ("not-found", _) => {
            Finding::wrong(ABOUT, format!("there is no {unit}.service"), format!("install the package {unit}"))
        }
        (_, "active") => {
            let status = get("StatusText");
            let status = if status.is_empty() { String::new() } else { format!(": {status}") };
            Finding::ok(ABOUT, format!("{unit} runs{status}"))
        }
        (_, "activating") => {
            let todo = format!("journalctl -u {unit} says what it waits for");
            Finding::warning(
                ABOUT,
                format!("{unit} is starting ({} restarts so far){}", get("NRestarts"), last_words(unit)),
                todo,
            )
        }
        (_, state) => {
            let todo = format!("systemctl start {unit}; journalctl -u {unit} says why it ended");
            Finding::wrong(ABOUT, format!("{unit} does not run ({state}){}", last_words(unit)), todo)
        }
    }
}

/// The last error in its log.
fn last_words(unit: &str) -> String {
    let asked = ["--unit", unit, "--priority", "err", "--lines", "1", "--output", "cat", "--quiet", "--no-pager"];
    let said = shell::ask("journalctl", &asked).ok().filter(|said| said.ok);
    let line = said.and_then(|said| said.stdout.lines().last().map(str::to_owned));
    line.filter(|line| !line.is_empty()).map(|line| format!("; its last error: {line}")).unwrap_or_default()
}

/// A package that was upgraded under a running daemon.
fn program(pid: u32, unit: &str) -> Option<Finding> {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let exe = exe.to_string_lossy().into_owned();
    let replaced = exe.strip_suffix(" (deleted)")?;
    let what = format!("{unit} still runs the program that {replaced} was before it was replaced");
    Some(Finding::warning("version", what, format!("systemctl restart {unit}: scripts go on meanwhile")))
}

fn nofile(role: Role, pid: Option<u32>, of_unit: &str) -> Finding {
    const ABOUT: &str = "open files";
    let unit = role.program();
    let limits = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok());
    let limit = limits.as_deref().and_then(soft_nofile).or_else(|| of_unit.parse().ok());
    let least = match role {
        Role::Node => NOFILE_NODE,
        Role::Controller => NOFILE_CONTROLLER,
    };
    match limit {
        None => Finding::skipped(ABOUT, "the limit of the daemon cannot be read"),
        Some(limit) if limit < least => {
            let todo = format!("systemctl edit {unit}: [Service] LimitNOFILE= as the package has it");
            Finding::wrong(ABOUT, format!("{unit} may open {limit} files: fewer than {least}"), todo)
        }
        Some(limit) => Finding::ok(ABOUT, format!("{unit} may open {limit} files")),
    }
}

/// `Max open files  SOFT  HARD  files` (proc(5)).
pub(super) fn soft_nofile(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn limits_are_read_from_proc() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            4096                 524288               files\nMax locked memory         8388608\n";
        assert_eq!(
            (soft_nofile(text), soft_nofile("Max open files unlimited unlimited files"), soft_nofile("")),
            (Some(4096), Some(u64::MAX), None)
        );
        let of = |role, limit| nofile(role, None, limit).level;
        assert_eq!(
            (of(Role::Node, "4096"), of(Role::Controller, "4096"), of(Role::Node, "?")),
            (Level::Ok, Level::Wrong, Level::Skipped)
        );
    }

    #[test]
    fn what_does_not_run_is_wrong() {
        let of = |load: &'static str, active: &'static str| {
            let get = move |name: &str| match name {
                "LoadState" => load,
                "ActiveState" => active,
                _ => "",
            };
            state("perilog-no-such-unit", &get)
        };
        assert_eq!(of("loaded", "active").level, Level::Ok);
        assert!(of("not-found", "inactive").what.contains("there is no"));
        let failed = of("loaded", "failed");
        assert!(failed.level == Level::Wrong && failed.todo.contains("systemctl start"), "{failed:?}");
    }
}
