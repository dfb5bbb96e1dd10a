//! `perilog doctor` on a node and on the controller: on a working cluster it finds no fault. Otherwise it names each
//! fault with the remedy, also where the daemon is down.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Node};
use serde_json::Value;

/// Returns the subject and the text of each finding that `perilog doctor ROLE` on this node calls wrong.
fn wrong(node: &Node, role: &str) -> Result<Vec<(String, String)>> {
    let output = node.run(&["perilog", "--json", "doctor", role])?;
    let reported: Value = serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    let findings = reported["findings"].as_array().context("no findings")?;
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let found: Vec<(String, String)> = findings
        .iter()
        .filter(|finding| finding["level"] == "wrong")
        .map(|finding| (text(finding, "about"), text(finding, "what")))
        .collect();
    let unreported = findings.iter().find(|finding| finding["level"] == "wrong" && finding["todo"] == "");
    ensure!(unreported.is_none(), "nothing to do about {unreported:?}");
    ensure!(output.code() == Some(i32::from(!found.is_empty())), "{found:?}: {output:?}");
    Ok(found)
}

fn names(found: &[(String, String)], about: &str, part: &str) -> Result<()> {
    ensure!(found.iter().any(|(of, what)| of == about && what.contains(part)), "no {about} with {part:?} in {found:?}");
    Ok(())
}

#[test]
fn what_is_broken_is_named_and_nothing_else() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-quick", "exit 0").build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let (node, controller) = (cluster.node(0)?, cluster.controller()?);
    for (node, role) in [(node, "node"), (controller, "controller")] {
        let found = wrong(node, role)?;
        ensure!(found.is_empty(), "{role}: {found:?}");
        // doctor inspects every part, and skips no part for want of an answer.
        let reported: Value = serde_json::from_str(&node.run(&["perilog", "--json", "doctor", role])?.stdout)?;
        for (about, part) in [
            ("version", "systemd is "),
            (
                "version",
                if role == "node" {
                    "ctl:5115 and the agent have version 0."
                } else {
                    "controller and this perilog are"
                },
            ),
            ("limits", "are high enough"),
        ] {
            let fits = |finding: &Value| {
                let contains = |key: &str, part: &str| finding[key].as_str().is_some_and(|text| text.contains(part));
                contains("about", about) && contains("what", part) && finding["level"] == "ok"
            };
            ensure!(
                reported["findings"].as_array().is_some_and(|all| all.iter().any(fits)),
                "no {about} {part:?}: {reported}"
            );
        }
    }
    // A script that every user can write, and a key that every user can read.
    node.sh("chmod 0777 /etc/perilog/prolog.d/10-quick; chmod 0644 /etc/perilog/tls/key.pem")?;
    let found = wrong(node, "node")?;
    names(&found, "scripts", "/etc/perilog/prolog.d/10-quick: everyone can write it")?;
    names(&found, "certificate", "key.pem")?;
    ensure!(found.len() == 2, "{found:?}");
    node.sh("chmod 0755 /etc/perilog/prolog.d/10-quick; chmod 0600 /etc/perilog/tls/key.pem")?;

    // A file system where nothing can be executed, and a node without the program of its tasks.
    node.sh(
        "mount -t tmpfs -o noexec,mode=0755 tmpfs /etc/perilog/prolog.d; echo '#!/bin/sh' > /etc/perilog/prolog.d/10-x",
    )?;
    node.sh("chmod 0755 /etc/perilog/prolog.d/10-x; mv /usr/libexec/perilog/perilog-runner /root/")?;
    let found = wrong(node, "node")?;
    names(&found, "scripts", "/etc/perilog/prolog.d/10-x: its file system is mounted noexec")?;
    names(&found, "runner", "/usr/libexec/perilog/perilog-runner: No such file")?;
    ensure!(found.len() == 2, "{found:?}");
    let checked = node.sh("/usr/sbin/perilog-agent --check-config 2>&1")?;
    ensure!(checked.contains("mounted noexec"), "{checked}");
    ensure!(node.run(&["perilog", "lint", "/etc/perilog/prolog.d"])?.stdout.contains("mounted noexec"));
    node.sh("umount /etc/perilog/prolog.d")?;
    cluster.perilog(&["run", "prolog", "--job", "r", "--nodes", "n0"])?;
    let (_, outcome) = cluster.outcome("r", "prolog", 0)?;
    ensure!(outcome.contains("cannot execute /usr/libexec/perilog/perilog-runner"), "{outcome}");
    node.sh("mv /root/perilog-runner /usr/libexec/perilog/")?;

    // Another node's certificate.
    let other = cluster.node(1)?;
    let (cert, key) = (other.read_file("/etc/perilog/tls/cert.pem")?, other.read_file("/etc/perilog/tls/key.pem")?);
    node.sh("cp -a /etc/perilog/tls /root/tls")?;
    node.write_with_mode("/etc/perilog/tls/cert.pem", cert, 0o644)?;
    node.write_with_mode("/etc/perilog/tls/key.pem", key, 0o600)?;
    names(&wrong(node, "node")?, "certificate", "this host is n0")?;
    node.sh("cp -a /root/tls/. /etc/perilog/tls/")?;

    // The controller and the controller's socket are down. A node reports that the controller is unreachable; the
    // controller's own host reports the reason.
    cluster.kill_controller()?;
    names(&wrong(node, "node")?, "controller", "ctl:5115")?;
    let found = wrong(controller, "controller")?;
    names(&found, "service", "perilog-controller does not run")?;
    names(&found, "port", "no agent can connect")?;
    controller.write_file("/etc/perilog/controller.d/typo.toml", "start_grace = \"5s\"\n")?;
    names(&wrong(controller, "controller")?, "configuration", "did you mean `start-grace`?")?;
    controller.sh("rm /etc/perilog/controller.d/typo.toml")?;

    // The agent is down, and the agent's bus is gone.
    cluster.kill_agent(0)?;
    names(&wrong(node, "node")?, "service", "perilog-agent does not run")?;
    node.systemctl(&["stop", "dbus.socket", "dbus.service"])?;
    names(&wrong(node, "node")?, "bus", "no task can be started")
}

