//! What a node's agent needs beside its configuration: the bus, the scripts as they must be, room in /run, and a controller that lets it in.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perilog_host::link::{Dial, dial};
use perilog_host::tls::{ClientTls, TlsFault};
use serde::Deserialize;
use serde_json::json;
use toml::Table;

use super::{Finding, config, tls};
use crate::door::{Answer, Daemon, Door};

const BUS: &str = "/run/dbus/system_bus_socket";
const RUN: &str = "/run/perilog";
const SOCKET: &str = "/run/perilog/agent.sock";
/// Of /run: an intent and an outcome are a few KiB, kept output 64 KiB for each failed script.
const LEAST_RUN: u64 = 16 * 1024 * 1024;
const LEAST_INODES: u64 = 1_000;
/// A controller on the same network answers in milliseconds.
const REACH: Duration = Duration::from_secs(5);

pub(super) fn look(config: Option<&Table>, findings: &mut Vec<Finding>) {
    findings.push(bus());
    findings.extend(run_directory(Path::new(RUN)));
    if let Some(config) = config {
        findings.extend(scripts(config));
        findings.extend(reach(config));
    }
    findings.extend(agent());
}

fn bus() -> Finding {
    const ABOUT: &str = "bus";
    match UnixStream::connect(BUS) {
        Ok(_) => Finding::ok(ABOUT, format!("{BUS} answers")),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{BUS}: {error}: no task can be started"),
            "systemctl status dbus.socket dbus.service; systemctl start dbus",
        ),
    }
}

/// Tasks are kept there, and outlive the agent.
fn run_directory(path: &Path) -> Vec<Finding> {
    const ABOUT: &str = "directories";
    let mut findings = Vec::new();
    let about = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings.push(Finding::skipped(ABOUT, format!("{about} is not there yet: perilog-agent.service makes it")));
        }
        Err(error) => findings.push(Finding::wrong(ABOUT, format!("{about}: {error}"), "see what is in its place")),
        Ok(found) if !found.is_dir() || found.uid() != 0 || found.mode() & 0o022 != 0 => {
            let todo = format!("chown root: {about}; chmod 0755 {about}");
            findings.push(Finding::wrong(ABOUT, format!("{about} is not a directory that only root can write"), todo));
        }
        Ok(_) => findings.push(Finding::ok(ABOUT, format!("{about} is root's"))),
    }
    let on = if path.exists() { path } else { Path::new("/run") };
    if let Ok(room) = rustix::fs::statvfs(on) {
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        let mib = free / 1024 / 1024;
        findings.push(if free < LEAST_RUN || (room.f_files > 0 && room.f_favail < LEAST_INODES) {
            let what = format!(
                "{mib} MiB and {} files are left on {}: tasks are refused when it is full",
                room.f_favail,
                on.display()
            );
            Finding::wrong(ABOUT, what, "find what fills it: du -x /run")
        } else {
            Finding::ok(ABOUT, format!("{mib} MiB are left on {}", on.display()))
        });
    }
    findings
}

