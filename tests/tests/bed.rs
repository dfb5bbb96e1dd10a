//! Tests of the test bed: on this machine, it does what the documentation of its module says.

use std::time::Duration;

use anyhow::{Context, Result};
use perilog_tests::{Bed, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// Shell command that succeeds if a connection to a host gets an answer (a refusal is an answer).
const REACH: &str = r#"timeout 1 bash -c "exec 3<>/dev/tcp/$0/9" 2>/dev/null; test $? = 1"#;

#[test]
fn nodes_boot_as_machines_of_their_own() -> Result<()> {
    let bed = Bed::builder().node("ctl").nodes(2).boot()?;
    let (n0, n1) = (bed.node("n0")?, bed.node("n1")?);

    assert_eq!(n0.sh("hostname; cat /proc/1/comm")?, "n0\nsystemd");
    assert_eq!(n0.systemctl(&["is-system-running"])?, "running");
    assert_eq!(n0.run(&["false"])?.code(), Some(1));
    assert_eq!(n0.run_within(Duration::from_millis(100), &["sleep", "60"])?.code(), Some(124));
    assert_eq!(n0.sh("setpriv --reuid alice --clear-groups id -un")?, "alice");
    assert_eq!(n0.sh("getent hosts ctl n0 n1")?.lines().count(), 3);
    assert_ne!(n0.boot_id()?, n1.boot_id()?);
    assert_ne!(n0.read_file("/etc/machine-id")?, n1.read_file("/etc/machine-id")?);
    assert!(
        n0.run(&["sh", "-c", "echo 1 >/proc/sys/kernel/sysrq"])?.code() != Some(0),
        "the machine's settings are safe"
    );
    assert_eq!(n0.systemctl(&["list-units", "--plain", "--no-legend", "--failed"])?, "");
    assert_eq!(n0.run(&["systemd-run", "--quiet", "--wait", "sh", "-c", "exit 37"])?.code(), Some(37));
    assert!(n0.diagnosis().contains("=== n0 (on)"));
    Ok(())
}

#[test]
fn files_can_be_reached_while_a_node_is_on_and_off() -> Result<()> {
    let bed = Bed::builder().node("n0").build()?;
    let node = bed.node("n0")?;
    assert!(!node.is_up() && node.sh("true").is_err());
    node.write_script("/opt/site/hello", "#!/bin/sh\necho hello $0\n")?;
    node.boot()?;
    assert_eq!(node.sh("/opt/site/hello")?, "hello /opt/site/hello");
    node.write_file("/var/run/mark", "on /run, by way of a link")?;
    assert_eq!(node.sh("cat /run/mark")?, "on /run, by way of a link");
    node.sh("echo kept >/opt/site/kept")?;
    node.shutdown()?;
    assert_eq!(node.read_file("/opt/site/kept")?, "kept\n");
    assert_eq!(node.try_read_file("/opt/site/hullo")?, None);
    Ok(())
}

#[test]
fn a_cut_network_answers_nobody_until_it_is_healed() -> Result<()> {
    let bed = Bed::builder().nodes(2).boot()?;
    let (n0, n1) = (bed.node("n0")?, bed.node("n1")?);
    let reaches = |peer: &str| Ok::<_, anyhow::Error>(n0.run(&["bash", "-c", REACH, peer])?.success());
    assert!(reaches("n1")?);
    n1.cut()?;
    assert!(!reaches("n1")?);
    assert_eq!(n1.sh("echo still here")?, "still here");
    n1.heal()?;
    bed.wait_until("n1 answers again", LIMIT, || reaches("n1"))
}

/// Whichever node goes, the others know the way to the switch, where the power switch of the failover tests is.
#[test]
fn the_switch_keeps_its_hardware_address() -> Result<()> {
    let bed = Bed::builder().nodes(3).boot()?;
    let n1 = bed.node("n1")?;
    let address = || {
        n1.run(&["bash", "-c", REACH, "10.77.0.1"])?;
        n1.sh("ip -o neigh show to 10.77.0.1 | cut -d' ' -f5")
    };
    assert_eq!(address()?, "02:00:0a:4d:00:01");
    for gone in ["n0", "n2"] {
        bed.node(gone)?.power_fail()?;
        n1.sh("ip neigh flush dev eth0")?;
        assert_eq!(address()?, "02:00:0a:4d:00:01", "after {gone}");
    }
    Ok(())
}

#[test]
fn a_power_failure_ends_a_boot_and_keeps_the_disk() -> Result<()> {
    let bed = Bed::builder().nodes(2).boot()?;
    let (n0, n1) = (bed.node("n0")?, bed.node("n1")?);
    let (machine, boot) = (n0.read_file("/etc/machine-id")?, n0.boot_id()?);
    n0.sh("echo disk >/var/lib/mark; echo memory >/run/mark; logger -t mark before the failure; journalctl --sync")?;

    // The peer n1 notices nothing of the power failure: its connection stays open.
    let mut server = n0.spawn(&["python3", "-c", SERVER])?;
    bed.wait_until("the server listens", LIMIT, || Ok(server.output()?.stdout.contains("listens")))?;
    let mut client = n1.spawn(&["python3", "-c", CLIENT])?;
    bed.wait_until("the client is connected", LIMIT, || Ok(client.output()?.stdout.contains("connected")))?;
    n0.power_fail()?;
    assert!(!n0.is_up() && server.wait(LIMIT)?.code().is_none_or(|code| code != 0));
    assert_eq!(client.wait(LIMIT)?.ok()?, "connected\nsilence");
    assert!(n0.diagnosis().contains("before the failure"), "{}", n0.diagnosis());

    n0.boot()?;
    assert_eq!(n0.read_file("/etc/machine-id")?, machine);
    assert_ne!(n0.boot_id()?, boot);
    assert_eq!(n0.sh("cat /var/lib/mark; test ! -e /run/mark")?, "disk");
    assert!(n1.run(&["bash", "-c", REACH, "n0"])?.success());
    Ok(())
}

const SERVER: &str = "
import socket
server = socket.create_server(('', 7))
print('listens', flush=True)
server.accept()[0].recv(1)
";
const CLIENT: &str = "
import socket
client = socket.create_connection(('n0', 7))
print('connected', flush=True)
client.settimeout(1)
try:
    print('closed' if client.recv(1) == b'' else 'data')
except TimeoutError:
    print('silence')
";

#[test]
fn a_node_reboots_when_it_is_asked_to() -> Result<()> {
    let bed = Bed::builder().node("n0").boot()?;
    let node = bed.node("n0")?;
    let boot = node.boot_id()?;
    node.reboot()?;
    assert_ne!(node.boot_id()?, boot);
    node.sh("systemctl --no-block poweroff")?;
    node.wait_off(LIMIT)?;
    node.boot()
}

#[test]
fn a_command_that_runs_can_be_watched_and_killed() -> Result<()> {
    let bed = Bed::builder().node("n0").boot()?;
    let node = bed.node("n0")?;
    let mut running = node.spawn(&["sh", "-c", "echo begun; exec sleep 1000"])?;
    bed.wait_until("its first line", LIMIT, || Ok(running.output()?.stdout == "begun\n"))?;
    // The shell has printed the line and is about to exec.
    let sleeps = || Ok(node.run(&["pgrep", "-c", "-x", "sleep"])?.stdout.trim() == "1");
    bed.wait_until("a sleep", LIMIT, sleeps)?;
    running.kill()?;
    assert_eq!(node.run(&["pgrep", "-x", "sleep"])?.code(), Some(1));
    // A child that keeps the output open delays nothing.
    assert_eq!(node.sh("sleep 1000 & echo done")?, "done");
    bed.wait_until("the child", LIMIT, sleeps)
}

/// Makes a bed on a node of another bed. The outer node stands for a machine whose systemd assigns cgroups, and whose
/// root is an overlay, as in most containers. (An overlay cannot be the upper side of another overlay.) Nothing else
/// runs on that node, so whatever the inner bed leaves behind is seen.
#[test]
fn a_bed_can_be_made_on_a_node_of_a_bed() -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    if mounts.lines().any(|mount| mount.starts_with("overlay / overlay ")) {
        println!("not here: / is an overlay, a node's is the second, and the kernel stacks no third");
        return Ok(());
    }
    let bed = Bed::builder().node("host").boot()?;
    let host = bed.node("host")?;
    let state = "cat /proc/self/mounts; ls /sys/class/net /run /var/tmp; find /sys/fs/cgroup -type d | sort; lsns -n \
                 -o NS,TYPE -t net -t mnt -t pid";
    host.systemctl(&["start", "machine.slice"])?; // systemd makes the slice for the first bed and keeps the slice
    let before = host.sh(state)?;
    // This program may be on a file system that nodes do not see.
    host.write_script("/usr/local/bin/nodes.new", std::fs::read(std::env::current_exe()?)?)?;
    // `cp` makes the executable: another test that forks at this moment would inherit this process's open file, and
    // exec would fail with "text file busy".
    host.sh("cp -p /usr/local/bin/nodes.new /usr/local/bin/nodes")?;
    let output = host.run(&[
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--slice=machine.slice",
        "/usr/local/bin/nodes",
        "--exact",
        "--nocapture",
        "bed::nodes_boot_as_machines_of_their_own",
        "bed::a_power_failure_ends_a_boot_and_keeps_the_disk",
    ])?;
    assert!(output.success() && output.stdout.contains("2 passed"), "{output}");
    assert!(output.stderr.contains("they are kept in memory"), "{output}");
    let mut after = String::new();
    let same = wait_until("the host is as it was before", LIMIT, || {
        after = host.sh(state)?;
        Ok(after == before)
    });
    same.with_context(|| format!("--- before\n{before}\n--- after\n{after}"))
}
