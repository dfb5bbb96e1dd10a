//! Files and commands by which an administrator has two hosts for the controller: Corosync, Pacemaker, and the group
//! that moves. The files are those of the page about two hosts (docs/failover.md), so that the faults of the tests meet
//! what its readers have; [`FENCING`], [`GROUP_FILE`] and the like name the few differences.
//!
//! The set-up is one text for crmsh (`crm configure load`), because twenty readable lines beat sixty of XML, and Debian
//! and SUSE have it. All later commands are Pacemaker's own (`crm_resource`, `crm_mon`), which every distribution has.
//!
//! Measured with Debian 12's Pacemaker (2.1.5):
//! * Each `systemd:` resource costs two seconds at its start and two at its stop: Pacemaker asks systemd once, and
//!   again two seconds later. The controller's socket unit in the group makes a move four seconds longer, and an agent
//!   that dials in between waits in the backlog. So it is not in the group; the controller itself listens.
//! * Pacemaker switches systemd's own `Restart=` off by a drop-in, `50-pacemaker.conf`. A killed controller would then
//!   be away until the next monitor. The package has a drop-in of a later name, `60-restart.conf`.
//! * A group has the sum of its members' stickiness, here 300, which the score of `reach` has to beat. With that score
//!   for each node that a host reaches, the group moved for one node that the active host alone did not reach. With no
//!   score for a host that has not pinged yet, it moved right after its first start, to the host that was first to
//!   ping.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::book::Page;
use crate::node::Node;

/// Mount point of the shared disk.
pub(super) const STORE: &str = "/var/lib/perilog";
/// Name of the group that Pacemaker moves.
pub(super) const GROUP: &str = "perilog";

/// Page whose files the hosts of a bed have.
const PAGE: &str = "failover.md";
/// Configuration of Corosync on both hosts.
pub(super) const COROSYNC: &str = "/etc/corosync/corosync.conf";
/// Lines of the controller's configuration: it runs only where the shared disk is mounted.
const FAILOVER: &str = "/etc/perilog/controller.d/failover.toml";
/// Drop-in of the controller's unit: after five starts in two minutes systemd leaves it failed, which Pacemaker sees.
const START_LIMIT: &str = "/etc/systemd/system/perilog-controller.service.d/failover.conf";

/// Differences of a bed's file from the page's: a text of the page, and the text that a bed has instead.
type Differences<'d> = &'d [(&'d str, &'d str)];

/// The fence devices. A host has two, its BMC and a plug of the power strip; the bed's agent stands for both.
const FENCING: (&str, Differences<'static>) = (
    "/root/fencing.crm",
    &[
        ("stonith:fence_ipmilan", "stonith:fence_bed"),
        ("ip=ctl0-bmc lanplus=1 username=fence password=...", "plug=ctl0-bmc"),
        ("ip=ctl1-bmc lanplus=1 username=fence password=...", "plug=ctl1-bmc"),
        ("stonith:fence_apc_snmp", "stonith:fence_bed"),
        ("ip=strip community=... plug=1", "plug=ctl0"),
        ("ip=strip community=... plug=2", "plug=ctl1"),
    ],
);
/// The group, and where it may run.
const GROUP_FILE: &str = "/root/perilog.crm";
/// Nodes of the page that Pacemaker pings; a bed has another number of nodes.
const PINGED: &str = "n0 n1 n2 n3";

/// Returns the text of a file of the page with the differences of a bed. Each of them has to match, so that a change of
/// the page is noticed.
fn of_page(path: &str, differences: Differences<'_>) -> Result<String> {
    let page = Page::open(PAGE)?;
    differences.iter().try_fold(page.file(path)?.to_owned(), |text, (on_page, in_bed)| {
        ensure!(text.contains(on_page), "docs/{PAGE}: no {on_page:?} in {path}");
        Ok(text.replace(on_page, in_bed))
    })
}

/// Returns the fence devices of a bed, for `crm configure load update`.
pub(super) fn fencing() -> Result<String> {
    of_page(FENCING.0, FENCING.1)
}

/// Shortens the watchdog for the tests.
const WATCHDOG: &str = "[Service]\nWatchdogSec=5s\n";

/// Configuration with which a new Pacemaker elects its coordinator at once, where its default waits 20 s.
const FIRST_CIB: &str = "<cib crm_feature_set=\"3.16.1\" validate-with=\"pacemaker-3.8\" admin_epoch=\"0\" epoch=\"1\" \
    num_updates=\"0\"><configuration><crm_config><cluster_property_set id=\"cib-bootstrap-options\"><nvpair \
    id=\"cib-bootstrap-options-dc-deadtime\" name=\"dc-deadtime\" value=\"2s\"/></cluster_property_set></crm_config>\
    <nodes/><resources/><constraints/></configuration><status/></cib>\n";
const FIRST_CIB_FILE: &str = "/etc/bed/cib.xml";
const PACEMAKER: &str = "[Service]\nExecStartPre=/bin/sh -c 'cd /var/lib/pacemaker/cib; test -e cib.xml || install -o \
    hacluster -g haclient -m 600 /etc/bed/cib.xml cib.xml'\n";

