//! systemd: the state of units, and the few commands that change it.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::fault::Fault;
use crate::verb::doctor::daemon::last_error;
use crate::verb::shell;

/// Limit for systemctl(1): a controller with a large store takes minutes to start.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verb) struct State {
    pub(in crate::verb) enabled: bool,
    pub(in crate::verb) active: bool,
}

/// Returns `true` if systemd is the init process (pid 1) of this host.
pub(super) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Returns the state of a unit; `None` if systemd does not run, or has not loaded the unit because it is not
/// installed or is masked.
pub(in crate::verb) fn state(unit: &str) -> Result<Option<State>, Fault> {
    if !systemd_runs() {
        return Ok(None);
    }
    let output = shell::ask("systemctl", &["show", unit, "--property", "LoadState,ActiveState,UnitFileState"])
        .map_err(Fault::Other)?;
    if !output.ok {
        return Err(Fault::Other(format!("systemctl show {unit}: {}", output.stderr.trim())));
    }
    let shown: HashMap<&str, &str> = output.stdout.lines().filter_map(|line| line.split_once('=')).collect();
    let get = |name: &str| shown.get(name).copied().unwrap_or_default();
    let is_there = get("LoadState") == "loaded";
    Ok(is_there.then(|| State {
        enabled: get("UnitFileState") == "enabled",
        active: matches!(get("ActiveState"), "active" | "reloading"),
    }))
}

/// Runs systemctl(1).
///
/// # Errors
/// The program could not be started, failed, or did not end within [`LIMIT`].
pub(super) fn systemctl(arguments: &[&str]) -> Result<(), Fault> {
    let output = shell::ask_within(LIMIT, "systemctl", arguments).map_err(Fault::Other)?;
    if output.ok {
        return Ok(());
    }
    let why = output.stderr.lines().next().unwrap_or("no answer").trim();
    let unit = arguments.iter().find(|argument| argument.contains('.')).copied().unwrap_or_default();
    Err(Fault::Other(format!("systemctl {}: {why}{}", arguments.join(" "), last_error(unit))))
}

/// Returns the status line that the unit's daemon reports (`StatusText`).
pub(super) fn status_text(unit: &str) -> String {
    let output = shell::ask("systemctl", &["show", "--value", "--property", "StatusText", unit]);
    output.map(|output| output.stdout.trim().to_owned()).unwrap_or_default()
}

/// Returns the unit's last warning or error in the journal; `None`: there is none, or the journal cannot be read.
pub(super) fn last_warning(unit: &str) -> Option<String> {
    let asked = ["--unit", unit, "--priority", "warning", "--lines", "1", "--output", "cat", "--quiet", "--no-pager"];
    let output = shell::ask("journalctl", &asked).ok().filter(|output| output.ok)?;
    output.stdout.lines().last().map(str::to_owned).filter(|line| !line.is_empty())
}
