//! Checks of the controller beside its configuration: a disk for the store, socket and port, executable hooks, agents
//! of the same version.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use perilog_core::HostList;
use perilog_core::controller::view::{NodeView, StatusView};
use serde::Deserialize;
use serde_json::json;
use toml::Table;

use super::{Finding, Role, config, failover, flux, kernel, limits};
use crate::endpoint::{Answer, Endpoint};
use crate::text;
use crate::verb::failover::hosts;

/// Least free space in bytes on the store's disk; with less, doctor reports `wrong`. The store keeps 8 MiB aside (its
/// reserve), so that running work can end on a full disk. Making the reserve takes twice its size, and without it the
/// controller refuses prologs.
const LEAST_DISK: u64 = 16 * 1024 * 1024;
/// Free space in bytes on the store's disk; with less, doctor warns.
const LITTLE_DISK: u64 = 1024 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(2);
/// Maximum number of node names in a finding.
const NAMES: usize = 20;

#[derive(Debug, Deserialize)]
struct Status {
    status: StatusView,
}

#[derive(Debug, Deserialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

pub(super) fn inspect(config: Option<&Table>, endpoint: &Endpoint, findings: &mut Vec<Finding>) {
    let is_passive = failover::inspect(config, findings);
    findings.extend(config.map(hooks).unwrap_or_default());
    if is_passive {
        return;
    }
    if let Some(config) = config {
        findings.extend(store(config));
        findings.extend(port(config));
    }
    let status: Result<Answer<Status>, _> = endpoint.ask("Status", &json!({}));
    let nodes = match status {
        Err(fault) => {
            findings.push(Finding::wrong(
                "socket",
                fault.to_string(),
                "systemctl status perilog-controller; journalctl -u perilog-controller",
            ));
            None
        }
        Ok(Answer { body: Status { status }, .. }) => {
            findings.extend(of_status(&status));
            if let Ok(answer) = endpoint.ask_all::<Nodes>("Nodes", &json!({}), &["/nodes"]) {
                findings.extend(agents(&status.version, &answer.body.nodes));
            }
            Some(status.nodes)
        }
    };
    limits::inspect(Role::Controller, nodes, findings);
    findings.extend(flux::inspect(config));
    kernel::for_many(nodes, config.and_then(hosts).is_some(), findings);
}

fn store(config: &Table) -> Vec<Finding> {
    const ABOUT: &str = "store";
    let Some(path) = config::text(config, &["store"]).map(Path::new) else { return Vec::new() };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let shown = directory.display();
    let room = match rustix::fs::statvfs(directory) {
        Ok(room) => room,
        Err(error) => {
            let todo = "systemctl start perilog-controller makes /var/lib/perilog; make any other directory yourself";
            return vec![Finding::wrong(ABOUT, format!("{shown}: {error}"), todo)];
        }
    };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let mib = free / 1024 / 1024;
    let size = std::fs::metadata(path).map(|found| found.len() / 1024 / 1024).ok();
    let size = size.map(|mib| format!("{} is {mib} MiB, ", path.display())).unwrap_or_default();
    let mut findings = vec![match free {
        ..LEAST_DISK => {
            let todo = "free space on this disk: the controller refuses prologs, and running work uses the store's \
                        reserve to end";
            Finding::wrong(ABOUT, format!("{mib} MiB are left on {shown}"), todo)
        }
        LEAST_DISK..LITTLE_DISK => {
            let todo = "free space on this disk, or lower retention or keep-attempts in controller.toml";
            Finding::warning(ABOUT, format!("{size}{mib} MiB are left on {shown}"), todo)
        }
        _ => Finding::ok(ABOUT, format!("{size}{mib} MiB are left on {shown}")),
    }];
    if let Ok(found) = std::fs::metadata(path).or_else(|_| std::fs::metadata(directory))
        && found.mode() & 0o077 != 0
        && found.is_file()
    {
        let todo = format!("chmod 0600 {}", path.display());
        findings.push(Finding::wrong(
            ABOUT,
            format!("{}: other users can read the output of scripts in it", path.display()),
            todo,
        ));
    }
    findings
}

