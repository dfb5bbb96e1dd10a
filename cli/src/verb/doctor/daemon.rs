//! Checks of the daemon's unit: whether it runs, its last log lines, and its program.

use std::collections::HashMap;

use super::{Finding, Role, shell};
use crate::text;

/// Adds the findings about the daemon's unit. `starts_at_boot`: systemd starts the unit at boot, and no cluster manager
/// does.
pub(super) fn inspect(role: Role, starts_at_boot: bool, findings: &mut Vec<Finding>) {
    const ABOUT: &str = "service";
    let unit = role.program();
    let properties = "ActiveState,SubState,UnitFileState,LoadState,MainPID,StatusText,NRestarts";
    let output = shell::ask("systemctl", &["show", &format!("{unit}.service"), "--property", properties]);
    let shown = match output {
        Ok(output) if output.ok => properties_of(&output.stdout),
        Ok(output) => {
            let why = output.stderr.lines().next().unwrap_or("no answer").to_owned();
            findings.push(Finding::wrong(
                ABOUT,
                format!("systemd does not answer: {why}"),
                "check whether systemd (PID 1) and the system bus work",
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
    if starts_at_boot
        && get("LoadState") == "loaded"
        && !matches!(get("UnitFileState"), "enabled" | "enabled-runtime" | "linked" | "static")
    {
        let what = format!("{unit}.service is not enabled: it does not start when this host boots");
        findings.push(Finding::warning(ABOUT, what, format!("systemctl enable {unit}")));
    }
    let pid = get("MainPID").parse::<u32>().ok().filter(|pid| *pid > 0);
    findings.extend(pid.and_then(|pid| program(pid, unit)));
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
            let todo = format!("journalctl -u {unit} shows what {unit} waits for");
            let restarts = text::count(get("NRestarts").parse().unwrap_or(0), "restart");
            let what = format!("{unit} is starting ({restarts} so far){}", last_error(unit));
            Finding::warning(ABOUT, what, todo)
        }
        (_, state) => {
            let todo = format!("systemctl start {unit}; journalctl -u {unit} shows why it ended");
            Finding::wrong(ABOUT, format!("{unit} does not run ({state}){}", last_error(unit)), todo)
        }
    }
}

/// Returns the unit's last error in the journal, written by the daemon or by systemd, as text to append to a sentence:
/// `; its last error: ...`. Empty if there is no error.
pub(in crate::verb) fn last_error(unit: &str) -> String {
    let asked = ["--unit", unit, "--priority", "err", "--lines", "1", "--output", "cat", "--quiet", "--no-pager"];
    let output = shell::ask("journalctl", &asked).ok().filter(|output| output.ok);
    let line = output.and_then(|output| output.stdout.lines().last().map(str::to_owned));
    line.filter(|line| !line.is_empty()).map(|line| format!("; its last error: {line}")).unwrap_or_default()
}

/// Reports that a package was upgraded and the daemon still runs the old program; `None`: the program is the installed
/// one.
fn program(pid: u32, unit: &str) -> Option<Finding> {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let exe = exe.to_string_lossy().into_owned();
    let replaced = exe.strip_suffix(" (deleted)")?;
    let what = format!("{unit} still runs its old program: {replaced} was replaced after the start");
    Some(Finding::warning("version", what, format!("systemctl restart {unit}; scripts keep running meanwhile")))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

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
