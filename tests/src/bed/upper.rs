//! Node's own files before its first boot: an identity, and the list of units to start.
//!
//! A node's root is this machine's, with all its services, generators and drop-ins. A list of units to mask would never
//! be complete, so the directories that pull units in are opaque and contain an allow-list instead.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{XattrFlags, fsetxattr};

use crate::node::{Node, booted_marker};

const VENDOR: &str = "/usr/lib/systemd/system";

/// Directories whose content on this machine is hidden from nodes.
const OPAQUE: [&str; 13] = [
    // Units enabled, masked or overridden on this machine.
    "/etc/systemd/system",
    "/etc/systemd/system.conf.d",
    "/etc/systemd/journald.conf.d",
    // Would make units of /etc/fstab, /etc/init.d and disks.
    "/usr/lib/systemd/system-generators",
    "/etc/systemd/system-generators",
    "/usr/lib/systemd/system/sysinit.target.wants",
    "/usr/lib/systemd/system/sockets.target.wants",
    "/usr/lib/systemd/system/timers.target.wants",
    "/usr/lib/systemd/system/multi-user.target.wants",
    // This machine's journal, this bed and others beside it, and an installed product.
    "/var/log/journal",
    "/var/tmp",
    "/etc/perilog",
    "/var/lib/perilog",
];

/// Units to start: only those that make a node (journal, bus, directories).
const WANTED: [(&str, &[&str]); 3] = [
    (
        "sysinit.target",
        &["systemd-journald.service", "systemd-journal-flush.service", "systemd-tmpfiles-setup.service"],
    ),
    ("sockets.target", &["dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"]),
    ("multi-user.target", &["dbus.service"]),
];

/// Would be started over the bus and then expect devices or seats.
const MASKED: [&str; 3] = ["systemd-logind.service", "systemd-udevd.service", "systemd-hostnamed.service"];

/// Users that the installed product brings. systemd's own unit for it wants credentials, which a node of a bed has not.
const USERS: &str = "[Unit]\nDefaultDependencies=no\nBefore=systemd-tmpfiles-setup.service sysinit.target\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/systemd-sysusers\n";

/// User for scripts that must not run as root.
const USER: &str = "alice";
const USER_ID: u32 = 64_001;

/// Writes it into the node's files; the node is off.
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
    // With dbus-broker as the bus (Fedora, RHEL), dbus.service is an alias that enabling creates.
    if !Path::new(VENDOR).join("dbus.service").exists() {
        link("/etc/systemd/system/dbus.service".into(), &format!("{VENDOR}/dbus-broker.service"))?;
    }
    link("/etc/systemd/system/default.target".into(), "bed.target")?;
    link("/etc/systemd/system/sysinit.target.wants/bed-users.service".into(), "/etc/systemd/system/bed-users.service")?;

    let machine_id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("a machine id")?.replace('-', "");
    let addresses: String = hosts.iter().map(|(address, name)| format!("{address} {name}\n")).collect();
    let append = |path: &str, line: String| -> Result<String> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
        Ok(format!("{}\n{line}\n", text.trim_end()))
    };
    let booted = format!(
        "[Unit]\nDefaultDependencies=no\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/usr/bin/touch {}\n",
        booted_marker(node.bed_name())
    );
    let texts = [
        ("/etc/machine-id", machine_id),
        ("/etc/hostname", format!("{}\n", node.name())),
        ("/etc/hosts", format!("127.0.0.1 localhost\n{addresses}")),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n".into()),
        ("/etc/passwd", append("/etc/passwd", format!("{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh"))?),
        ("/etc/group", append("/etc/group", format!("{USER}:x:{USER_ID}:"))?),
        // On the node's disk, so that it can be read after a power failure.
        ("/etc/systemd/journald.conf.d/bed.conf", "[Journal]\nStorage=persistent\nAudit=no\n".into()),
        ("/etc/systemd/system.conf.d/bed.conf", "[Manager]\nDefaultTimeoutStopSec=10s\n".into()),
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
