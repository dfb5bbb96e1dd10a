//! Checks certificates: the files load, certificate and key are a pair, a node's certificate names this host, and none
//! ends soon.

use std::path::{Path, PathBuf};

use perilog_host::clock;
use perilog_host::tls::{ClientTls, ServerTls, TlsFiles};
use toml::Table;

use super::{Finding, Role, config, enroll};
use crate::verb::ca::read::{Read, certificates};
use crate::{text, when};

const DAY_MS: u64 = 86_400_000;
/// Number of days before a certificate's end from which on doctor warns: time to issue another one without haste.
const SOON_DAYS: u64 = 30;
const ABOUT: &str = "certificate";

/// Returns the paths of the TLS files in the configuration. `None`: TLS is switched off, or the path of authority,
/// certificate or key is missing.
pub(super) fn files(table: &Table) -> Option<TlsFiles> {
    let tls = table.get("tls")?.as_table()?;
    let path = |name: &str| config::text(table, &["tls", name]).map(PathBuf::from);
    let on = tls.get("enabled").and_then(toml::Value::as_bool).unwrap_or(true);
    on.then(|| Some(TlsFiles { ca: path("ca")?, cert: path("cert")?, key: path("key")?, crl: path("crl") }))?
}

pub(super) fn inspect(role: Role, table: &Table, findings: &mut Vec<Finding>) {
    let Some(files) = files(table) else {
        findings.push(Finding::warning(
            ABOUT,
            "TLS is switched off: anyone who reaches the port can impersonate a node",
            "set [tls] enabled = true; leave TLS off on a closed network only",
        ));
        return;
    };
    // Loads the files as the daemon does: readable, a pair, a key that only its owner can read.
    let loaded = match role {
        Role::Node => ClientTls::load(&files).map(|tls| tls.names().to_vec()),
        Role::Controller => ServerTls::load(&files).map(|tls| tls.names().to_vec()),
    };
    match loaded {
        Err(error) => {
            let word = role.as_str();
            let todo = if role == Role::Node && enroll::renews_itself(table) {
                "the agent itself requests its certificate; see `enrolment`, and journalctl -u perilog-agent".to_owned()
            } else {
                format!(
                    "issue certificates with `perilog ca issue --role {word} HOST`, or correct the paths of [tls] in \
                     the configuration"
                )
            };
            findings.push(Finding::wrong(ABOUT, error.to_string(), todo));
        }
        Ok(names) => findings.push(names_of(role, &names, own_name(table).as_deref(), &files.cert)),
    }
    let now_ms = clock::wall_ms();
    // A certificate that the node renews lasts only a month; the module `enroll` checks the renewal.
    let own = (role == Role::Controller || !enroll::renews_itself(table)).then_some(&files.cert);
    for path in own.into_iter().chain([&files.ca]) {
        // An earlier finding reports an unreadable file.
        let Ok(pem) = std::fs::read_to_string(path) else { continue };
        match certificates(path, &pem) {
            Ok(found) => findings.extend(found.iter().map(|read| validity(read, now_ms))),
            Err(fault) => findings.push(Finding::wrong(ABOUT, fault.to_string(), "issue a new one")),
        }
    }
}

/// Returns this node's name in certificates and hostlists: `host` of the configuration, or the kernel's host name.
/// `None`: the kernel's name is not UTF-8.
fn own_name(table: &Table) -> Option<String> {
    let configured = config::text(table, &["host"]).map(str::to_owned);
    configured.or_else(|| rustix::system::uname().nodename().to_str().ok().map(str::to_owned))
}

fn names_of(role: Role, names: &[String], own: Option<&str>, path: &Path) -> Finding {
    let (path, named) = (path.display(), names.join(", "));
    match (role, own) {
        (Role::Node, Some(own)) if !names.iter().any(|name| name.eq_ignore_ascii_case(own)) => {
            let todo = format!("issue a certificate for {own}, or set `host` in agent.toml to a name in this one");
            Finding::wrong(
                ABOUT,
                format!("{path} is for {named}, but this host is {own}: the controller will refuse it"),
                todo,
            )
        }
        _ => Finding::ok(ABOUT, format!("{path} and its key are a pair, for {named}")),
    }
}

fn validity(read: &Read, now_ms: u64) -> Finding {
    let (file, until) = (&read.file, when::day(read.not_after_ms));
    if now_ms < read.not_before_ms {
        let from = when::second(read.not_before_ms);
        let what = format!(
            "{file} ({}) is valid from {from} on, but the clock of this host shows {}",
            read.role,
            when::second(now_ms)
        );
        return Finding::wrong(ABOUT, what, "set the clock");
    }
    let todo = match read.role {
        "authority" => {
            "make a new authority (perilog ca init), and put both certificates, the new and the old, into each `ca` \
             file until every certificate is replaced"
        }
        _ => {
            "issue a new certificate (perilog ca issue) and install it; agents read it when they next connect, the \
             controller at a reload"
        }
    };
    match read.not_after_ms.checked_sub(now_ms) {
        None => Finding::wrong(ABOUT, format!("{file} ({}) has expired on {until}", read.role), todo),
        Some(left) if left < SOON_DAYS * DAY_MS => {
            let what = format!("{file} ({}) expires on {until}, in {}", read.role, text::age(left));
            Finding::warning(ABOUT, what, todo)
        }
        Some(left) => {
            Finding::ok(ABOUT, format!("{file} ({}) is valid for {} days, until {until}", read.role, left / DAY_MS))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn what_ends_soon_is_reported_before_it_ends() {
        let read = |from_days: u64, to_days: u64| Read {
            file: "cert.pem".to_owned(),
            subject: String::new(),
            issuer: String::new(),
            role: "node",
            names: vec![],
            keys: (None, None),
            serial: String::new(),
            not_before_ms: from_days * DAY_MS,
            not_after_ms: to_days * DAY_MS,
            fingerprint: String::new(),
        };
        for (from, to, level, part) in [
            (0, 365, Level::Ok, "is valid for 265 days"),
            (0, 129, Level::Warning, "in 29d"),
            (0, 130, Level::Ok, "30 days"),
            (0, 99, Level::Wrong, "has expired"),
            (101, 365, Level::Wrong, "but the clock of this host shows"),
        ] {
            let found = validity(&read(from, to), 100 * DAY_MS);
            assert!(found.level == level && found.what.contains(part), "{found:?}");
            assert_eq!(found.todo.is_empty(), level == Level::Ok);
        }
    }

    #[test]
    fn a_certificate_is_for_its_host() {
        let names = ["n0".to_owned(), "n0.cluster".to_owned()];
        let of = |role, own| names_of(role, &names, Some(own), Path::new("cert.pem")).level;
        assert_eq!(
            (of(Role::Node, "N0"), of(Role::Node, "n1"), of(Role::Controller, "x")),
            (Level::Ok, Level::Wrong, Level::Ok)
        );
    }
}