/// Whoever can write a script, or a directory above it, is root on this node.
fn scripts(config: &Table) -> Vec<Finding> {
    const ABOUT: &str = "scripts";
    let Some(actions) = config.get("action").and_then(toml::Value::as_table).filter(|actions| !actions.is_empty())
    else {
        let todo = "write a table such as [action.prolog] into /etc/perilog/agent.d/prolog.toml";
        return vec![Finding::warning(ABOUT, "no action is configured: every task is refused", todo)];
    };
    let mut findings = Vec::new();
    for (name, action) in actions {
        let Some(action) = action.as_table() else { continue };
        let command: Vec<PathBuf> = config::texts(action, "command").first().map(PathBuf::from).into_iter().collect();
        let directories = config::texts(action, "directories").into_iter().map(PathBuf::from);
        let mut count = 0;
        let mut wrong = Vec::new();
        for program in &command {
            wrong.extend(untrusted(program));
            count += 1;
        }
        for directory in directories.filter(|_| command.is_empty()) {
            wrong.extend(untrusted(&directory));
            match std::fs::read_dir(&directory) {
                Err(error) => {
                    let todo = format!("mkdir {}, or leave it out of `directories`", directory.display());
                    wrong.push(Finding::wrong(
                        ABOUT,
                        format!("{name}: {}: {error}: every task fails", directory.display()),
                        todo,
                    ));
                }
                Ok(entries) => {
                    let mut paths: Vec<PathBuf> =
                        entries.flatten().map(|entry| entry.path()).filter(|p| is_script(p)).collect();
                    paths.sort();
                    for path in paths {
                        wrong.extend(untrusted_file(&path));
                        count += 1;
                    }
                }
            }
        }
        if wrong.is_empty() {
            findings.push(Finding::ok(ABOUT, format!("{name}: {}", crate::text::count(count, "script"))));
        }
        findings.append(&mut wrong);
    }
    findings
}

/// Names that a task skips.
fn is_script(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let skipped = [".bak", ".swp", "~"].iter().any(|end| name.ends_with(end)) || name.starts_with('.');
    !skipped && !name.contains(".rpm") && !name.contains(".dpkg-") && path.is_file()
}

/// Itself and all above it.
fn untrusted(path: &Path) -> Vec<Finding> {
    path.ancestors().filter_map(written_by_others).collect()
}

fn untrusted_file(path: &Path) -> Option<Finding> {
    let found = written_by_others(path);
    let runs = || std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o111 != 0);
    found.or_else(|| {
        (!runs()).then(|| {
            let path = path.display();
            Finding::warning(
                "scripts",
                format!("{path} is not executable: it is skipped"),
                format!("chmod +x {path}, or take it away"),
            )
        })
    })
}

fn written_by_others(path: &Path) -> Option<Finding> {
    // What is not there was named by whoever looked for it.
    let found = std::fs::metadata(path).ok()?;
    // A directory like /tmp is nobody's to rename things in.
    let sticky = found.is_dir() && found.mode() & 0o1000 != 0;
    let bad =
        found.uid() != 0 || (found.mode() & 0o002 != 0 && !sticky) || (found.mode() & 0o020 != 0 && found.gid() != 0);
    let path = path.display();
    bad.then(|| {
        Finding::wrong(
            "scripts",
            format!("{path}: others than root can write it: tasks fail"),
            format!("chown root: {path}; chmod go-w {path}"),
        )
    })
}

/// Dials each controller as the agent does, and hears whether it is let in.
fn reach(config: &Table) -> Vec<Finding> {
    const ABOUT: &str = "controller";
    let addresses = config::texts(config, "controller");
    if addresses.is_empty() {
        let what = "no controller is configured: this host runs its own tasks only";
        return vec![Finding::warning(ABOUT, what, "controller = [\"mgmt1:5115\"] in agent.toml")];
    }
    let client = match tls::files(config).map(|files| ClientTls::load(&files)).transpose() {
        Ok(client) => client,
        Err(_) => return vec![Finding::skipped(ABOUT, "not dialled: the certificates cannot be used")],
    };
    let name = config::text(config, &["tls", "server-name"]);
    addresses.into_iter().map(|address| one(address, client.clone(), name)).collect()
}