fn hooks(config: &Table) -> Vec<Finding> {
    let commands = ["release", "drain"].into_iter().filter_map(|hook| {
        let table = config.get(hook)?.as_table()?;
        Some((hook, config::texts(table, "command").first().copied()?))
    });
    commands
        .map(|(hook, program)| match std::fs::metadata(program) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                Finding::ok("hooks", format!("[{hook}] {program} can be run"))
            }
            Ok(_) => {
                Finding::wrong("hooks", format!("[{hook}] {program} is not executable"), format!("chmod +x {program}"))
            }
            Err(error) => {
                let todo = format!("install the program; until then, {hook}s wait (perilog ps)");
                Finding::wrong("hooks", format!("[{hook}] {program}: {error}"), todo)
            }
        })
        .collect()
}

/// Checks whether a program listens on the controller's port for agents. Where the socket unit is in use, systemd
/// listens, even while the controller is down. `None`: the configuration has no valid address.
fn port(config: &Table) -> Option<Finding> {
    const ABOUT: &str = "port";
    let listen: SocketAddr = config::text(config, &["listen"])?.parse().ok()?;
    let own = if listen.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], listen.port())) } else { listen };
    Some(match TcpStream::connect_timeout(&own, CONNECT) {
        Ok(_) => Finding::ok(ABOUT, format!("a process listens on port {}", listen.port())),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{own}: {error}: no agent can connect"),
            "systemctl status perilog-controller.socket (shows the port, if this unit is enabled); check the firewall",
        ),
    })
}

fn of_status(status: &StatusView) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = env!("CARGO_PKG_VERSION");
    findings.push(if status.version == ours {
        Finding::ok("version", format!("controller and this perilog are {ours}"))
    } else {
        let what = format!("the version of the controller is {}, that of this perilog {ours}", status.version);
        Finding::warning(
            "version",
            what,
            "upgrade the older package; if perilog-controller is upgraded already, restart it: systemctl restart \
             perilog-controller",
        )
    });
    let away = status.nodes.saturating_sub(status.online);
    findings.push(match (status.nodes, away) {
        (0, _) => Finding::warning("nodes", "no node has ever connected", "on a node: perilog doctor node"),
        (_, 0) => Finding::ok("nodes", format!("{} online", text::count(status.nodes, "node"))),
        _ => Finding::warning(
            "nodes",
            format!("{away} of {} offline", text::count(status.nodes, "node")),
            "perilog nodes lists them; on one of them, type perilog doctor node",
        ),
    });
    if status.quiet.is_some() {
        findings.push(Finding::warning(
            "quiet",
            "an operator has quiesced the controller: nothing new begins",
            "perilog resume",
        ));
    }
    if status.outbox > 0 {
        let releases = text::count(status.outbox, "release");
        let what = format!("the release hook has not carried out {releases} yet");
        findings.push(Finding::warning("outbox", what, "perilog ps shows them, and what the hook printed"));
    }
    // While attempts are abandoned, the first note of the status says so.
    let notes = status.notes.iter().enumerate();
    findings.extend(notes.map(|(i, note)| match (&status.recovery, i) {
        (Some(_), 0) => Finding::wrong(
            "recovery",
            note.as_str(),
            "perilog ps --abandoned lists the attempts, each with the command to type if its job is over",
        ),
        _ => Finding::warning("note", note.as_str(), "perilog status"),
    }));
    findings
}

