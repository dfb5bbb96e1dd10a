//! Files and commands by which an administrator has two hosts for the controller: Corosync, Pacemaker, and the group
//! that moves. One place, so that the guide's page can replace it.
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
//! * A group has the sum of its members' stickiness: with `multiplier=100` and a stickiness of 150, a host that reached
//!   no node kept the group.

use anyhow::Result;

use crate::node::Node;

/// Mount point of the shared disk.
pub(super) const STORE: &str = "/var/lib/perilog";
/// Name of the group that Pacemaker moves.
pub(super) const GROUP: &str = "perilog";

/// Configuration of Corosync on both hosts.
const COROSYNC: &str = "totem {
    version: 2
    cluster_name: perilog
    transport: knet
    crypto_cipher: aes256
    crypto_hash: sha256
    token: 3000
}
nodelist {
    node {
        name: ctl0
        nodeid: 1
        ring0_addr: 10.77.0.2
    }
    node {
        name: ctl1
        nodeid: 2
        ring0_addr: 10.77.0.3
    }
}
quorum {
    provider: corosync_votequorum
    two_node: 1
}
logging {
    to_syslog: yes
}
";

/// Fencing by the bed's power switch, for `crm configure load update`. `pcmk_delay_base` decides the race of two hosts
/// that fence each other.
pub(super) const FENCING: &str = "primitive fence-ctl0 stonith:fence_bed \\
    params plug=ctl0 pcmk_host_list=ctl0 pcmk_delay_base=3s op monitor interval=60s
primitive fence-ctl1 stonith:fence_bed \\
    params plug=ctl1 pcmk_host_list=ctl1 op monitor interval=60s
location fence-ctl0-elsewhere fence-ctl0 -inf: ctl0
location fence-ctl1-elsewhere fence-ctl1 -inf: ctl1
property stonith-enabled=true stonith-timeout=120s
";

/// The group, and where it may run, for `crm configure load update`; `NODES` is a list of nodes.
/// `two_node` keeps the quorum with one host, and implies `wait_for_all`.
const CRM: &str = "primitive perilog-store ocf:heartbeat:Filesystem \\
    params device=/dev/perilog directory=/var/lib/perilog fstype=ext4 \\
    op start timeout=60s interval=0 op stop timeout=60s interval=0 \\
    op monitor interval=20s timeout=40s OCF_CHECK_LEVEL=10
primitive perilog-address ocf:heartbeat:IPaddr2 \\
    params ip=10.77.0.200 cidr_netmask=16 op monitor interval=10s timeout=20s
primitive perilog-controller systemd:perilog-controller \\
    op start timeout=600s interval=0 op stop timeout=60s interval=0 op monitor interval=10s timeout=60s
group perilog perilog-store perilog-address perilog-controller meta migration-threshold=3 failure-timeout=10min
primitive reach ocf:pacemaker:ping \\
    params host_list=\"NODES\" multiplier=1000 dampen=2s attempts=1 timeout=1 op monitor interval=3s timeout=20s
clone reach-everywhere reach
location perilog-reaches-nodes perilog rule pingd: defined pingd
rsc_defaults resource-stickiness=100
";

/// Lines of the controller's configuration: it runs only where the shared disk is mounted.
const FAILOVER: &str = "[failover]\nhosts = \"ctl[0-1]\"\n";
/// Drop-in of the controller's unit: after five starts in two minutes systemd leaves it failed, which Pacemaker sees.
const START_LIMIT: &str = "[Unit]\nStartLimitIntervalSec=2min\nStartLimitBurst=5\n";
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
    host.write_file("/etc/corosync/corosync.conf", COROSYNC)?;
    host.write_with_mode("/etc/corosync/authkey", key, 0o400)?;
    host.write_file("/etc/systemd/system/perilog-controller.service.d/failover.conf", START_LIMIT)?;
    host.write_file("/etc/systemd/system/perilog-controller.service.d/watchdog.conf", WATCHDOG)?;
    host.write_file("/etc/perilog/controller.d/failover.toml", FAILOVER)?;
    furnish_machine(host, disk)?;
    host.write_file("/root/perilog.crm", format!("{FENCING}{}", CRM.replace("NODES", &nodes.join(" "))))?;
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
/// Loads the group; typed once, on either host.
pub(super) const LOAD: [&str; 5] = ["crm", "configure", "load", "update", "/root/perilog.crm"];

/// Moves the group to a host, and leaves a constraint that [`STAY`] removes.
pub(super) fn move_to(host: &str) -> [&str; 6] {
    ["crm_resource", "--move", "--resource", GROUP, "--node", host]
}

/// Removes the constraint of [`move_to`].
pub(super) const STAY: [&str; 4] = ["crm_resource", "--clear", "--resource", GROUP];
/// Switches fencing off, which no site should do.
pub(super) const NO_FENCING: [&str; 5] = ["crm_attribute", "--name", "stonith-enabled", "--update", "false"];
/// Forgets failures that an administrator has looked at.
pub(super) const CLEAN_UP: [&str; 2] = ["crm_resource", "--cleanup"];
/// Prints the state of the cluster once.
pub(super) const STATE: [&str; 4] = ["crm_mon", "-1", "-r", "-f"];
