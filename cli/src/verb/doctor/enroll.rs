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
        let todo = "set [tls] enabled = true, or remove [enroll] controller";
        return vec![Finding::wrong(ABOUT, "TLS is switched off, so this node cannot enrol", todo)];
    };
    let mut findings = Vec::new();
    let due = files.validity().ok().flatten();
    findings.extend(due.map(|validity| renewal(validity, clock::wall_ms())));
    let has_certificate = due.is_some_and(|(_, until_ms)| clock::wall_ms() < until_ms);
    findings.extend(config::text(enroll, &["token"]).map(|path| token(Path::new(path), has_certificate || munge)));
    if config::text(enroll, &["token"]).is_none() && !munge && !has_certificate {
        let todo = "set token = \"FILE\" in [enroll] of agent.toml (on the controller's host, perilog token create \
                    makes a token), or munge = true";
        findings.push(Finding::wrong(
            ABOUT,
            "this node has no certificate, and neither a token nor munge to request one with",
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
    let todo = "journalctl -u perilog-agent shows why the agent cannot renew it; the port of [enroll] is checked below";
    match until_ms.checked_sub(now_ms) {
        None => Finding::wrong(ABOUT, "the certificate has expired and was not renewed", todo),
        Some(left) if left < lasts_ms / 6 => {
            let what = format!("the certificate expires in {} and should have been renewed", text::age(left));
            Finding::wrong(ABOUT, what, todo)
        }
        Some(left) => Finding::ok(
            ABOUT,
            format!("the certificate expires in {}, and the agent renews it before", text::age(left)),
        ),
    }
}

fn token(path: &Path, spare: bool) -> Finding {
    token_as(rustix::process::geteuid().as_raw(), path, spare)
}

/// Checks that the file of the enrolment token exists, that it belongs to root or `own` (the user id of this process),
/// and that only its owner can read it: the agent uses no other token. `spare`: the node can prove its name without the
/// token, so a missing token is no problem.
fn token_as(own: u32, path: &Path, spare: bool) -> Finding {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(file) if file.uid() != 0 && file.uid() != own => Finding::wrong(
            ABOUT,
            format!("{shown}: the token belongs to uid {}, so the agent does not use it", file.uid()),
            format!("chown root: {shown}, and make a new token (perilog token create), because that user can read it"),
        ),
        Ok(file) if file.mode() & 0o077 != 0 => Finding::wrong(
            ABOUT,
            format!(
                "{shown}: other users can read the token (mode {:04o}), so the agent does not use it",
                file.mode() & 0o777
            ),
            format!(
                "chmod 0600 {shown}; if another user may have read the token, make a new one (perilog token create)"
            ),
        ),
        Ok(_) => Finding::ok(ABOUT, format!("{shown}: only root can read the token")),
        Err(_) if spare => Finding::ok(ABOUT, format!("{shown}: no token, and none is needed now")),
        Err(error) => Finding::wrong(
            ABOUT,
            format!("{shown}: {error}, and there is no certificate"),
            format!(
                "on the controller's host, type perilog --quiet token create HOST; copy the token to {shown}, mode 0600"
            ),
        ),
    }
}

/// Checks that a controller answers a TLS handshake at `address`. Sends no request. `name`: the name that the
/// certificate must bear; `None`: the one in `address`.
fn reach(address: &str, files: &TlsFiles, name: Option<&str>) -> Finding {
    let tls = match ClientTls::load_anonymous(files) {
        Ok(tls) => tls,
        Err(error) => {
            let todo = "copy the CA certificate to the file of [tls] ca on this node; it is not secret";
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
            "on the controller's host, check [enroll] listen in controller.toml, and type perilog doctor controller; \
             check firewalls between the hosts",
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
            format!("{own}: {error}; no node can enrol or renew its certificate"),
            "systemctl status perilog-controller; a changed [enroll] listen needs a restart",
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
            "systemctl status munge; systemctl enable --now munge; all hosts need the same /etc/munge/munge.key",
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
                "users can bind ports from {first} on (net.ipv4.ip_unprivileged_port_start), so a user could let \
                 another host enrol by munge with this node's address"
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
            (day, Level::Ok, "expires in 29d, and the agent renews it before"),
            (25 * day, Level::Ok, "renews it before"),
            (25 * day + 1, Level::Wrong, "expires in 4d23h and should have been renewed"),
            (31 * day, Level::Wrong, "has expired"),
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
            (Some(0o600), false, Level::Ok, "only root can read"),
            (Some(0o640), true, Level::Wrong, "other users can read the token (mode 0640)"),
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

    /// Regression test: doctor called a token that another user owns root's alone, and the agent refused that token.
    #[test]
    fn a_token_of_another_owner_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "abc").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        // Root gives the file to another user; the test then checks as two different users.
        let _ = std::os::unix::fs::chown(&path, Some(65534), None);
        let uid = std::fs::metadata(&path).unwrap().uid();
        assert_eq!(token_as(uid, &path, false).level, Level::Ok);
        let found = token_as(uid + 1, &path, true);
        assert!(found.level == Level::Wrong && found.what.contains(&format!("belongs to uid {uid}")), "{found:?}");
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
