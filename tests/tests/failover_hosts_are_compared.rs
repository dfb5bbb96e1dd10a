//! Two hosts of a controller, with ssh between them and no cluster manager: `init --failover-of` and doctor find what
//! differs, and what neither host may do, and the commands that they print mend it.
//!
//! | | what is wrong |
//! |---|---|
//! | user | the second host has given the controller's ids to others |
//! | revocation list | revoked on one host alone |
//! | release | the other host has an older perilog: a stand-in changes its answer |
//! | socket | active, as after `systemctl start perilog-controller.socket` |
//! | both | each runs the controller, on a disk of its own |

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::Node;
use perilog_tests::failover::Machines;

const SOON: Duration = Duration::from_secs(90);
const SECOND: &str = "perilog init controller --failover-of ctl0";
const DOCTOR: &str = "perilog doctor controller";
const CRL: &str = "/etc/perilog/tls/crl.pem";
/// Stands in for an older perilog on a host, which ssh then finds first.
const OLDER: &str = "#!/bin/sh
/usr/bin/perilog \"$@\" | sed 's/\"version\": *\"[^\"]*\"/\"version\":\"0.0.9\"/'
";
/// Gives a host a disk of its own with an empty store, and starts the controller there.
const ALONE: &str = "mkdir -p /var/lib/perilog
mount -t tmpfs disk /var/lib/perilog
install -o perilog -g perilog -m 0600 /dev/null /var/lib/perilog/controller.db
systemctl start perilog-controller.service";

/// Returns what a command prints, on both streams.
fn prints(node: &Node, command: &str) -> Result<String> {
    Ok(node.run_within(SOON, &["bash", "-c", &format!("exec 2>&1\n{command}")])?.stdout)
}

/// Asserts that what the command prints has all of these words; returns it.
fn says(node: &Node, command: &str, words: &[&str]) -> Result<String> {
    let printed = prints(node, command)?;
    for word in words {
        ensure!(printed.contains(word), "no {word:?} from {command} on {}:\n{printed}", node.name());
    }
    Ok(printed)
}

/// Returns what doctor finds about the two hosts, one line for each finding.
fn doctor(node: &Node) -> Result<String> {
    let printed = prints(node, DOCTOR)?;
    Ok(printed.lines().filter(|line| line.contains("failover")).map(|line| format!("{line}\n")).collect())
}

fn wait_ready(machines: &Machines, node: &Node) -> Result<()> {
    let what = format!("the controller answers on {}", node.name());
    machines.bed().wait_until(&what, SOON, || Ok(node.run(&["perilog", "status"])?.success()))
}

#[test]
fn and_what_differs_is_named_with_its_remedy() -> Result<()> {
    let machines = Machines::boot(0)?;
    let (ctl0, ctl1) = (machines.bed().node("ctl0")?, machines.bed().node("ctl1")?);
    ctl0.sh("perilog init controller --cluster hpc --name ctl --name ctl0 --name ctl1 --quiet
        systemctl disable --now perilog-controller.socket perilog-controller.service 2>/dev/null
        perilog ca issue --dir /root/perilog-ca --role node n8 --out /root/keys >/dev/null")?;
    ctl0.write_file("/etc/perilog/controller.d/failover.toml", "[failover]\nhosts = \"ctl[0-1]\"\n")?;
    ctl0.write_file("/etc/perilog/controller.d/crl.toml", format!("[tls]\ncrl = \"{CRL}\"\n"))?;
    let revoke = |host: &str| {
        ctl0.sh(&format!(
            "perilog ca revoke --dir /root/perilog-ca {host} >/dev/null && cp /root/perilog-ca/crl.pem {CRL}"
        ))
    };
    revoke("")?;

    the_ids_are_taken(ctl0, ctl1)?;
    says(ctl1, SECOND, &["write /etc/perilog/tls/crl.pem, as on ctl0"])?;
    for host in [ctl0, ctl1] {
        let found = doctor(host)?;
        ensure!(found.contains("has the same configuration, authority, hooks, user and version"), "{found}");
    }

    revoke("n8")?;
    let found = doctor(ctl1)?;
    ensure!(found.contains("wrong") && found.contains("/etc/perilog/tls/crl.pem differs from that of ctl0"), "{found}");
    says(ctl1, SECOND, &["write /etc/perilog/tls/crl.pem anew, as on ctl0"])?;
    ensure!(doctor(ctl1)?.contains("has the same configuration"), "{}", doctor(ctl1)?);

    ctl0.write_script("/usr/local/bin/perilog", OLDER)?;
    let found = doctor(ctl1)?;
    ensure!(found.contains("wrong") && found.contains("here and 0.0.9 on ctl0"), "{found}");
    says(ctl1, SECOND, &["here and 0.0.9 on ctl0: install the same"])?;
    ctl0.sh("rm /usr/local/bin/perilog")?;

    ctl1.systemctl(&["start", "perilog-controller.socket"])?;
    let found = doctor(ctl1)?;
    ensure!(found.contains("wrong") && found.contains("perilog-controller.socket is active"), "{found}");
    says(ctl1, DOCTOR, &["systemctl stop perilog-controller.socket"])?;
    ctl1.systemctl(&["stop", "perilog-controller.socket"])?;
    ensure!(!doctor(ctl1)?.contains("perilog-controller.socket"), "{}", doctor(ctl1)?);

    for host in [ctl0, ctl1] {
        host.sh(ALONE)?;
        wait_ready(&machines, host)?;
    }
    for (host, other) in [(ctl0, "ctl1"), (ctl1, "ctl0")] {
        let found = doctor(host)?;
        let both = format!("the controller runs here and on {other}: each node accepts one of them");
        ensure!(found.contains("wrong") && found.contains(&both), "{found}");
    }
    Ok(())
}

/// The controller's user has other ids on the second host, where others have its ids: the command that `init` prints
/// makes them equal, once those others have new ones.
fn the_ids_are_taken(ctl0: &Node, ctl1: &Node) -> Result<()> {
    ctl0.sh("groupmod -g 64010 perilog && usermod -u 64010 -g 64010 perilog")?;
    ctl0.sh("chown root:perilog /etc/perilog/tls/key.pem")?;
    ctl1.sh("groupadd -g 64010 taker && useradd -M -u 64010 -g 64010 taker")?;
    let printed = says(ctl1, SECOND, &["and 64010:64010 on ctl0", "getent passwd 64010; getent group 64010"])?;
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = printed.find("groupmod").context("the command")?;
    let command = printed[from..].split(',').next().context("the command")?;
    ensure!(!ctl1.run(&["sh", "-c", command])?.success(), "{command} with ids that are taken");
    ctl1.sh("groupmod -g 64011 taker && usermod -u 64011 -g 64011 taker")?;
    ctl1.sh(command)?;
    ensure!(ctl1.sh("id -u perilog; id -g perilog")? == "64010\n64010", "{command}");
    Ok(())
}
