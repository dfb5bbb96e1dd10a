//! Checks of the enrolment authority on the controller's host: whether the controller can read the revocation list, who
//! owns the files, how large the list of issued certificates is, and whether the names that munge enrols resolve.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perilog_core::HostList;
use perilog_host::authority::{CA_CERT, CA_KEY, CRL, ISSUED, revoked};
use perilog_host::clock;
use perilog_host::tls::MAX_FILE;

use super::{Finding, shell};
use crate::text;

const ABOUT: &str = "enrolment";
/// Size in bytes of issued.jsonl from which doctor warns: half of the largest list that `perilog ca` reads. The other
/// half should last for a long time.
const MANY_ISSUED: u64 = 128 * 1024 * 1024;
/// Time limit in milliseconds for looking up all names: past it, the finding is about the names looked up until then.
const LOOKUPS_MS: u64 = 5_000;
/// Maximum number of names in a finding.
const NAMES: usize = 20;

/// Inspects the enrolment authority in `dir`. `listens`: whether the controller is configured to enrol nodes. Returns
/// no findings if there is no authority and the controller does not enrol.
pub(super) fn inspect(dir: &Path, listens: bool) -> Vec<Finding> {
    let shown = dir.display();
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let own = match dir.join(CA_CERT).metadata().and_then(|_| dir.metadata()) {
        Ok(own) => own,
        Err(error) if missing(&error) && !listens => return Vec::new(),
        Err(error) if missing(&error) => {
            let todo = "the controller makes an authority when it starts: systemctl restart perilog-controller";
            return vec![Finding::warning(ABOUT, format!("there is no authority in {shown} yet"), todo)];
        }
        Err(error) => return vec![Finding::skipped(ABOUT, format!("{shown} cannot be inspected: {error}"))],
    };
    let mut findings = vec![list(&dir.join(CRL), &own)];
    findings.extend(issued(&dir.join(ISSUED)));
    findings.extend([CA_CERT, CA_KEY, ISSUED, "tokens"].into_iter().filter_map(|name| owner(&dir.join(name), &own)));
    findings
}

/// Returns `true` if the controller's user can read the file with the metadata `file`. `own`: metadata of the
/// authority's directory, which belongs to that user.
fn reads(own: &Metadata, file: &Metadata) -> bool {
    let bit = match (file.uid() == own.uid(), file.gid() == own.gid()) {
        (true, _) => 0o400,
        (_, true) => 0o040,
        _ => 0o004,
    };
    own.uid() == 0 || file.mode() & bit != 0
}

fn list(path: &Path, own: &Metadata) -> Finding {
    let shown = path.display();
    let stays = "until then the controller refuses a reload, and does not start again";
    let file = match path.metadata() {
        Ok(file) => file,
        Err(error) => {
            let todo = format!(
                "restore the list from a copy, or begin a new list (perilog ca revoke --dir {}) and revoke the same \
                 hosts again; {stays}",
                path.parent().unwrap_or(path).display()
            );
            return Finding::wrong(
                ABOUT,
                format!("{shown}: {error}; it is not known which certificates are revoked"),
                todo,
            );
        }
    };
    if !reads(own, &file) {
        let what = format!(
            "{shown}: the controller (uid {}) cannot read it (mode {:04o}, uid {})",
            own.uid(),
            file.mode() & 0o7777,
            file.uid()
        );
        return Finding::wrong(ABOUT, what, format!("chmod 0644 {shown}; {stays}"));
    }
    let size = file.len();
    if size > MAX_FILE {
        let todo = format!("make a new authority (/usr/share/doc/perilog/security.md); {stays}");
        return Finding::wrong(
            ABOUT,
            format!("{shown} has {size} bytes, and the controller reads no more than {MAX_FILE}"),
            todo,
        );
    }
    match std::fs::read(path).map_err(|error| error.to_string()).and_then(|pem| revoked(&pem)) {
        Err(why) => Finding::wrong(ABOUT, format!("{shown}: {why}"), format!("restore the list from a copy; {stays}")),
        Ok(on_it) if size > MAX_FILE / 4 * 3 => Finding::warning(
            ABOUT,
            format!(
                "{shown} has {size} bytes ({} revoked), and the controller reads no more than {MAX_FILE}",
                on_it.len()
            ),
            "expired certificates leave the list 30 days later, at the next perilog ca revoke; a new authority begins \
             an empty list (/usr/share/doc/perilog/security.md)",
        ),
        Ok(on_it) => Finding::ok(ABOUT, format!("{shown}: {} revoked", text::count(on_it.len() as u64, "certificate"))),
    }
}

fn issued(path: &Path) -> Option<Finding> {
    let size = path.metadata().ok()?.len();
    let what = format!("{} has {} KiB", path.display(), size / 1024);
    Some(if size < MANY_ISSUED {
        Finding::ok(ABOUT, what)
    } else {
        let todo = "find the node that enrols so often (journalctl -u perilog-controller shows `enrolled`); past 256 \
                    MiB no host can be revoked by its name, so make a new authority before that \
                    (/usr/share/doc/perilog/security.md)";
        Finding::warning(ABOUT, what, todo)
    })
}

/// Reports a file of the authority that does not belong to the controller's user, or that other users can read. `None`:
/// nothing is wrong, or there is no such file; the public certificate only needs to be readable. `own`: metadata of the
/// authority's directory, which belongs to the controller's user.
fn owner(path: &Path, own: &Metadata) -> Option<Finding> {
    let file = path.symlink_metadata().ok()?;
    let (shown, name) = (path.display(), path.file_name().unwrap_or_default());
    if name == CA_CERT && reads(own, &file) {
        return None;
    }
    if file.uid() != own.uid() {
        let what = format!("{shown} belongs to uid {}, but its directory to uid {}", file.uid(), own.uid());
        let todo =
            format!("chown {}:{} {shown}; until then the controller enrols and renews nothing", own.uid(), own.gid());
        return Some(Finding::wrong(ABOUT, what, todo));
    }
    if name != CA_CERT && file.mode() & 0o077 != 0 {
        let what = format!("other users have access to {shown} (mode {:04o})", file.mode() & 0o7777);
        return Some(Finding::wrong(ABOUT, what, format!("chmod go= {shown}, and find out who has read it")));
    }
    None
}

