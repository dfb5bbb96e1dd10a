//! The page about two hosts is true: the test types its commands on two hosts as Debian's packages leave them, with the
//! real Pacemaker, Corosync, ssh and a disk that both see. Between its parts, nodes join and jobs run, doctor finds
//! what an administrator may do wrong, the commands of the page's table are typed, and a host loses its power. Then one
//! host burns, and another machine gets its name, as the page says.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perilog_tests::book::{Page, illustrated, row};
use perilog_tests::failover::Machines;
use perilog_tests::{Bed, Node};

const PAGE: &str = "failover.md";
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

/// Returns the host that runs the controller, and the other.
fn hosts(bed: &Bed) -> Result<(&Node, &Node)> {
    let (ctl0, ctl1) = (bed.node("ctl0")?, bed.node("ctl1")?);
    let is_active = |host: &Node| host.sh("systemctl is-active perilog-controller").is_ok();
    Ok(if is_active(ctl0) { (ctl0, ctl1) } else { (ctl1, ctl0) })
}

/// Waits until Pacemaker has both hosts, and `active` runs the controller with every node.
fn wait_settled(bed: &Bed, active: &Node) -> Result<()> {
    bed.wait_until(&format!("{} runs the controller of all nodes, beside the other host", active.name()), SOON, || {
        let members = active.run(&["crm_mon", "-1"])?.stdout.contains("Online: [ ctl0 ctl1 ]");
        let nodes = active.run(&["perilog", "--json", "nodes"])?;
        Ok(members && nodes.success() && nodes.stdout.matches("\"online\"").count() == NODES)
    })
}

#[test]
fn an_operator_who_follows_the_page_has_two_hosts() -> Result<()> {
    let machines = Machines::boot(NODES)?;
    let bed = machines.bed();
    let stand_in = |name: &str| match name {
        "packages, disk and ssh" => ["ctl0", "ctl1"].into_iter().try_for_each(|host| machines.begin_as_installed(host)),
        "fencing" => machines.fence(),
        "ctl0 has burnt" => {
            nodes_join(bed)?;
            doctor_compares(bed)?;
            type_the_table(bed)?;
            lose_power(&machines)?;
            move_to(bed, "ctl0")?;
            machines.burn("ctl0")?;
            wait_shown(bed, &["ctl0: UNCLEAN (offline)"])
        }
        "ctl1 was off, too" => {
            machines.power_cut("ctl1")?;
            bed.node("ctl1")?.boot()?;
            wait_shown(bed, &["ctl0: UNCLEAN (offline)", "partition WITHOUT quorum"])?;
            bed.node("ctl1")?.sh("! systemctl is-active perilog-controller").map(drop)
        }
        "another ctl0" => {
            bed.wait_until("ctl1 runs the controller alone", SOON, || {
                Ok(bed.node("ctl1")?.run(&["perilog", "status"])?.success())
            })?;
            machines.replace("ctl0")?;
            bed.node("ctl0")?.sh("test ! -e /etc/perilog/tls/key.pem")?;
            machines.begin_as_installed("ctl0")
        }
        other => bail!("no stand-in called {other:?}"),
    };
    let done = Page::open(PAGE)?.run(bed, None, stand_in)?;
    ensure!(done.commands > 25 && done.skipped == 0, "{done:?}");

    // The new host is as good as the first one was.
    for host in ["ctl0", "ctl1"] {
        ends(bed.node(host)?, "perilog doctor controller", 0)?;
    }
    move_to(bed, "ctl0")?;
    let ctl0 = bed.node("ctl0")?;
    ends(ctl0, "perilog run prolog --job j3 --nodes 'n[0-3]'", 0)?;
    contains(&ctl0.sh("perilog ps --held; perilog show j1")?, &["j1", "j2", "j3"])
}

/// Waits until ctl1 has this of the cluster, of which it is the only host.
fn wait_shown(bed: &Bed, words: &[&str]) -> Result<()> {
    bed.wait_until(&format!("ctl1 shows {words:?}"), SOON, || {
        let shown = bed.node("ctl1")?.run(&["crm_mon", "-1"])?.stdout;
        Ok(words.iter().all(|word| shown.contains(word)))
    })
}

/// Nodes join through the address that moves, by the page's line, and run a job.
fn nodes_join(bed: &Bed) -> Result<()> {
    let (first, second) = hosts(bed)?;
    for node in bed.nodes().iter().skip(2) {
        node.sh("mkdir -p /etc/perilog/prolog.d /etc/perilog/epilog.d")?;
    }
    ends(first, &illustrated(PAGE, "perilog --quiet init controller --nodes")?, 0)?;
    contains(&bed.node("n0")?.sh("cat /etc/perilog/agent.d/*")?, &["\"ctl:5115\""])?;
    wait_settled(bed, first)?;
    ends(first, "perilog run prolog --job j1 --nodes 'n[0-3]'", 0)?;

    first.sh("test -n \"$(ls -A /var/lib/perilog-backup)\"")?;
    second.sh("test -z \"$(ls -A /var/lib/perilog-backup)\"")?;
    // The passive host names the other one, and starts no controller without the disk.
    contains(&ends(second, "perilog ps", 7)?, &["[failover]", &format!("perilog -H {}", first.name())])?;
    ends(second, "systemctl start perilog-controller", 1)?;
    let journal = second.sh("journalctl --no-pager -o cat -u perilog-controller")?;
    contains(&journal, &["no file system is mounted on /var/lib/perilog here", "nothing was written"])?;
    second.sh("systemctl stop perilog-controller; test -z \"$(find /var/lib/perilog -type f)\"").map(drop)
}

