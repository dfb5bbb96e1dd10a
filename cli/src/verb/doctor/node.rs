//! Checks of a node's agent other than those of its configuration: the bus, room in /run, and a controller that accepts
//! the agent and speaks the same protocol.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use perilog_core::task::RUNNER;
use perilog_host::link::{Dial, dial};
use perilog_host::scripts::is_noexec;
use perilog_host::tls::{ClientTls, TlsFault};
use perilog_proto::negotiate;
use serde::Deserialize;
use serde_json::json;
use toml::Table;

use super::{Finding, Role, config, drop_ins, enroll, flux, limits, scripts, slurm, tls, version};
use crate::endpoint::{Answer, Daemon, Endpoint};

const BUS: &str = "/run/dbus/system_bus_socket";
const RUN: &str = "/run/perilog";
const SOCKET: &str = "/run/perilog/agent.sock";
/// Least free space of /run in bytes; with less, doctor's finding is wrong. An intent and an outcome have a few KiB,
/// kept output 64 KiB for each failed script.
const LEAST_RUN: u64 = 16 * 1024 * 1024;
const LEAST_INODES: u64 = 1_000;
/// Time limit for a controller's answer; on the same network a controller answers in milliseconds.
const REACH: Duration = Duration::from_secs(5);

pub(super) fn inspect(config: Option<&Table>, findings: &mut Vec<Finding>) {
    findings.push(bus());
    findings.extend(run_directory(Path::new(RUN)));
    findings.extend(runner(Path::new(RUNNER)));
    drop_ins::inspect(findings);
    let endpoint = Endpoint { daemon: Daemon::Agent, path: SOCKET.into() };
    let agent_version = version::of_agent(&endpoint, &config::program(Role::Node).to_string_lossy());
    findings.push(version::agent_and_ours(agent_version.as_deref()));
    if let Some(config) = config {
        findings.extend(scripts::inspect(config));
        findings.extend(slurm::inspect(config));
        findings.extend(reach(config, agent_version.as_deref()));
    }
    findings.extend(flux::on_a_node());
    findings.extend(agent(&endpoint, config.is_none_or(has_controller)));
    limits::inspect(Role::Node, None, findings);
}

/// Checks that systemd can execute the program of a task's unit; `None`: it can.
fn runner(path: &Path) -> Option<Finding> {
    let why = match std::fs::metadata(path) {
        Err(error) => error.to_string(),
        Ok(found) if !found.is_file() || found.mode() & 0o111 == 0 => "not an executable file".to_owned(),
        Ok(_) if is_noexec(path) => "its file system is mounted noexec".to_owned(),
        Ok(_) => return None,
    };
    let what = format!("{}: {why}; systemd cannot execute it, so every task fails", path.display());
    Some(Finding::wrong("runner", what, "install the package perilog-agent again"))
}

fn bus() -> Finding {
    const ABOUT: &str = "bus";
    match UnixStream::connect(BUS) {
        Ok(_) => Finding::ok(ABOUT, format!("{BUS} answers")),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{BUS}: {error}; no task can be started"),
            "systemctl status dbus.socket dbus.service; systemctl start dbus",
        ),
    }
}

/// Checks the directory in which the agent keeps its tasks: owner, mode, and free space.
fn run_directory(path: &Path) -> Vec<Finding> {
    const ABOUT: &str = "directories";
    let mut findings = Vec::new();
    let about = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings
                .push(Finding::skipped(ABOUT, format!("{about} does not exist yet; perilog-agent.service makes it")));
        }
        Err(error) => {
            findings.push(Finding::wrong(ABOUT, format!("{about}: {error}"), "check what exists at this path"))
        }
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
                "{mib} MiB and {} files are left on {}; when it is full, the agent refuses tasks",
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

/// Returns `true` if this node should have a session with a controller, now or after enrolling.
pub(super) fn has_controller(config: &Table) -> bool {
    !config::texts(config, "controller").is_empty() || enroll::renews_itself(config)
}

/// Dials each configured controller as the agent does. Reports whether the controller accepts the node, and whether its
/// version fits the agent's (`agent`; `None`: unknown).
fn reach(config: &Table, agent: Option<&str>) -> Vec<Finding> {
    const ABOUT: &str = "controller";
    let addresses = config::texts(config, "controller");
    if addresses.is_empty() {
        let what = "no controller is configured: this host runs only its own tasks";
        return vec![Finding::ok(ABOUT, what)];
    }
    let client = match tls::files(config).map(|files| ClientTls::load(&files)).transpose() {
        Ok(client) => client,
        Err(_) => {
            return vec![Finding::skipped(
                ABOUT,
                "the controller was not dialled, because the certificates cannot be used",
            )];
        }
    };
    let name = config::text(config, &["tls", "server-name"]);
    addresses.into_iter().flat_map(|address| one(address, client.clone(), name, agent)).collect()
}

