//! A thief has a node's key. An operator revokes the node's certificate and installs the revocation list on the
//! controller; a reload ends the node's session. The script on the node goes on, and other nodes are unaffected. With a
//! new certificate the node is back, and reports the script's end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;

const ENOUGH: Duration = Duration::from_secs(60);
const CRL: &str = "/etc/perilog/tls/crl.pem";

fn wait_state(cluster: &Cluster, host: &str, state: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("{host} is {state}"), ENOUGH, || {
        Ok(cluster.node_views()?.iter().any(|view| view.host == *host && view.state == state))
    })
}

fn logged(cluster: &Cluster, words: &[&str]) -> Result<usize> {
    let journal = cluster.controller()?.sh("journalctl --no-pager -o cat -u perilog-controller")?;
    Ok(journal.lines().filter(|line| words.iter().all(|word| line.contains(word))).count())
}

/// Returns the local address and port of a node's connection to the controller; a new connection would have another
/// port.
fn connection(cluster: &Cluster, node: usize) -> Result<String> {
    let shown =
        cluster.node(node)?.sh("ss --no-header --tcp --numeric state established dport = :5115 | awk '{print $3}'")?;
    ensure!(!shown.trim().is_empty(), "n{node} has no connection");
    Ok(shown)
}

#[test]
fn a_reload_ends_only_the_revoked_session() -> Result<()> {
    let cluster =
        Cluster::builder(2).script("prolog", "10-gate", "while [ ! -e /run/gate ]; do sleep 0.02; done").boot()?;
    let ctl = cluster.controller()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let before = connection(&cluster, 0)?;

    // An empty list revokes no certificate.
    let bring = |list: &str| -> Result<()> {
        ctl.write_file(CRL, list)?;
        ctl.systemctl(&["reload", "perilog-controller"]).map(drop)
    };
    ctl.write_file("/etc/perilog/controller.d/crl.toml", format!("[tls]\ncrl = \"{CRL}\"\n"))?;
    bring(&cluster.revoke(&[])?)?;
    let views = cluster.node_views()?;
    ensure!(views.iter().all(|view| view.state == "online"), "an empty list ended a session: {views:?}");

    bring(&cluster.revoke(&["n1"])?)?;
    cluster.wait_logged(ctl, "perilog-controller", &["reloaded: new revocation lists in force"])?;
    let n1 = cluster.node(1)?.address().to_owned();
    cluster.bed().wait_until("the session of n1 is ended, with the reason", ENOUGH, || {
        Ok(logged(&cluster, &["refused", &n1, "its certificate was revoked"])? == 1)
    })?;
    // The node dials again by itself, and the list refuses the node.
    cluster.bed().wait_until("n1 is refused", ENOUGH, || {
        Ok(logged(&cluster, &["refused", &n1, "the peer's certificate was revoked"])? > 0)
    })?;
    let views = cluster.node_views()?;
    let state = |host: &str| views.iter().find(|view| view.host == *host).map(|view| view.state.clone());
    ensure!(state("n0").as_deref() == Some("online"), "n0: {views:?}");
    ensure!(state("n1").as_deref() != Some("online"), "n1: {views:?}");
    ensure!(connection(&cluster, 0)? == before, "n0 had to dial again");
    ensure!(!run.has_ended()?, "the prolog ended: {}", run.output()?);

    // The script ends while the node is excluded; with a new certificate, the node reports the end.
    cluster.open_gates()?;
    cluster.reissue(1)?;
    wait_state(&cluster, "n1", "online").context("with its new certificate")?;
    ensure!(cluster.wait_end(&mut run)? == 0, "{}", run.output()?);
    ensure!(connection(&cluster, 0)? == before, "n0 had to dial again");
    cluster.assert_true("j", &["prolog"])
}
