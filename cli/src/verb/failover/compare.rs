//! Compares the parts of the controller on two hosts: the controller must find on either host what it has on the other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::inventory::is_drop_in;
use super::{Inventory, USER};

/// A difference between two hosts, or a fault of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verb) struct Difference {
    pub(in crate::verb) what: String,
    pub(in crate::verb) todo: String,
    /// Whether the controller works on one of the hosts alone, or not as on the other; otherwise it is a warning.
    pub(in crate::verb) is_wrong: bool,
}

/// Returns the differences between this host and another. The contents of certificate and key may differ, because each
/// host may have its own.
pub(in crate::verb) fn between(own: &Inventory, other: &Inventory) -> Vec<Difference> {
    let mut found = Vec::new();
    let name = &other.host;
    let mut wrong = |what: String, todo: String| found.push(Difference { what, todo, is_wrong: true });
    if own.active && other.active {
        wrong(
            format!("the controller runs here and on {name}: each node accepts one of them"),
            "stop one now, and find out why the cluster manager did not fence it (crm_mon -1)".to_owned(),
        );
    } else if own.mounted && other.mounted {
        wrong(
            format!("the store's file system is mounted here and on {name}: that damages it"),
            "unmount it now (umount) on the host without the controller; crm_mon -1 shows which one that is".to_owned(),
        );
    }
    if own.machine.is_some() && own.machine == other.machine {
        wrong(
            format!("this host and {name} have one machine id (a cloned image): a move would pass for a restart"),
            "on the host without the controller: rm /etc/machine-id && systemd-machine-id-setup && reboot".to_owned(),
        );
    }
    if own.version != other.version {
        wrong(
            format!("perilog is {} here and {} on {name}", own.version, other.version),
            "upgrade the older one: it refuses a store that the newer one has opened".to_owned(),
        );
    }
    let is_own = |path: &PathBuf| own.own.contains(path) || other.own.contains(path);
    let paths: BTreeSet<&PathBuf> = own.files.keys().chain(other.files.keys()).filter(|path| !is_own(path)).collect();
    for path in paths {
        let shown = path.display();
        let again = "on the host without the controller: perilog init controller --failover-of HOST";
        let copy = format!("copy the right one (scp -p), or {again}");
        let (what, todo) = match (own.files.get(path), other.files.get(path)) {
            (Some(one), Some(two)) if one.sha256 == two.sha256 => continue,
            (Some(_), Some(_)) => (format!("{shown} differs from that of {name}"), copy),
            (Some(_), None) => (
                format!("{shown} is not on {name}"),
                if is_drop_in(path) { format!("rm {shown} here if it is no longer needed, or {again}") } else { copy },
            ),
            (None, _) => (
                format!("{shown} is on {name}, and not here"),
                if is_drop_in(path) {
                    format!("on {name}: rm {shown} if it is no longer needed, or {again}")
                } else {
                    copy
                },
            ),
        };
        wrong(what, todo);
    }
    for (host, peer, is_here) in [(own, other, true), (other, own, false)] {
        // Each host may have its own certificate and key, but needs both.
        for path in host.own.iter().filter(|path| !host.files.contains_key(*path)) {
            let path = path.display();
            let place = if is_here { "here".to_owned() } else { format!("on {}", host.host) };
            wrong(
                format!("{path} is missing {place}, and the controller does not start without it"),
                format!(
                    "on {}: perilog init controller --failover-of {}; or copy the one that the host shall have for \
                     itself to {path}",
                    host.host, peer.host
                ),
            );
        }
    }
    for (path, one) in &own.files {
        let Some(two) = other.files.get(path).filter(|two| two.access != one.access) else { continue };
        let todo = format!("{}, or the other way round", two.access.command(path));
        wrong(format!("{} is {} here and {} on {name}", path.display(), one.access, two.access), todo);
    }
    let hooks: BTreeSet<&PathBuf> = own.hooks.keys().chain(other.hooks.keys()).collect();
    for path in hooks {
        let (one, two) = (own.hooks.get(path).cloned().flatten(), other.hooks.get(path).cloned().flatten());
        if one != two {
            let shown = path.display();
            wrong(
                format!("the hook's {shown} differs from that of {name}"),
                format!("install the same one on both: rsync -a {shown} {name}:{shown}"),
            );
        }
    }
    if own.user != other.user {
        let shown = |user: Option<(u32, u32)>| user.map_or("missing".to_owned(), |(uid, gid)| format!("{uid}:{gid}"));
        let (one, two) = (shown(own.user), shown(other.user));
        found.push(Difference {
            what: format!(
                "the user {USER} is {one} here and {two} on {name}: each move changes the owner of every file"
            ),
            // The ids of the active host are those of the files.
            todo: if own.active { own.user } else { other.user }.map_or_else(String::new, same_ids),
            is_wrong: false,
        });
    }
    found
}