fn one(address: &str, client: Option<ClientTls>, name: Option<&str>) -> Finding {
    const ABOUT: &str = "controller";
    let todo = format!(
        "ping it; on it: systemctl status perilog-controller.socket perilog-controller; a firewall between? ({address})"
    );
    let mut to = match client {
        Some(client) => Dial::tls(address, client),
        None => Dial::plain(address),
    };
    to.limit = REACH;
    if let Some(name) = name {
        to.server_name = name.to_owned();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Finding::skipped(ABOUT, format!("not dialled: {error}")),
    };
    let greeted = runtime.block_on(async {
        let mut link = dial(&to).await.map_err(|error| error.to_string())?;
        // It speaks first, and only when it has looked at our certificate.
        match tokio::time::timeout(REACH, link.reader.next()).await {
            Err(_) => Err(format!(
                "{address} is connected and silent: its controller hangs, or does not run behind its socket"
            )),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(None)) => Err(format!("{address} closed the connection")),
            Ok(Ok(Some(_))) => Ok(link.peer),
        }
    });
    match greeted {
        Ok(peer) => Finding::ok(ABOUT, format!("{address} ({peer}) answers and takes our certificate")),
        Err(why) => Finding::wrong(
            ABOUT,
            why.clone(),
            if why.contains(&TlsFault::RefusedByPeer.to_string()) {
                "its log says what it dislikes about this host's certificate: journalctl -u perilog-controller there"
                    .to_owned()
            } else if why.contains("certificate") {
                "compare the `ca` files of both sides, and the name in the controller's certificate with the address (or set tls.server-name)".to_owned()
            } else {
                todo
            },
        ),
    }
}

#[derive(Debug, Deserialize)]
struct Status {
    host: String,
    controller: Option<String>,
    connected: bool,
}

/// What the agent says itself.
fn agent() -> Option<Finding> {
    const ABOUT: &str = "agent";
    let door = Door { daemon: Daemon::Agent, path: SOCKET.into() };
    let answer: Result<Answer<Status>, _> = door.ask("Status", &json!({}));
    Some(match answer {
        Ok(Answer { body, .. }) if body.connected => {
            let controller = body.controller.unwrap_or_else(|| "its controller".to_owned());
            Finding::ok(ABOUT, format!("{} has a session with {controller}", body.host))
        }
        Ok(Answer { body, .. }) => Finding::wrong(
            ABOUT,
            format!("{} has no session with a controller", body.host),
            "journalctl -u perilog-agent says why; scripts that run go on",
        ),
        // The unit was looked at; it is told there when it does not run.
        Err(fault) if !Path::new(SOCKET).exists() => Finding::skipped(ABOUT, format!("does not answer: {fault}")),
        Err(fault) => Finding::wrong(ABOUT, fault.to_string(), "systemctl status perilog-agent"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Level;
    use super::*;

    #[test]
    fn scripts_that_others_can_write_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in
            [("10-good", 0o755), ("20-open", 0o777), ("30-data", 0o644), ("40-old.bak", 0o777), (".hidden", 0o777)]
        {
            std::fs::write(at(name), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let found: Vec<(Level, String)> = ["10-good", "20-open", "30-data"]
            .iter()
            .filter_map(|name| untrusted_file(&at(name)))
            .map(|finding| (finding.level, finding.what))
            .collect();
        if rustix::process::geteuid().is_root() {
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found[0].0 == Level::Wrong && found[0].1.contains("20-open"));
            assert!(found[1].0 == Level::Warning && found[1].1.contains("30-data is not executable"));
        }
        assert!(is_script(&at("10-good")) && !is_script(&at("40-old.bak")) && !is_script(&at(".hidden")));
    }

    #[test]
    fn an_action_that_cannot_run_is_wrong() {
        let of = |text: &str| scripts(&text.parse().unwrap());
        assert!(of("x = 1")[0].what.contains("no action is configured"));
        let missing = of("[action.prolog]\ndirectories = ['/no/such/prolog.d']");
        assert!(missing[0].level == Level::Wrong && missing[0].what.contains("/no/such/prolog.d"), "{missing:?}");
    }

    #[test]
    fn nobody_there_is_said_with_the_address() {
        // A port of loopback that was just let go of.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let found = one(&format!("127.0.0.1:{port}"), None, None);
        assert!(
            found.level == Level::Wrong && found.what.contains(&port.to_string()) && !found.todo.is_empty(),
            "{found:?}"
        );
    }
}
