//! The runner's own unit: whether its scripts work on the host, or in a world of their own. A drop-in for all services
//! (`service.d`) may give each unit a mount namespace: what a prolog mounts is then gone with the prolog.
//!
//! The package's drop-in (`zz-perilog.conf`) keeps such settings off. The runner checks what it sees from inside, where
//! that drop-in is missing or overridden.

use std::fs;
use std::process::{Command, Stdio};

use perilog_core::defect;
use perilog_core::drop_ins::{Overriding, PIN};

/// Namespaces that a setting of systemd gives to a service, each with what the scripts lose.
const NAMESPACES: [(&str, &str); 5] = [
    ("mnt", "a mount namespace of its own, and what scripts mount or leave in /tmp is not the host's"),
    ("user", "a user namespace of its own"),
    ("net", "a network namespace of its own"),
    ("ipc", "an IPC namespace of its own"),
    ("uts", "a host name of its own"),
];
/// Fields of `/proc/PID/status` that a service has in common with PID 1, each with its meaning.
const FIELDS: [(&str, &str); 2] =
    [("NoNewPrivs", "NoNewPrivileges="), ("CapBnd", "fewer capabilities than PID 1 (CapabilityBoundingSet=)")];

/// Checks that the scripts of this unit work on the host as PID 1 does.
///
/// # Errors
/// The difference as a sentence, with the drop-ins that may be its cause. A site's own drop-in for tasks is no error.
pub(crate) fn check(stem: &str) -> Result<(), String> {
    if defect!(UnitAsItComes) {
        return Ok(());
    }
    let differences = differences();
    if differences.is_empty() {
        return Ok(());
    }
    let overriding = Overriding::among(drop_ins(stem).lines().flat_map(str::split_ascii_whitespace));
    if overriding.of_others.is_empty() && !overriding.of_tasks.is_empty() {
        return Ok(());
    }
    Err(format!("its unit has {}; {}", differences.join(", "), cause(&overriding, stem)))
}

/// Returns the cause of a unit that differs from PID 1, with the remedy, for operators.
fn cause(overriding: &Overriding, stem: &str) -> String {
    let files = overriding.of_others.join(", ");
    match overriding {
        _ if files.is_empty() => format!("to see the settings: systemctl cat {stem}.service"),
        // Without the package's drop-in, each file for all services changes the unit, whatever its name is.
        Overriding { is_pinned: false, .. } => format!(
            "caused by {files}, because {PIN} of the package is missing: install the package perilog-agent again, then \
             run systemctl daemon-reload"
        ),
        _ => format!(
            "caused by {files}: rename the file so that it sorts before {PIN}; if it is meant for tasks, move it to \
             /etc/systemd/system/perilog-task-.service.d; then run systemctl daemon-reload"
        ),
    }
}

/// Returns how this process differs from PID 1. What /proc does not show counts as equal: in some containers root may
/// not look at PID 1.
fn differences() -> Vec<&'static str> {
    let namespace = |of: &str, name: &str| fs::read_link(format!("/proc/{of}/ns/{name}")).ok();
    let status = |of: &str| fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    let (own, first) = (status("self"), status("1"));
    let other = |name: &str| namespace("self", name).zip(namespace("1", name)).is_some_and(|(own, first)| own != first);
    let namespaces = NAMESPACES.iter().filter(|(name, _)| other(name));
    let fields = FIELDS
        .iter()
        .filter(|(name, _)| field(&own, name).zip(field(&first, name)).is_some_and(|(own, first)| own != first));
    namespaces.chain(fields).map(|(_, lost)| *lost).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the paths of the unit's drop-ins, as systemctl prints them; empty if systemctl does not answer.
fn drop_ins(stem: &str) -> String {
    let shown = Command::new("systemctl")
        .args(["show", "--property=DropInPaths", "--value", "--", &format!("{stem}.service")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a file decides nothing where the package's drop-in is missing.
    #[test]
    fn the_remedy_is_that_of_the_cause() {
        let pin = "/usr/lib/systemd/system/perilog-task-.service.d/zz-perilog.conf";
        let of_all = "/etc/systemd/system/service.d/zzz-site.conf";
        let early = "/etc/systemd/system/service.d/10-site.conf";
        for (paths, remedy) in [
            (vec![pin, of_all], "zzz-site.conf: rename the file so that it sorts before zz-perilog.conf"),
            (vec![early], "10-site.conf, because zz-perilog.conf of the package is missing: install the package"),
            (vec![], "to see the settings: systemctl cat perilog-task-x.service"),
        ] {
            let text = cause(&Overriding::among(paths), "perilog-task-x");
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "Name:\tx\nCapBnd:\t0001\nNoNewPrivs:\t1\n";
        assert_eq!(
            (field(status, "NoNewPrivs"), field(status, "CapBnd"), field(status, "Cap")),
            (Some("1"), Some("0001"), None)
        );
    }
}
