//! Checks of enrolment: whether a node can get and renew its certificate, and whether the controller can issue one.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use perilog_host::clock;
use perilog_host::link::{Dial, dial};
use perilog_host::tls::{ClientTls, TlsFiles};
use tokio::net::UnixStream;
use toml::Table;

use super::{Finding, Role, authority, config, tls};
use crate::text;

const ABOUT: &str = "enrolment";
/// Time limit for the answer of a controller or of munged; on the same network a controller answers in milliseconds.
const REACH: Duration = Duration::from_secs(5);
/// File with the first port that users other than root can bind (ip(7)).
const UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
const GETENT: &str = "/usr/bin/getent";
/// The default socket of munged.
const MUNGED: &str = "/run/munge/munge.socket.2";

/// Returns `true` if this node renews its certificate itself.
pub(super) fn renews_itself(table: &Table) -> bool {
    of(table).is_some_and(|enroll| !config::texts(enroll, "controller").is_empty())
}

fn of(table: &Table) -> Option<&Table> {
    table.get("enroll")?.as_table()
}

/// Checks enrolment: of a node, or of the controller that enrols nodes. Returns no findings if enrolment is not
/// configured.
pub(super) fn inspect(role: Role, table: &Table) -> Vec<Finding> {
    let Some(enroll) = of(table) else { return Vec::new() };
    let munge = enroll.get("munge").and_then(toml::Value::as_bool).unwrap_or(false);
    let listens = enroll.contains_key("listen");
    let mut findings = match role {
        Role::Node if renews_itself(table) => node(table, enroll, munge),
        // The authority's files matter also if the controller no longer enrols: certificates that it has signed still
        // count.
        Role::Controller if tls::files(table).is_some() => keeps(enroll, listens),
        _ => Vec::new(),
    };
    match role {
        Role::Node if renews_itself(table) => {}
        Role::Controller if listens => findings.extend(controller(enroll)),
        _ => return findings,
    }
    if munge {
        let program = match role {
            Role::Node => "munge-program",
            Role::Controller => "unmunge-program",
        };
        findings
            .extend(config::text(enroll, &[program]).map(|program| has_munge(Path::new(program), Path::new(MUNGED))));
        let hosts = config::text(enroll, &["munge-hosts"]).and_then(|hosts| hosts.parse().ok());
        findings.extend(hosts.map(|hosts| authority::names(&hosts, GETENT)));
        if role == Role::Node {
            let first = std::fs::read_to_string(UNPRIVILEGED).ok().and_then(|text| text.trim().parse().ok());
            findings.extend(first.map(ports));
        }
    }
    findings
}

fn node(table: &Table, enroll: &Table, munge: bool) -> Vec<Finding> {
    let Some(files) = tls::files(table) else {
        let todo = "switch TLS on ([tls] enabled), or take [enroll] controller out";
        return vec![Finding::wrong(ABOUT, "TLS is switched off, and so is enrolment", todo)];
    };
    let mut findings = Vec::new();
    let due = files.validity().ok().flatten();
    findings.extend(due.map(|validity| renewal(validity, clock::wall_ms())));
    let has_certificate = due.is_some_and(|(_, until_ms)| clock::wall_ms() < until_ms);
    findings.extend(config::text(enroll, &["token"]).map(|path| token(Path::new(path), has_certificate || munge)));
    if config::text(enroll, &["token"]).is_none() && !munge && !has_certificate {
        let todo =
            "in agent.toml, [enroll]: token = \"FILE\" (perilog token create on the controller), or munge = true";
        findings.push(Finding::wrong(
            ABOUT,
            "there is neither a certificate nor a token nor munge to ask for one with",
            todo,
        ));
    }
    let name = config::text(table, &["tls", "server-name"]);
    findings.extend(config::texts(enroll, "controller").into_iter().map(|address| reach(address, &files, name)));
    findings
}