const FENCE_AGENT: &str = include_str!("fence_bed.sh");

/// Writes a host's files; the host is off. `disk` is the device number of the shared disk, `key` that of Corosync, and
/// `nodes` are the nodes that an active host must reach.
pub(super) fn furnish(host: &Node, disk: (u32, u32), key: &[u8], nodes: &[&str]) -> Result<()> {
    for path in [COROSYNC, FAILOVER, START_LIMIT] {
        host.write_file(path, of_page(path, &[])?)?;
    }
    host.write_with_mode("/etc/corosync/authkey", key, 0o400)?;
    host.write_file("/etc/systemd/system/perilog-controller.service.d/watchdog.conf", WATCHDOG)?;
    furnish_machine(host, disk)?;
    let group = of_page(GROUP_FILE, &[(PINGED, &nodes.join(" "))])?;
    host.write_file(GROUP_FILE, format!("{}{group}", fencing()?))?;
    host.write_file(FIRST_CIB_FILE, FIRST_CIB)?;
    host.write_file("/etc/systemd/system/pacemaker.service.d/bed.conf", PACEMAKER)?;
    host.enable("corosync.service", "multi-user.target")?;
    host.enable("pacemaker.service", "multi-user.target")
}

/// Writes the files of a host's machine: its disk and its fence agent. The host is off.
pub(super) fn furnish_machine(host: &Node, disk: (u32, u32)) -> Result<()> {
    host.write_script("/usr/sbin/fence_bed", FENCE_AGENT)?;
    host.write_file("/etc/systemd/system/bed-disk.service", disk_unit(disk))?;
    host.enable_own("bed-disk.service", "sysinit.target")
}

/// Returns the unit that makes the shared disk's device node at each boot, as udev does on a machine. It also makes all
/// mounts shared, as systemd does outside of containers: otherwise the namespace of a service that began while the
/// disk was mounted would keep it mounted.
pub(super) fn disk_unit((major, minor): (u32, u32)) -> String {
    format!(
        "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/mount --make-rshared /\nExecStart=/bin/mknod /dev/perilog b {major} {minor}\n"
    )
}

/// Begins with an empty store on the shared disk, because a controller with `[failover]` makes none; typed once, on
/// either host.
pub(super) const EMPTY_STORE: &str = "mount /dev/perilog /var/lib/perilog
install -o perilog -g perilog -m 0600 /dev/null /var/lib/perilog/controller.db
umount /var/lib/perilog";
/// Time limit for crm(8), which starts dozens of programs: seconds on a quiet machine, minutes on a loaded one.
pub(super) const CRM: Duration = Duration::from_secs(300);
/// Loads the group; typed once, on either host.
pub(super) const LOAD: [&str; 5] = ["crm", "configure", "load", "update", GROUP_FILE];

/// Moves the group to a host, and leaves a constraint that [`STAY`] removes.
pub(super) fn move_to(host: &str) -> [&str; 6] {
    ["crm_resource", "--move", "--resource", GROUP, "--node", host]
}

/// Removes the constraint of [`move_to`].
pub(super) const STAY: [&str; 4] = ["crm_resource", "--clear", "--resource", GROUP];
/// Switches fencing off, which no site should do.
pub(super) const NO_FENCING: [&str; 5] = ["crm_attribute", "--name", "stonith-enabled", "--update", "false"];
/// Has Pacemaker believe that a host has no power, where no fence device answers.
pub(super) fn confirm(host: &str) -> [&str; 3] {
    ["stonith_admin", "--confirm", host]
}
/// Prints the number of the nodes that a host reaches, as Pacemaker has it.
pub(super) fn reached(host: &str) -> [&str; 9] {
    ["crm_attribute", "--node", host, "--name", "pingd", "--lifetime", "reboot", "--query", "--quiet"]
}
/// Waits until Pacemaker has nothing to do.
pub(super) const WAIT: [&str; 4] = ["crm_resource", "--wait", "--timeout", "50"];
/// Forgets failures that an administrator has looked at.
pub(super) const CLEAN_UP: [&str; 2] = ["crm_resource", "--cleanup"];
/// Prints the state of the cluster once.
pub(super) const STATE: [&str; 4] = ["crm_mon", "-1", "-r", "-f"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beds_files_are_the_pages_with_each_difference() {
        let fencing = fencing().unwrap();
        assert!(fencing.contains("plug=ctl0-bmc") && fencing.contains("fencing_topology"), "{fencing}");
        assert!(!fencing.contains("ip="), "a device of the page is none of the bed: {fencing}");
        let group = of_page(GROUP_FILE, &[(PINGED, "n0 n1")]).unwrap();
        assert!(group.contains("host_list=\"n0 n1\""), "{group}");
        for path in [COROSYNC, FAILOVER, START_LIMIT] {
            assert!(of_page(path, &[]).unwrap().contains(path), "{path}");
        }
        let error = of_page(GROUP_FILE, &[("no such text", "")]).unwrap_err().to_string();
        assert!(error.contains("docs/failover.md: no \"no such text\""), "{error}");
    }
}