/// Returns the command that gives the controller's user these ids, on a host where no process has them; and what to do
/// first where another user or group has one of them.
pub(in crate::verb) fn same_ids((uid, gid): (u32, u32)) -> String {
    format!(
        "groupmod -g {gid} {USER} && usermod -u {uid} -g {gid} {USER}, on the host without the controller; where \
         another user or group has such an id there (getent passwd {uid}; getent group {gid}), give that one another \
         id first, in the same way"
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Text};
    use super::*;

    fn access() -> Access {
        Access { mode: 0o640, user: "root".to_owned(), group: USER.to_owned() }
    }

    fn host(name: &str) -> Inventory {
        let text = |sha256: &str| Text { sha256: sha256.to_owned(), access: access(), contents: None };
        let files = [("/etc/a.toml", "1"), ("/etc/ca.pem", "2"), ("/etc/cert.pem", name)];
        Inventory {
            version: "0.1.0".to_owned(),
            host: name.to_owned(),
            machine: Some(format!("machine of {name}")),
            user: Some((990, 990)),
            files: files.into_iter().map(|(path, sha256)| (path.into(), text(sha256))).collect(),
            own: vec!["/etc/cert.pem".into()],
            hooks: [("/opt/drain".into(), Some("3".to_owned()))].into(),
            ..Inventory::default()
        }
    }

    #[test]
    fn hosts_are_alike_or_the_difference_is_named() {
        let (own, other) = (host("ctl0"), host("ctl1"));
        assert_eq!(between(&own, &other), [], "each has a certificate of its own");
        let text = |sha256: &str| Text { sha256: sha256.to_owned(), access: access(), contents: None };
        type Change = fn(&mut Inventory);
        let table: [(Change, &str, bool); 10] = [
            (|of| of.version = "0.2.0".to_owned(), "perilog is 0.1.0 here and 0.2.0 on ctl1", true),
            (|of| of.user = Some((991, 990)), "the user perilog is 990:990 here and 991:990 on ctl1", false),
            (|of| of.user = None, "990:990 here and missing on ctl1", false),
            (|of| drop(of.files.remove(&PathBuf::from("/etc/ca.pem"))), "/etc/ca.pem is not on ctl1", true),
            (
                |of| of.hooks = [("/opt/drain".into(), None)].into(),
                "the hook's /opt/drain differs from that of ctl1",
                true,
            ),
            (|of| of.hooks.clear(), "the hook's /opt/drain differs from that of ctl1", true),
            (
                |of| of.machine = Some("machine of ctl0".to_owned()),
                "this host and ctl1 have one machine id (a cloned image): a move would pass for a restart",
                true,
            ),
            (|of| of.machine = None, "", false),
            (|of| of.own.clear(), "", false),
            (|of| of.enabled.clear(), "", false),
        ];
        for (change, expected, is_wrong) in table {
            let mut other = other.clone();
            change(&mut other);
            let found = between(&own, &other);
            match expected {
                "" => assert_eq!(found, []),
                _ => assert!(
                    found.len() == 1 && found[0].what.contains(expected) && found[0].is_wrong == is_wrong,
                    "{found:?}"
                ),
            }
        }
        let mut more = other.clone();
        more.files.insert("/etc/c.d/b.toml".into(), text("1"));
        more.files.insert("/etc/a.toml".into(), text("9"));
        let found: Vec<String> = between(&own, &more).into_iter().map(|of| of.what).collect();
        assert_eq!(found, ["/etc/a.toml differs from that of ctl1", "/etc/c.d/b.toml is on ctl1, and not here"]);
        // A file that was removed on the active host stays on the other.
        let todo = |own: &Inventory, other: &Inventory| between(own, other).remove(1).todo;
        assert!(todo(&own, &more).starts_with("on ctl1: rm /etc/c.d/b.toml if it is no longer needed"));
        more.files.remove(&PathBuf::from("/etc/ca.pem"));
        let found = between(&own, &more);
        assert!(found.iter().all(|of| !of.what.contains("ca.pem") || of.todo.starts_with("copy the right one")));
        assert!(todo(&more, &own).starts_with("rm /etc/c.d/b.toml here if it is no longer needed"));
    }

    #[test]
    fn a_host_without_its_certificate_or_key_is_named() {
        let (own, mut other) = (host("ctl0"), host("ctl1"));
        other.files.remove(&PathBuf::from("/etc/cert.pem"));
        for (one, two, what) in [
            (&own, &other, "/etc/cert.pem is missing on ctl1, and the controller does not start without it"),
            (&other, &own, "/etc/cert.pem is missing here, and the controller does not start without it"),
        ] {
            let found = between(one, two);
            let [found] = &found[..] else { panic!("{found:?}") };
            assert!(found.what == what && found.is_wrong, "{found:?}");
            assert!(found.todo.starts_with("on ctl1: perilog init controller --failover-of ctl0"), "{found:?}");
        }
    }

    /// The key has the right content on the second host, and the controller could not read it there.
    #[test]
    fn a_file_that_others_can_read_on_the_other_host_is_a_difference() {
        let (own, mut other) = (host("ctl0"), host("ctl1"));
        let theirs = &mut other.files.get_mut(&PathBuf::from("/etc/cert.pem")).unwrap().access;
        *theirs = Access { mode: 0o600, group: "root".to_owned(), ..theirs.clone() };
        let found = between(&other, &own);
        let [Difference { what, todo, is_wrong: true }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(what, "/etc/cert.pem is 0600 root:root here and 0640 root:perilog on ctl0");
        assert!(todo.starts_with("chown root:perilog /etc/cert.pem && chmod 0640 /etc/cert.pem"), "{todo}");
    }

    #[test]
    fn two_active_hosts_are_wrong() {
        let of = |active, mounted, name| Inventory { active, mounted, ..host(name) };
        for (own, other, expected) in [
            ((true, true), (true, true), "the controller runs here and on ctl1"),
            ((false, true), (true, true), "is mounted here and on ctl1"),
            ((true, true), (false, false), ""),
            ((false, false), (false, false), ""),
        ] {
            let found = between(&of(own.0, own.1, "ctl0"), &of(other.0, other.1, "ctl1"));
            let shown = found.first().map(|of| of.what.as_str()).unwrap_or_default();
            assert!(shown.contains(expected) && shown.is_empty() == expected.is_empty(), "{found:?}");
        }
    }
}