/// Checks with the program `getent` that the names in `munge-hosts` resolve. With munge, a node enrols only if its name
/// resolves to the address that it dials from.
pub(super) fn names(hosts: &HostList, getent: &str) -> Finding {
    let until_ms = clock::mono_ms() + LOOKUPS_MS;
    let (mut unknown, mut checked) = (Vec::new(), 0_u64);
    for host in hosts.iter() {
        if clock::mono_ms() >= until_ms {
            break;
        }
        match shell::ask(getent, &["ahosts", host]) {
            Ok(output) if output.ok => {}
            Ok(_) => unknown.push(host),
            Err(why) => return Finding::skipped(ABOUT, format!("munge-hosts are not looked up: {why}")),
        }
        checked += 1;
    }
    let all = hosts.len() as u64;
    let of = if checked < all { format!(" (the first {checked} of {all} were looked up)") } else { String::new() };
    if unknown.is_empty() {
        return Finding::ok(ABOUT, format!("munge-hosts: the names resolve{of}"));
    }
    let few = HostList::from_names(unknown.iter().take(NAMES)).map(|list| list.to_string()).unwrap_or_default();
    let more = if unknown.len() > NAMES { " and more" } else { "" };
    let count = text::count(unknown.len() as u64, "name");
    Finding::wrong(
        ABOUT,
        format!("munge-hosts: this host cannot resolve {count}: {few}{more}{of}"),
        "add the node's address to /etc/hosts of this host or to your DNS, or remove the name from munge-hosts; munge \
         cannot enrol such a node",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use perilog_host::authority;

    use super::super::Level;
    use super::*;

    fn levels_and_texts(findings: &[Finding]) -> Vec<(Level, &str)> {
        findings.iter().map(|found| (found.level, found.what.as_str())).collect()
    }

    #[test]
    fn an_unreadable_list_is_reported_before_the_controller_restarts() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        assert_eq!(inspect(dir, false), []);
        assert!(inspect(dir, true)[0].what.contains("no authority in"));
        let made = authority::new("enrolment", 0, 4_000_000_000_000).unwrap();
        let issuer =
            authority::Issuer::from_ca_cert_pem(&made.cert, authority::KeyPair::from_pem(&made.key).unwrap()).unwrap();
        let crl = dir.join(CRL);
        fs::write(dir.join(CA_CERT), &made.cert).unwrap();
        let found = inspect(dir, false);
        assert!(
            found[0].level == Level::Wrong && found[0].what.contains("it is not known which certificates are revoked"),
            "{found:?}"
        );
        fs::write(&crl, authority::revocations(&issuer, 1, &[], 0, 4_000_000_000_000).unwrap()).unwrap();
        fs::set_permissions(&crl, Permissions::from_mode(0o644)).unwrap();
        let found = inspect(dir, true);
        assert!(
            levels_and_texts(&found).len() == 1 && found[0].what.ends_with("crl.pem: 0 certificates revoked"),
            "{found:?}"
        );
        fs::write(&crl, "none").unwrap();
        assert_eq!(inspect(dir, true)[0].level, Level::Wrong);
        fs::write(&crl, vec![b'x'; usize::try_from(MAX_FILE).unwrap() + 1]).unwrap();
        assert!(inspect(dir, true)[0].what.contains("the controller reads no more than 8388608"));

        // Files of root under umask 077, in the directory of the controller's user.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(dir, Some(64_001), Some(64_002)).unwrap();
        fs::set_permissions(&crl, Permissions::from_mode(0o600)).unwrap();
        fs::write(dir.join(ISSUED), "").unwrap();
        let found = inspect(dir, true);
        assert!(found[0].what.contains("the controller (uid 64001) cannot read it (mode 0600, uid 0)"), "{found:?}");
        assert!(
            found
                .iter()
                .any(|found| found.level == Level::Wrong && found.what.contains("issued.jsonl belongs to uid 0"))
        );
        std::os::unix::fs::chown(&crl, None, Some(64_002)).unwrap();
        fs::set_permissions(&crl, Permissions::from_mode(0o640)).unwrap();
        assert!(!inspect(dir, true)[0].what.contains("cannot read"), "its group may");
    }

    #[test]
    fn names_that_munge_enrols_and_nobody_knows_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (program, text) = (dir.path().join("getent"), dir.path().join("text"));
        fs::write(&text, "#!/bin/sh\ncase $2 in n[02]) exit 2;; esac\n").unwrap();
        fs::set_permissions(&text, Permissions::from_mode(0o755)).unwrap();
        // `cp` makes the executable: another test that forks at this moment would inherit a file that this process
        // wrote, and exec would fail with "text file busy".
        assert!(std::process::Command::new("cp").args([&text, &program]).status().unwrap().success());
        let of = |hosts: &str| names(&hosts.parse().unwrap(), program.to_str().unwrap());
        let found = of("n[0-3]");
        assert!(found.level == Level::Wrong && found.what.contains("cannot resolve 2 names: n[0,2]"), "{found:?}");
        assert_eq!(of("n1,n3").level, Level::Ok);
        assert_eq!(names(&"n1".parse().unwrap(), "/no/such").level, Level::Skipped);
    }
}