fn one(address: &str, client: Option<ClientTls>, name: Option<&str>, agent: Option<&str>) -> Vec<Finding> {
    const ABOUT: &str = "controller";
    let todo = format!(
        "check that {address} is the address of the controller and answers ping; on the controller's host, type \
         systemctl status perilog-controller.socket perilog-controller; check firewalls between the hosts"
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
        Err(error) => return vec![Finding::skipped(ABOUT, format!("not dialled: {error}"))],
    };
    let greeted = runtime.block_on(async {
        let mut link = dial(&to).await.map_err(|error| error.to_string())?;
        // A controller sends first, but only after checking the client's certificate.
        match tokio::time::timeout(REACH, link.reader.next()).await {
            Err(_) => Err(format!(
                "{address} accepts the connection but sends nothing: the controller hangs, or only its socket unit runs"
            )),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(None)) => Err(format!("{address} closed the connection")),
            Ok(Ok(Some(preamble))) => Ok((link.peer, negotiate(&preamble))),
        }
    });
    match greeted {
        Ok((peer, greeting)) => {
            let greeted = Finding::ok(ABOUT, format!("{address} ({peer}) answers and accepts this node's certificate"));
            vec![greeted, version::agent_and_controller(agent, address, &greeting)]
        }
        Err(why) => vec![Finding::wrong(
            ABOUT,
            why.clone(),
            if why.contains(&TlsFault::RefusedByPeer.to_string()) {
                "the controller's log shows why it refuses this node's certificate; on the controller's host: \
                 journalctl -u perilog-controller"
                    .to_owned()
            } else if why.contains("certificate") {
                "compare the `ca` files of both sides, and the name in the controller's certificate with the address \
                 (or set tls.server-name)"
                    .to_owned()
            } else {
                todo
            },
        )],
    }
}

#[derive(Debug, Deserialize)]
struct Status {
    host: String,
    controller: Option<String>,
    connected: bool,
}

/// Asks the agent for its status. Always returns a finding: whether the agent answers, and whether it has a session
/// with its controller. `has_controller`: the agent is configured to have such a session.
fn agent(endpoint: &Endpoint, has_controller: bool) -> Option<Finding> {
    const ABOUT: &str = "agent";
    let answer: Result<Answer<Status>, _> = endpoint.ask("Status", &json!({}));
    Some(match answer {
        Ok(Answer { body, .. }) if body.connected => {
            let controller = body.controller.unwrap_or_else(|| "its controller".to_owned());
            Finding::ok(ABOUT, format!("{} has a session with {controller}", body.host))
        }
        Ok(Answer { body, .. }) if !has_controller => {
            Finding::ok(ABOUT, format!("{} runs only its own tasks, and needs no controller for that", body.host))
        }
        Ok(Answer { body, .. }) => Finding::wrong(
            ABOUT,
            format!("{} has no session with a controller", body.host),
            "journalctl -u perilog-agent shows why; running scripts continue",
        ),
        // The module `daemon` reports an agent that does not run.
        Err(fault) if !Path::new(SOCKET).exists() => Finding::skipped(ABOUT, format!("does not answer: {fault}")),
        Err(fault) => Finding::wrong(ABOUT, fault.to_string(), "systemctl status perilog-agent"),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use perilog_proto::Preamble;

    use super::super::Level;
    use super::*;

    #[test]
    fn nobody_there_is_reported_with_the_address() {
        // A port of loopback that was just freed.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let found = one(&format!("127.0.0.1:{port}"), None, None, None);
        assert!(found.len() == 1 && found[0].level == Level::Wrong, "{found:?}");
        assert!(found[0].what.contains(&port.to_string()) && !found[0].todo.is_empty(), "{found:?}");
    }

    /// A controller names its version in its first message. doctor reports a controller of another version, and a port
    /// of another service.
    #[test]
    fn what_a_controller_says_first_is_read() {
        let to_come = Preamble { lowest: 900, highest: 901, release: "9.0".to_owned() };
        for (greeting, level, part) in [
            (Preamble::ours("1.0").encode(), Level::Ok, "and the agent have version 1.0"),
            (Preamble::ours("1.1").encode(), Level::Warning, "is 1.1, that of the agent 1.0"),
            (to_come.encode(), Level::Wrong, "no common version"),
            ("SSH-2.0".into(), Level::Wrong, "does not speak perilog's protocol"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let speaker = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let length = u32::try_from(greeting.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length[..], &greeting].concat()).unwrap();
                // Waits until the client has read.
                let _ = stream.read(&mut [0]);
            });
            let found = one(&address, None, None, Some("1.0"));
            speaker.join().unwrap();
            let version = found.iter().find(|finding| finding.about == "version");
            assert!(
                version.is_some_and(|found| found.level == level && found.what.contains(part)),
                "{part}: {found:?}"
            );
        }
    }
}