/// Checks that the agent renews the node's certificate in time. The certificate is valid from `from_ms` to `until_ms`.
/// The agent renews it between two thirds and five sixths of this time: past that, the agent has tried and failed.
fn renewal((from_ms, until_ms): (u64, u64), now_ms: u64) -> Finding {
    let lasts_ms = until_ms.saturating_sub(from_ms);
    let todo = "journalctl -u perilog-agent says why it cannot renew it; the port of [enroll] is looked at below";
    match until_ms.checked_sub(now_ms) {
        None => Finding::wrong(ABOUT, "the certificate has run out and was not renewed", todo),
        Some(left) if left < lasts_ms / 6 => {
            let what = format!("the certificate ends in {} and should have been renewed", text::age(left));
            Finding::wrong(ABOUT, what, todo)
        }
        Some(left) => {
            Finding::ok(ABOUT, format!("the certificate ends in {} and renews itself before", text::age(left)))
        }
    }
}

/// Checks that the file of the enrolment token exists and that only root can read it. `spare`: the node can prove its
/// name without the token, so a missing token is no problem.
fn token(path: &Path, spare: bool) -> Finding {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(file) if file.mode() & 0o077 != 0 => Finding::wrong(
            ABOUT,
            format!("{shown}: the token can be read by others (mode {:04o}), and is not used", file.mode() & 0o777),
            format!("chmod 0600 {shown}, and make another one if others may have read it (perilog token create)"),
        ),
        Ok(_) => Finding::ok(ABOUT, format!("{shown}: the token is root's alone")),
        Err(_) if spare => Finding::ok(ABOUT, format!("{shown}: no token, and none is needed now")),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{shown}: {error}, and there is no certificate"),
            format!("on the controller: perilog --quiet token create HOST; bring it to {shown}, mode 0600"),
        ),
    }
}

/// Checks that a controller answers a TLS handshake at `address`. Sends no request. `name`: the name that the
/// certificate must bear; `None`: the one in `address`.
fn reach(address: &str, files: &TlsFiles, name: Option<&str>) -> Finding {
    let tls = match ClientTls::load_anonymous(files) {
        Ok(tls) => tls,
        Err(error) => {
            let todo = "bring the authority's certificate ([tls] ca); it is no secret";
            return Finding::wrong(ABOUT, format!("{address} is not dialled: {error}"), todo);
        }
    };
    let mut to = Dial { limit: REACH, ..Dial::tls(address, tls) };
    if let Some(name) = name {
        name.clone_into(&mut to.server_name);
    }
    match wait_for(dial(&to)) {
        Err(error) => Finding::skipped(ABOUT, format!("not dialled: {error}")),
        Ok(Ok(link)) => Finding::ok(ABOUT, format!("{address} ({}) answers", link.peer)),
        Ok(Err(error)) => Finding::wrong(
            ABOUT,
            error.to_string(),
            "on the controller: [enroll] listen in controller.toml, perilog doctor controller; a firewall between?",
        ),
    }
}

/// Checks the directory of the authority by which the controller enrols nodes. `listens`: whether the controller is
/// configured to enrol nodes.
fn keeps(enroll: &Table, listens: bool) -> Vec<Finding> {
    let dir = config::text(enroll, &["directory"]).map(Path::new);
    dir.map(|dir| authority::inspect(dir, listens)).unwrap_or_default()
}

/// Checks that a program listens on the port at which the controller enrols nodes. Returns no findings if `enroll` (the
/// table `[enroll]`) has no valid `listen`.
fn controller(enroll: &Table) -> Vec<Finding> {
    let listen = config::text(enroll, &["listen"]).and_then(|listen| listen.parse::<SocketAddr>().ok());
    listen.map(listens).into_iter().collect()
}

fn listens(listen: SocketAddr) -> Finding {
    let own = if listen.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], listen.port())) } else { listen };
    match TcpStream::connect_timeout(&own, REACH) {
        Ok(_) => Finding::ok(ABOUT, format!("a process listens on port {}", listen.port())),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{own}: {error}: no node can enrol or renew its certificate"),
            "systemctl status perilog-controller; [enroll] listen counts from its next start on",
        ),
    }
}

fn has_munge(program: &Path, socket: &Path) -> Finding {
    if !program.is_file() {
        let (what, todo) = (format!("[enroll] munge: there is no program {}", program.display()), "install munge");
        return Finding::wrong(ABOUT, what, todo);
    }
    // The limit is for a munged that is stopped (SIGSTOP): once its queue is full, connect(2) waits for ever.
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let connect = async { tokio::time::timeout(REACH, UnixStream::connect(socket)).await.map_err(late)? };
    match wait_for(connect).and_then(|connected| connected) {
        Ok(_) => Finding::ok(ABOUT, format!("munged answers at {}", socket.display())),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("munged does not answer at {}: {error}", socket.display()),
            "systemctl status munge; systemctl enable --now munge; the same /etc/munge/munge.key as on all hosts",
        ),
    }
}

