//! The page about two hosts is true: the test types its commands on two hosts without a configuration, with the real
//! Pacemaker, Corosync, ssh and a disk that both see. Then nodes join, the active host loses its power, and jobs go on;
//! doctor finds what an administrator may do wrong.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use perilog_tests::Node;
use perilog_tests::book::Page;
use perilog_tests::failover::Machines;

const SOON: Duration = Duration::from_secs(150);
const NODES: usize = 4;

/// Returns the output of a command that must exit with `status`.
fn ends(node: &Node, command: &str, status: i32) -> Result<String> {
    let output = node.run_within(SOON, &["bash", "-c", &format!("exec 2>&1\n{command}")])?;
    ensure!(output.code() == Some(status), "{command}: {output}");
    Ok(output.stdout)
}

fn contains(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

#[test]
fn an_operator_who_follows_the_page_has_two_hosts() -> Result<()> {
    let machines = Machines::boot(NODES)?;
    let bed = machines.bed();
    let (ctl0, ctl1) = (bed.node("ctl0")?, bed.node("ctl1")?);
    let stand_in = |name: &str| match name {
        "packages, disk and ssh" => Ok(()),
        "fencing" => machines.fence(),
        other => bail!("no stand-in called {other:?}"),
    };
    let done = Page::open("failover.md")?.run(bed, None, stand_in)?;
    ensure!(done.commands > 10 && done.skipped == 2, "{done:?}");
    let active = |host: &Node| host.sh("systemctl is-active perilog-controller").is_ok();
    let (first, second) = if active(ctl0) { (ctl0, ctl1) } else { (ctl1, ctl0) };

    first.sh("test -n \"$(ls -A /var/lib/perilog-backup)\"")?;
    second.sh("test -z \"$(ls -A /var/lib/perilog-backup)\"")?;

    // Nodes join through the address that moves, and run a job.
    let printed = ends(first, "perilog init controller --nodes 'n[0-3]'", 0)?;
    contains(&printed, &["init node --controller ctl --pin"])?;
    for line in printed.lines().map(str::trim) {
        if let Some((host, command)) = line.split_once("# ") {
            bed.node(host)?.sh("mkdir -p /etc/perilog/prolog.d /etc/perilog/epilog.d")?;
            ends(bed.node(host)?, command, 0)?;
        }
    }
    ends(first, "perilog run prolog --job j1 --nodes 'n[0-3]'", 0)?;

    // The passive host names the other one, and starts no controller without the disk.
    contains(&ends(second, "perilog ps", 7)?, &["[failover]", &format!("perilog -H {}", first.name())])?;
    ends(second, "systemctl start perilog-controller", 1)?;
    let journal = second.sh("journalctl --no-pager -o cat -u perilog-controller")?;
    contains(&journal, &["no file system is mounted on /var/lib/perilog here", "nothing was written"])?;
    second.sh("systemctl stop perilog-controller; test -z \"$(find /var/lib/perilog -type f)\"")?;

    // doctor finds what differs, and what both hosts must not do.
    second.sh("echo 'retention = \"1d\"' >/etc/perilog/controller.d/other.toml")?;
    second.sh("systemctl enable perilog-controller.service 2>/dev/null")?;
    let limit = "/etc/systemd/system/perilog-controller.service.d/failover.conf";
    second.sh(&format!("mv {limit} /root/ && systemctl daemon-reload"))?;
    let reply = ends(second, "perilog doctor controller", 1)?;
    contains(&reply, &["other.toml is not on", "systemd starts perilog-controller.service at boot", "again for ever"])?;
    contains(&ends(first, "perilog doctor controller", 1)?, &["other.toml is on", "and not here"])?;
    second.sh("rm /etc/perilog/controller.d/other.toml; systemctl disable perilog-controller.service 2>/dev/null")?;
    second.sh(&format!("mv /root/failover.conf {limit} && systemctl daemon-reload"))?;
    // The second host has another authority and another user id.
    let ids = second.sh("id -u perilog")?;
    second.sh(
        "cp -a /etc/perilog/tls/ca.pem /root/ && cat /etc/ssl/certs/ca-certificates.crt >/etc/perilog/tls/ca.pem",
    )?;
    second.sh("usermod -u 64123 perilog")?;
    let reply = ends(second, "perilog doctor controller", 1)?;
    contains(&reply, &["/etc/perilog/tls/ca.pem differs from that of", "the user perilog is 64123:", "usermod -u"])?;
    second.sh(&format!("usermod -u {} perilog && cp -a /root/ca.pem /etc/perilog/tls/", ids.trim()))?;
    // A change on one host reaches the other by the same command.
    first.sh("echo 'retention = \"2d\"' >/etc/perilog/controller.d/site.toml")?;
    let directory = "/etc/systemd/system/perilog-controller.socket.d";
    first.sh(&format!("mkdir {directory} && printf '[Socket]\\nBacklog=4096\\n' >{directory}/site.conf"))?;
    // The umask of root does not decide who can enter a new directory.
    ends(second, &format!("umask 077; perilog init controller --failover-of {}", first.name()), 0)?;
    ensure!(second.sh(&format!("stat -c %a {directory}"))?.trim() == "755");
    ends(second, "perilog doctor controller", 0)?;
    let again = ends(second, &format!("perilog init controller --failover-of {}", first.name()), 0)?;
    contains(&again, &["nothing to do"])?;

    machines.power_cut(first.name())?;
    bed.wait_until("the other host runs the controller, and the nodes are back", SOON, || {
        let Ok(nodes) = second.sh("perilog --json nodes") else { return Ok(false) };
        Ok(nodes.matches("\"online\"").count() == NODES)
    })?;
    ensure!(machines.fenced() == [format!("reboot {}", first.name())], "{:?}", machines.fenced());
    ends(second, "perilog run prolog --job j2 --nodes 'n[0-3]'", 0)?;
    contains(&second.sh("perilog ps --held; perilog show j1")?, &["j1", "j2"])
}
