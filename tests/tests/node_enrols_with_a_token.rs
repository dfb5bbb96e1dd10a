//! A node boots without key and certificate, but with a one-time token, and enrols. The token is good once, for one
//! node, within a time. The certificate renews itself, and the signing key is not the controller's key.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Node};

const ENOUGH: Duration = Duration::from_secs(90);
const TOKEN: &str = "/etc/perilog/enroll-token";
const CERT: &str = "/run/perilog/tls/cert.pem";
const DIRECTORY: &str = "/var/lib/perilog/enroll";
const AGENT: &str = r#"
[tls]
cert = "/run/perilog/tls/cert.pem"
key = "/run/perilog/tls/key.pem"
[enroll]
controller = ["ctl:5117"]
token = "/etc/perilog/enroll-token"
"#;

/// Boots a cluster of two nodes, of which n1 has neither key nor certificate.
fn bed() -> Result<Cluster> {
    let cluster = Cluster::builder(2)
        .script("prolog", "10-gate", "exit 0")
        .controller("[enroll]\nlisten = \"[::]:5117\"\n")
        .boot()?;
    let n1 = cluster.node(1)?;
    n1.systemctl(&["stop", "perilog-agent"])?;
    n1.sh("rm /etc/perilog/tls/key.pem /etc/perilog/tls/cert.pem")?;
    n1.write_file("/etc/perilog/agent.d/enroll.toml", AGENT)?;
    Ok(cluster)
}

fn token(cluster: &Cluster, node: &str, lasts: &str) -> Result<String> {
    let made = cluster.perilog(&["--quiet", "token", "create", node, "--for", lasts])?.ok()?;
    Ok(made.trim().to_owned())
}

fn bring(node: &Node, token: &str) -> Result<()> {
    node.write_with_mode(TOKEN, token, 0o600)
}

/// Restarts the node's agent without the certificate that the node enrolled for, so that it must enrol again.
fn begin_anew(node: &Node) -> Result<()> {
    node.systemctl(&["stop", "perilog-agent"])?;
    node.sh("rm -rf /run/perilog/tls")?;
    node.systemctl(&["start", "perilog-agent"]).map(drop)
}

#[test]
fn a_node_without_a_key_enrols_once_by_its_token() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n1) = (cluster.controller()?, cluster.node(1)?);
    let first = token(&cluster, "n1", "10m")?;
    bring(n1, &first)?;
    n1.power_fail()?;
    n1.boot()?;
    cluster.wait_online()?;
    cluster.wait_logged(ctl, "perilog-controller", &["enrolled n1", n1.address(), "by a token that uid 0 made"])?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    ensure!(run.code() == Some(0), "{run}");
    cluster.assert_true("j", &["prolog"])?;
    let modes = n1.sh("stat -c '%a %n' /run/perilog/tls /run/perilog/tls/*")?;
    ensure!(modes.contains("700 /run/perilog/tls\n") && modes.contains("600 /run/perilog/tls/key.pem"), "{modes}");
    let listed = cluster.perilog(&["token", "list"])?.ok()?;
    ensure!(listed.contains("n1") && listed.contains("used") && !listed.contains(&first), "{listed}");
    let stored = ctl.sh(&format!("grep -r -e '{first}' {DIRECTORY} /var/lib/perilog && echo found || echo nowhere"))?;
    ensure!(stored.trim() == "nowhere", "the controller keeps the token: {stored}");

    // A used token; another host's token; an expired token; an invented token.
    let refused = |reported: &str, logged: &str| -> Result<()> {
        begin_anew(n1)?;
        cluster.wait_logged(n1, "perilog-agent", &["not enrolled", reported])?;
        cluster.wait_logged(ctl, "perilog-controller", &["refused", n1.address(), "enrolled as n1", logged])?;
        ensure!(!cluster.is_online("n1")?, "n1 is online with: {reported}");
        Ok(())
    };
    refused("the token was used already", "the token was used already").context("the first token again")?;
    bring(n1, &token(&cluster, "n0", "10m")?)?;
    refused("the token is not for n1", "the token is for n0, not for n1").context("a token of n0")?;
    bring(n1, &token(&cluster, "n1", "1ms")?)?;
    refused("the token has expired", "the token has expired").context("a late token")?;
    bring(n1, "abc")?;
    refused("the token is unknown", "the token is unknown").context("no token")?;

    bring(n1, &token(&cluster, "n1", "10m")?)?;
    n1.systemctl(&["restart", "perilog-agent"])?;
    cluster.wait_online().context("with a good token")
}