/// Checks that only root can bind ports below 1024. Such a port shows the controller that root of this node asks to
/// enrol. `first`: the first port that other users can bind.
fn ports(first: u32) -> Finding {
    if first < 1024 {
        return Finding::wrong(
            ABOUT,
            format!(
                "users may take ports from {first} on (net.ipv4.ip_unprivileged_port_start): they can lend this node's \
                 address to who enrols by munge"
            ),
            "set net.ipv4.ip_unprivileged_port_start = 1024 in /etc/sysctl.d; sysctl --system; or use tokens instead \
             of munge",
        );
    }
    Finding::ok(ABOUT, "ports below 1024 are root's")
}

fn wait_for<T>(what: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::super::Level;
    use super::*;

    #[test]
    fn an_overdue_renewal_is_reported_before_the_certificate_ends() {
        let day = 86_400_000;
        for (now, level, part) in [
            (day, Level::Ok, "ends in 29d and renews itself before"),
            (25 * day, Level::Ok, "renews itself"),
            (25 * day + 1, Level::Wrong, "ends in 4d23h and should have been renewed"),
            (31 * day, Level::Wrong, "has run out"),
        ] {
            let found = renewal((0, 30 * day), now);
            assert!(found.level == level && found.what.contains(part), "{now}: {found:?}");
        }
    }

    #[test]
    fn a_token_is_roots_and_is_needed_only_without_anything_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (mode, spare, level, part) in [
            (None, false, Level::Wrong, "and there is no certificate"),
            (None, true, Level::Ok, "none is needed now"),
            (Some(0o600), false, Level::Ok, "root's alone"),
            (Some(0o640), true, Level::Wrong, "read by others (mode 0640)"),
        ] {
            if let Some(mode) = mode {
                std::fs::write(&path, "abc").unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            let found = token(&path, spare);
            assert!(found.level == level && found.what.contains(part), "{mode:?} {spare}: {found:?}");
            assert_eq!(found.todo.is_empty(), level == Level::Ok);
        }
    }

    #[test]
    fn munge_is_a_program_and_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let of = |program: &str| has_munge(Path::new(program), &socket);
        assert!(of("/no/such").what.contains("no program /no/such"));
        let silent = of("/bin/sh");
        assert!(silent.level == Level::Wrong && silent.what.contains("munged does not answer"), "{silent:?}");
        let munged = UnixListener::bind(&socket).unwrap();
        assert_eq!(of("/bin/sh").level, Level::Ok);
        // A stopped munged accepts no connection, and its queue fills up (net.core.somaxconn).
        assert!((0..100_000).any(|_| of("/bin/sh").level == Level::Wrong), "it is let in for ever");
        drop(munged);
    }

    #[test]
    fn ports_that_users_may_take_are_reported() {
        assert_eq!(ports(1024).level, Level::Ok);
        let found = ports(80);
        assert!(found.level == Level::Wrong && found.what.contains("ports from 80 on"), "{found:?}");
    }

    #[test]
    fn without_enrolment_no_check_and_a_closed_port_is_named() {
        let of = |role, text: &str| inspect(role, &text.parse().unwrap());
        assert_eq!(of(Role::Node, "[enroll]\ncontroller = []\nmunge = false"), []);
        assert_eq!(of(Role::Controller, "[enroll]\ndirectory = '/d'\nmunge = false"), []);
        // A port of loopback that was just freed.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let found = of(Role::Controller, &format!("[enroll]\nlisten = '0.0.0.0:{port}'"));
        assert!(found.len() == 1 && found[0].what.contains("no node can enrol"), "{found:?}");
        let off = of(Role::Node, "[tls]\nenabled = false\n[enroll]\ncontroller = ['ctl:5117']");
        assert!(off.len() == 1 && off[0].what.contains("TLS is switched off"), "{off:?}");
    }
}