/// Reports the agents online whose version is not the controller's, one finding for each version. Versions N and N-1
/// work together; more versions than two mean a forgotten upgrade.
fn agents(controller: &str, nodes: &[NodeView]) -> Vec<Finding> {
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.state == "online") {
        by_version.entry(node.version.as_deref().unwrap_or("?")).or_default().push(&node.host);
    }
    let others: Vec<(&str, Vec<&str>)> = by_version.into_iter().filter(|(version, _)| *version != controller).collect();
    others
        .into_iter()
        .map(|(version, hosts)| {
            let few: Vec<&str> = hosts.iter().copied().take(NAMES).collect();
            let names = HostList::from_names(&few).map(|list| list.to_string()).unwrap_or_default();
            let more = if hosts.len() > NAMES { " and more" } else { "" };
            let count = text::count(hosts.len() as u64, "agent");
            let what = format!(
                "{count} of version {version} ({names}{more}), but the version of the controller is {controller}"
            );
            Finding::warning(
                "version",
                what,
                "upgrade the older ones; two successive versions (N and N-1) work together meanwhile",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn status(raw: serde_json::Value) -> StatusView {
        let mut all = json!({"version": env!("CARGO_PKG_VERSION"), "cluster": "c", "epoch": 1, "nodes": 4, "online": 4,
                             "jobs": 0,
            "actions_open": 0, "tasks_open": 0, "outbox": 0, "notes": []});
        all.as_object_mut().unwrap().extend(raw.as_object().unwrap().clone());
        StatusView::deserialize(all).unwrap()
    }

    #[test]
    fn an_abandoned_attempt_is_wrong() {
        let recovery = json!({"since_ms": 1, "why": "the store is a copy", "epoch": 2});
        let found = of_status(&status(
            json!({"recovery": recovery, "notes": ["1 attempt is abandoned (the store is a copy)", "quiet"]}),
        ));
        let level = |part: &str| found.iter().find(|finding| finding.what.contains(part)).map(|finding| finding.level);
        assert_eq!((level("1 attempt is abandoned"), level("quiet")), (Some(Level::Wrong), Some(Level::Warning)));
    }

    #[test]
    fn the_answers_of_the_controller_are_judged() {
        assert!(of_status(&status(json!({}))).iter().all(|finding| finding.level == Level::Ok));
        for (raw, part) in [
            (json!({"version": "9.9.9"}), "the controller is 9.9.9"),
            (json!({"online": 3}), "1 of 4 nodes offline"),
            (json!({"nodes": 0, "online": 0}), "no node has ever"),
            (json!({"outbox": 1}), "not carried out 1 release yet"),
            (json!({"outbox": 2}), "not carried out 2 releases yet"),
            (json!({"notes": ["the store's disk is full"]}), "disk is full"),
        ] {
            let found = of_status(&status(raw));
            let hit = found.iter().find(|finding| finding.what.contains(part));
            assert!(hit.is_some_and(|hit| hit.level == Level::Warning && !hit.todo.is_empty()), "{part}: {found:?}");
        }
    }

    #[test]
    fn hooks_must_be_programs() {
        let of = |text: &str| hooks(&text.parse().unwrap());
        assert_eq!(of("[release]\ntimeout = '1m'"), []);
        assert_eq!(of("[release]\ncommand = ['/bin/sh', '-c', 'x']")[0].level, Level::Ok);
        assert_eq!(of("[drain]\ncommand = ['/no/such']")[0].level, Level::Wrong);
        assert_eq!(of("[drain]\ncommand = ['/etc/passwd']")[0].level, Level::Wrong);
    }

    #[test]
    fn an_agent_of_another_version_is_named() {
        let node = |host: &str, version: &str| {
            NodeView::deserialize(json!({"host": host, "state": "online", "since_ms": 0, "machine": null, "boot": null,
                                         "boot_number": null,
                "version": version, "peer": null, "tasks": 0, "note": null}))
            .unwrap()
        };
        let nodes = [node("n0", "0.1.0"), node("n1", "0.2.0"), node("n2", "0.1.0")];
        let found = agents("0.2.0", &nodes);
        assert!(found.len() == 1 && found[0].what.contains("2 agents of version 0.1.0 (n[0,2])"), "{found:?}");
    }
}