#[test]
fn a_certificate_renews_in_a_session_until_it_is_revoked() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n1) = (cluster.controller()?, cluster.node(1)?);
    ctl.write_file("/etc/perilog/controller.d/lifetime.toml", "[enroll]\nlifetime = \"20s\"\n")?;
    ctl.systemctl(&["reload", "perilog-controller"])?;
    bring(n1, &token(&cluster, "n1", "10m")?)?;
    n1.systemctl(&["start", "perilog-agent"])?;
    cluster.wait_online()?;
    n1.sh(&format!("rm {TOKEN}"))?;
    let connection = || n1.sh("ss --no-header --tcp --numeric state established dport = :5115 | awk '{print $3}'");
    let (before, first) = (connection()?, n1.sh(&format!("cat {CERT}"))?);
    cluster
        .bed()
        .wait_until("the certificate is another one", ENOUGH, || Ok(n1.sh(&format!("cat {CERT}"))? != first))?;
    cluster.wait_logged(ctl, "perilog-controller", &["enrolled n1", "by its certificate"])?;
    ensure!(!before.is_empty() && connection()? == before, "the session did not stand");
    // The first certificate has expired: the new certificate admits the node.
    n1.write_file("/root/first.pem", &first)?;
    cluster.bed().wait_until("the first one is over", ENOUGH, || {
        Ok(n1.run(&["perilog", "ca", "show", "/root/first.pem"])?.stdout.contains("EXPIRED"))
    })?;
    n1.systemctl(&["restart", "perilog-agent"])?;
    cluster.wait_online().context("with a renewed certificate")?;

    // A changed directory takes effect with a restart. Until then enrolment signs with the authority of the old
    // directory, and the controller accepts the certificates of that authority.
    let other = "/etc/perilog/controller.d/other.toml";
    ctl.write_file(other, "[enroll]\ndirectory = \"/var/lib/perilog/other\"\n")?;
    ctl.systemctl(&["reload", "perilog-controller"])?;
    n1.systemctl(&["restart", "perilog-agent"])?;
    cluster.wait_online().context("after a reload with another directory")?;
    ctl.sh(&format!("rm {other}"))?;
    ctl.systemctl(&["reload", "perilog-controller"])?;

    cluster.perilog(&["--quiet", "ca", "revoke", "--dir", DIRECTORY, "n1"])?.ok()?;
    // The controller does not renew a revoked certificate, even before a reload; the reload ends only that node's
    // session.
    let why = ["refused", n1.address(), "enrolled as n1", "its certificate was revoked; if the host may enrol again"];
    cluster.wait_logged(ctl, "perilog-controller", &why)?;
    ensure!(cluster.is_online("n1")?, "no reload was requested");
    ctl.systemctl(&["reload", "perilog-controller"])?;
    cluster.bed().wait_until("n1 is cut off", ENOUGH, || Ok(!cluster.is_online("n1")?))?;
    ensure!(!cluster.is_online("n1")? && cluster.is_online("n0")?, "{:?}", cluster.node_views()?);
    Ok(())
}

/// Regression test: a host that enrolled in another spelling of its name, such as `N1`, got a certificate that a
/// revocation of the host did not cover.
#[test]
fn a_revocation_covers_other_spellings_of_the_name() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n1) = (cluster.controller()?, cluster.node(1)?);
    for host in ["N1", "n1.", "n1"] {
        n1.write_file("/etc/perilog/agent.d/host.toml", format!("host = \"{host}\"\n"))?;
        bring(n1, &token(&cluster, host, "10m")?)?;
        begin_anew(n1)?;
        cluster.wait_logged(n1, "perilog-agent", &[&format!("enrolled as {host} with its token")])?;
        let shown = n1.sh(&format!("perilog ca show --json {CERT}"))?;
        ensure!(shown.contains(r#""names":["n1"]"#), "{host}: {shown}");
    }
    cluster.wait_online()?;
    let revoked = cluster.perilog(&["--quiet", "ca", "revoke", "--dir", DIRECTORY, "N1"])?.ok()?;
    ensure!(revoked.lines().count() == 3, "{revoked}");
    ctl.systemctl(&["reload", "perilog-controller"])?;
    cluster.wait_logged(ctl, "perilog-controller", &["refused", n1.address(), "its certificate was revoked"])
}

#[test]
fn the_key_that_enrols_is_no_controllers() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n0) = (cluster.controller()?, cluster.node(0)?);
    // A thief signs a controller's certificate with the signing key, and listens where agents dial.
    cluster
        .perilog(&[
            "--quiet",
            "ca",
            "issue",
            "--dir",
            DIRECTORY,
            "--role",
            "controller",
            "ctl",
            "--out",
            "/root/forged",
        ])?
        .ok()?;
    ctl.sh("cat /root/forged/ctl/cert.pem > /etc/perilog/tls/cert.pem && \
         cat /root/forged/ctl/key.pem > /etc/perilog/tls/key.pem")?;
    ctl.systemctl(&["restart", "perilog-controller"])?;
    cluster.wait_logged(
        n0,
        "perilog-agent",
        &[
            "no session",
            "no authority of this host has signed the peer's \
                                                              certificate",
        ],
    )?;
    ensure!(!cluster.is_online("n0")?, "n0 accepts a controller that enrolment signed");
    Ok(())
}