/// doctor finds what differs, and what both hosts must not do.
fn doctor_compares(bed: &Bed) -> Result<()> {
    let (first, second) = hosts(bed)?;
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
    second.sh(
        "cp -a /etc/perilog/tls/ca.pem /root/ && cat /etc/ssl/certs/ca-certificates.crt >/etc/perilog/tls/ca.pem",
    )?;
    second.sh("usermod -u 64123 perilog")?;
    let reply = ends(second, "perilog doctor controller", 1)?;
    contains(&reply, &["/etc/perilog/tls/ca.pem differs from that of", "the user perilog is 64123:"])?;
    // The command that doctor names makes the ids equal.
    let ids = reply.split_once("groupmod -g").and_then(|(_, rest)| rest.split_once(", on the host without"));
    second.sh(&format!("groupmod -g{}", ids.context("no command for the ids")?.0))?;
    second.sh("cp -a /root/ca.pem /etc/perilog/tls/")?;
    // A change on one host reaches the other by the same command.
    first.sh("echo 'retention = \"2d\"' >/etc/perilog/controller.d/site.toml")?;
    let directory = "/etc/systemd/system/perilog-controller.socket.d";
    first.sh(&format!("mkdir {directory} && printf '[Socket]\\nBacklog=4096\\n' >{directory}/site.conf"))?;
    // The umask of root does not decide who can enter a new directory.
    let again = format!("perilog init controller --failover-of {}", first.name());
    ends(second, &format!("umask 077; {again}"), 0)?;
    ensure!(second.sh(&format!("stat -c %a {directory}"))?.trim() == "755");
    ends(second, "perilog doctor controller", 0)?;
    contains(&ends(second, &again, 0)?, &["nothing to do"])
}

/// Types the page's commands of everyday life.
fn type_the_table(bed: &Bed) -> Result<()> {
    let type_row = |host: &Node, first: &str| -> Result<()> {
        let commands = row(PAGE, first)?;
        ensure!(!commands.is_empty(), "no command in the row {first:?}");
        commands.iter().try_for_each(|command| ends(host, command, 0).map(drop))
    };
    move_to(bed, "ctl0")?;
    let (ctl0, ctl1) = hosts(bed)?;
    type_row(ctl1, "see who runs it")?;
    let [moves, clears] = &row(PAGE, "move it")?[..] else { bail!("not two commands that move it") };
    ends(ctl0, moves, 0)?;
    wait_settled(bed, ctl1)?;
    ends(ctl0, clears, 0)?;
    type_row(ctl1, "restart it where it is")?;
    wait_settled(bed, ctl1)?;
    type_row(ctl0, "stop it")?;
    bed.wait_until("the controller has ended, and its disk is free", SOON, || {
        Ok(ctl1.sh("! systemctl is-active perilog-controller && ! mountpoint -q /var/lib/perilog").is_ok())
    })?;
    type_row(ctl0, "start it again")?;
    bed.wait_until("one host runs it again", SOON, || Ok(hosts(bed)?.0.run(&["perilog", "status"])?.success()))?;
    let (active, passive) = hosts(bed)?;
    wait_settled(bed, active)?;
    // The passive host fails as often as systemd allows: it has no disk.
    ends(passive, "systemctl start perilog-controller", 1)?;
    let failed = || passive.sh("systemctl is-failed perilog-controller").is_ok();
    bed.wait_until("systemd leaves it failed", SOON, || Ok(failed()))?;
    type_row(passive, "use a host again that has failed")?;
    ensure!(!failed(), "still failed");
    wait_settled(bed, active)
}

/// The active host loses its power, jobs go on, and the host comes back as the passive one.
fn lose_power(machines: &Machines) -> Result<()> {
    let bed = machines.bed();
    let ((first, second), fenced) = (hosts(bed)?, machines.fenced().len());
    machines.power_cut(first.name())?;
    wait_settled(bed, second)?;
    ensure!(machines.fenced()[fenced..] == [format!("reboot {}", first.name())], "{:?}", machines.fenced());
    ends(second, "perilog run prolog --job j2 --nodes 'n[0-3]'", 0)?;
    contains(&second.sh("perilog ps --held; perilog show j1")?, &["j1", "j2"])
}

/// Moves the controller to this host, unless it is there.
fn move_to(bed: &Bed, host: &str) -> Result<()> {
    let (active, to) = (hosts(bed)?.0, bed.node(host)?);
    if active.name() != host {
        ends(active, &format!("crm_resource --move --resource perilog --node {host}"), 0)?;
        wait_settled(bed, to)?;
        ends(to, "crm_resource --clear --resource perilog", 0)?;
    }
    wait_settled(bed, to)
}