/// doctor inspects a node that enrols by itself, and the controller that allows the enrolment. At first it finds no
/// fault; then it names each part of the enrolment that the test has broken.
#[test]
fn what_is_broken_of_enrolment_is_named() -> Result<()> {
    let enroll = "[enroll]\nlisten = \"[::]:5117\"\nmunge = true\nmunge-hosts = \"n0\"\n";
    let cluster = Cluster::builder(1).script("prolog", "10-quick", "exit 0").controller(enroll).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let (node, controller) = (cluster.node(0)?, cluster.controller()?);
    controller.systemctl(&["start", "munge"])?;
    node.systemctl(&["start", "munge"])?;
    let text = "[tls]\ncert = \"/run/perilog/tls/cert.pem\"\nkey = \"/run/perilog/tls/key.pem\"\n\
        [enroll]\ncontroller = [\"ctl:5117\"]\nmunge = true\ntoken = \"/etc/perilog/enroll-token\"\n";
    node.write_file("/etc/perilog/agent.d/enroll.toml", text)?;
    node.systemctl(&["stop", "perilog-agent"])?;
    let is_away = || Ok(cluster.node_views()?.iter().all(|view| view.state != "online"));
    cluster.bed().wait_until("the node is away", Duration::from_secs(60), is_away)?;
    node.systemctl(&["start", "perilog-agent"])?;
    cluster.wait_online()?;
    for (node, role) in [(node, "node"), (controller, "controller")] {
        let found = wrong(node, role)?;
        ensure!(found.is_empty(), "{role}: {found:?}");
        let shown = node.run(&["perilog", "doctor", role])?.stdout;
        println!("{shown}");
        ensure!(shown.contains("munged answers at /run/munge/munge.socket.2"), "{shown}");
    }
    let shown = node.run(&["perilog", "doctor", "node"])?.stdout;
    for part in [
        "ports below 1024 are root's",
        "and the agent renews it before",
        "no token, and none is needed now",
        "ctl:5117 (",
    ] {
        ensure!(shown.contains(part), "no {part:?} in {shown}");
    }

    node.write_with_mode("/etc/perilog/enroll-token", "abc", 0o644)?;
    node.systemctl(&["stop", "munge"])?;
    controller
        .write_file("/etc/perilog/controller.d/zz.toml", "[enroll]\nunmunge-program = \"/opt/munge/bin/unmunge\"\n")?;
    controller.run(&["rm", "/var/lib/perilog/enroll/crl.pem"])?;
    cluster.kill_controller()?;
    let found = wrong(node, "node")?;
    names(&found, "enrolment", "other users can read the token (mode 0644)")?;
    names(&found, "enrolment", "munged does not answer")?;
    names(&found, "enrolment", "ctl:5117")?;
    let found = wrong(controller, "controller")?;
    names(&found, "enrolment", "it is not known which certificates are revoked")?;
    names(&found, "enrolment", "no node can enrol or renew its certificate")?;
    names(&found, "enrolment", "there is no program /opt/munge/bin/unmunge")
}

/// doctor inspects a node set up as in the guide for Slurm: the agent runs the node's own tasks and dials no
/// controller.
#[test]
fn nothing_is_wrong_on_a_node_that_needs_no_controller() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-quick", "exit 0").boot()?;
    let node = cluster.node(0)?;
    node.write_file("/etc/perilog/agent.toml", "")?;
    node.sh("rm -r /etc/perilog/tls")?;
    node.systemctl(&["restart", "perilog-agent"])?;
    let found = wrong(node, "node")?;
    ensure!(found.is_empty(), "{found:?}");
    let shown = node.run(&["perilog", "doctor", "node"])?.stdout;
    for part in ["needs no controller", "inotify instance"] {
        ensure!(shown.contains(part), "no {part:?} in {shown}");
    }
    Ok(())
}
