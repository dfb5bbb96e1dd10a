//! A node's own files before the first boot: an identity, and the list of units to start.
//!
//! A node's root is the machine's root, with all services, generators and drop-ins of the machine. A list of units to
//! mask would never be complete. So the directories that pull units in are opaque and contain an allow-list instead.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{XattrFlags, fsetxattr};

use crate::node::{Node, booted_marker};

const VENDOR: &str = "/usr/lib/systemd/system";

/// Directories of this machine whose content is hidden from nodes.
const OPAQUE: [&str; 13] = [
    // Units enabled, masked or overridden on this machine.
    "/etc/systemd/system",
    "/etc/systemd/system.conf.d",
    "/etc/systemd/journald.conf.d",
    // Generators, which would make units of /etc/fstab, /etc/init.d and disks.
    "/usr/lib/systemd/system-generators",
    "/etc/systemd/system-generators",
    "/usr/lib/systemd/system/sysinit.target.wants",
    "/usr/lib/systemd/system/sockets.target.wants",
    "/usr/lib/systemd/system/timers.target.wants",
    "/usr/lib/systemd/system/multi-user.target.wants",
    // This machine's journal, the files of beds, and an installed product.
    "/var/log/journal",
    "/var/tmp",
    "/etc/perilog",
    "/var/lib/perilog",
];

/// Units that each of these targets starts on every node: the units that make a node (journal, bus, directories).
const WANTED: [(&str, &[&str]); 3] = [
    (
        "sysinit.target",
        &["systemd-journald.service", "systemd-journal-flush.service", "systemd-tmpfiles-setup.service"],
    ),
    ("sockets.target", &["dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"]),
    ("multi-user.target", &["dbus.service", "systemd-logind.service", "systemd-user-sessions.service"]),
];

/// Units that are masked on a node, for example because the bus would start them, or because they expect devices.
const MASKED: [&str; 2] = ["systemd-udevd.service", "systemd-hostnamed.service"];

/// Unit that creates the users of the installed product. systemd's own unit for it needs credentials, which a node of a
/// bed lacks.
const USERS: &str = "[Unit]\nDefaultDependencies=no\nBefore=systemd-tmpfiles-setup.service sysinit.target\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/systemd-sysusers\n";

/// Settings of systemd. A test kills a daemon and starts it again, more often than systemd allows by default (five
/// starts in ten seconds).
const MANAGER: &str = "[Manager]\nDefaultTimeoutStopSec=10s\nDefaultStartLimitIntervalSec=0\n";

/// User on every node, for scripts and commands that must not run as root.
const USER: &str = "alice";
const USER_ID: u32 = 64_001;

/// Writes a node's identity and its list of units to start into the node's files. The node is off. `hosts` has the
/// (address, name) of every node of the bed.
pub(super) fn furnish(node: &Node, hosts: &[(String, String)]) -> Result<()> {
    let files = node.files()?;
    for path in OPAQUE {
        let directory = files.directory(Path::new(path))?;
        fsetxattr(&directory, "trusted.overlay.opaque", b"y", XattrFlags::empty())
            .with_context(|| format!("hiding this machine's {path}"))?;
    }
    let link = |path: String, target: &str| files.link(Path::new(&path), target);
    for (target, units) in WANTED {
        for unit in units {
            link(format!("{VENDOR}/{target}.wants/{unit}"), &format!("{VENDOR}/{unit}"))?;
        }
    }
    for unit in MASKED {
        link(format!("/etc/systemd/system/{unit}"), "/dev/null")?;
    }
    // With dbus-broker as the bus (Fedora, RHEL), dbus.service is an alias; enabling dbus-broker creates the alias.
    if !node.base().file(VENDOR).join("dbus.service").exists() {
        link("/etc/systemd/system/dbus.service".into(), &format!("{VENDOR}/dbus-broker.service"))?;
    }
    link("/etc/systemd/system/default.target".into(), "bed.target")?;
    link("/etc/systemd/system/sysinit.target.wants/bed-users.service".into(), "/etc/systemd/system/bed-users.service")?;

    let machine_id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("a machine id")?.replace('-', "");
    let addresses: String = hosts.iter().map(|(address, name)| format!("{address} {name}\n")).collect();
    let append = |path: &str, line: String| -> Result<String> {
        let text = std::fs::read_to_string(node.base().file(path)).with_context(|| format!("reading {path}"))?;
        Ok(format!("{}\n{line}\n", text.trim_end()))
    };
    let booted = format!(
        "[Unit]\nDefaultDependencies=no\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/usr/bin/touch \
         {}\n",
        booted_marker(node.bed_name())
    );
    let texts = [
        ("/etc/machine-id", machine_id),
        ("/etc/hostname", format!("{}\n", node.name())),
        ("/etc/hosts", format!("127.0.0.1 localhost\n{addresses}")),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n".into()),
        ("/etc/passwd", append("/etc/passwd", format!("{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh"))?),
        ("/etc/group", append("/etc/group", format!("{USER}:x:{USER_ID}:"))?),
        // The journal is on the node's disk, so a test can read the journal after a power failure.
        ("/etc/systemd/journald.conf.d/bed.conf", "[Journal]\nStorage=persistent\nAudit=no\n".into()),
        ("/etc/systemd/system.conf.d/bed.conf", MANAGER.into()),
        ("/etc/systemd/system/bed.target", "[Unit]\nRequires=multi-user.target\nWants=bed-booted.service\n".into()),
        ("/etc/systemd/system/bed-booted.service", booted),
        ("/etc/systemd/system/bed-users.service", USERS.into()),
    ];
    for (path, text) in texts {
        files.write(Path::new(path), text.as_bytes(), 0o644)?;
    }
    let shadow = append("/etc/shadow", format!("{USER}:*:1::::::"))?;
    files.write(Path::new("/etc/shadow"), shadow.as_bytes(), 0o600)?;
    Ok(())
}
