//! Checks of a controller on two hosts: this host is one of them, the cluster manager alone starts the controller, and
//! the other host has the same configuration, asked there over ssh.

use std::path::Path;

use perilog_core::HostList;
use toml::Table;

use super::{Finding, shell};
use crate::verb::failover::{self, Inventory};

const ABOUT: &str = "failover";
/// Command that prints systemd's start limit of the controller.
const START_LIMIT: [&str; 5] =
    ["show", "perilog-controller.service", "--property", "StartLimitIntervalUSec", "--value"];

/// Adds the findings about two hosts, if `[failover]` is configured. Returns `true` if this host is the passive one,
/// where no store, socket or port is to be expected.
pub(super) fn inspect(config: Option<&Table>, findings: &mut Vec<Finding>) -> bool {
    let Some(config) = config else { return false };
    let (Some(hosts), Some(mount)) = (failover::hosts(config), failover::mount(config)) else { return false };
    let own = match failover::inventory::here(false) {
        Ok(own) => own,
        Err(fault) => {
            findings.push(Finding::wrong(ABOUT, fault.to_string(), "run doctor as root"));
            return !failover::is_mounted(mount);
        }
    };
    findings.extend(alone(&own, &hosts, mount));
    findings
        .extend(start_limit(&shell::ask("systemctl", &START_LIMIT).map(|output| output.stdout).unwrap_or_default()));
    let listed = hosts.listed(&own.host);
    for host in hosts.iter().filter(|host| Some(*host) != listed) {
        match failover::ask(host, false) {
            Ok(other) => findings.extend(compared(&own, &other)),
            Err(why) => {
                let todo = format!(
                    "let root here log in to {host} by ssh without a password, or type on {host}: perilog doctor \
                     controller"
                );
                findings.push(Finding::warning(ABOUT, format!("not compared: {why}"), todo));
            }
        }
    }
    !own.mounted && !own.active
}

/// Judges this host by itself.
fn alone(own: &Inventory, hosts: &HostList, mount: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    let (name, mount) = (&own.host, mount.display());
    if hosts.listed(name).is_none() {
        let todo = "correct `hosts` below [failover] on every host";
        found.push(Finding::wrong(ABOUT, format!("this host is {name}, and [failover] hosts is {hosts}"), todo));
    }
    if !own.enabled.is_empty() {
        let units = own.enabled.join(" ");
        let what = format!("systemd starts {units} at boot, and so does the cluster manager");
        found.push(Finding::wrong(ABOUT, what, format!("systemctl disable {units}")));
    }
    if own.socket {
        let what = "perilog-controller.socket is active: it would start the controller here after a move to the other \
                    host, and hold the disk";
        found.push(Finding::wrong(ABOUT, what, "systemctl stop perilog-controller.socket"));
    }
    found.push(match (own.mounted, own.active) {
        (true, true) => Finding::ok(ABOUT, format!("this host is active: {mount} is mounted here")),
        (false, false) => Finding::ok(ABOUT, format!("this host is passive: {mount} is not mounted here")),
        (true, false) => {
            let what = format!("{mount} is mounted here, and the controller does not run");
            Finding::wrong(ABOUT, what, "crm_mon -1; journalctl -u perilog-controller")
        }
        (false, true) => {
            let what = format!("the controller runs, and {mount} is not mounted here");
            Finding::wrong(ABOUT, what, "systemctl stop perilog-controller.socket perilog-controller.service")
        }
    });
    found
}

/// Judges the start limit as systemctl prints it; `0`: no limit, so a controller that ends again and again never fails.
fn start_limit(shown: &str) -> Option<Finding> {
    let what = "systemd starts the controller again for ever, so the cluster manager never sees it fail, and does not \
                move it";
    let todo = "set StartLimitIntervalSec=2min and StartLimitBurst=5 below [Unit] in \
                /etc/systemd/system/perilog-controller.service.d/failover.conf; systemctl daemon-reload";
    (shown.trim() == "0").then(|| Finding::warning(ABOUT, what, todo))
}

fn compared(own: &Inventory, other: &Inventory) -> Vec<Finding> {
    let differences = failover::between(own, other);
    if differences.is_empty() {
        let what = format!("{} has the same configuration, authority, hooks, user and version", other.host);
        return vec![Finding::ok(ABOUT, what)];
    }
    let finding = |of: failover::Difference| match of.is_wrong {
        true => Finding::wrong(ABOUT, of.what, of.todo),
        false => Finding::warning(ABOUT, of.what, of.todo),
    };
    differences.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_active_or_passive_or_wrong() {
        let hosts: HostList = "ctl[0-1]".parse().unwrap();
        let shown = |own: Inventory| {
            let found = alone(&own, &hosts, Path::new("/var/lib/perilog"));
            found.iter().map(Finding::shown).collect::<Vec<_>>()
        };
        let of = |host: &str, mounted, active, enabled: &[&str]| {
            let enabled = enabled.iter().map(|unit| (*unit).to_owned()).collect();
            shown(Inventory { host: host.to_owned(), mounted, active, enabled, ..Inventory::default() })
        };
        for (found, expected) in [
            (of("ctl0", true, true, &[]), vec!["ok failover: this host is active: /var/lib/perilog is mounted here"]),
            (
                of("ctl1.hpc", false, false, &[]),
                vec!["ok failover: this host is passive: /var/lib/perilog is not mounted here"],
            ),
            (
                of("ctl1", true, false, &[]),
                vec!["wrong failover: /var/lib/perilog is mounted here, and the controller does not run"],
            ),
            (
                of("n0", false, true, &["perilog-controller.service"]),
                vec![
                    "wrong failover: this host is n0, and [failover] hosts is ctl[0-1]",
                    "wrong failover: systemd starts perilog-controller.service at boot, and so does the cluster \
                     manager",
                    "wrong failover: the controller runs, and /var/lib/perilog is not mounted here",
                ],
            ),
        ] {
            assert_eq!(found, expected);
        }
        // A restore started it beside the service.
        let active = Inventory { host: "ctl0".to_owned(), mounted: true, active: true, ..Inventory::default() };
        let found = shown(Inventory { socket: true, ..active });
        let [socket, active] = &found[..] else { panic!("{found:?}") };
        assert!(socket.starts_with("wrong failover: perilog-controller.socket is active"), "{socket}");
        assert!(active.starts_with("ok failover: this host is active"), "{active}");
    }

    #[test]
    fn a_controller_that_never_fails_is_never_moved() {
        let shown = |text| start_limit(text).map(|found| found.shown());
        assert!(shown("0\n").is_some_and(|found| found.starts_with("warning failover: systemd starts")));
        assert_eq!((shown("2min\n"), shown("")), (None, None));
    }
}
