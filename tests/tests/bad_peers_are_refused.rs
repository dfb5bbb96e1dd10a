//! The controller refuses and logs a peer that is no agent or not the expected agent, and continues.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::Cluster;

/// Waits until the controller's journal has a line with all of these words.
fn wait_logged(cluster: &Cluster, words: &[&str]) -> Result<()> {
    cluster.wait_logged(cluster.controller()?, "perilog-controller", words)
}

#[test]
fn garbage_and_half_a_handshake_do_not_stop_the_controller() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", "exit 0").boot()?;
    let node = cluster.node(0)?;
    let pid = || cluster.controller()?.systemctl(&["show", "--property=MainPID", "--value", "perilog-controller"]);
    let before = pid()?;
    node.sh("head -c 100000 /dev/urandom > /dev/tcp/ctl/5115 || true")?;
    node.sh("printf 'GET / HTTP/1.1\\r\\n\\r\\n' > /dev/tcp/ctl/5115 || true")?;
    wait_logged(&cluster, &["refused", node.address()])?;
    // A hundred silent connections keep no agent out.
    let mut silent = node.spawn(&[
        "bash",
        "-c",
        "for i in $(seq 100); do exec {fd}<>/dev/tcp/ctl/5115; done; echo held; sleep 1000",
    ])?;
    cluster.bed().wait_until("all of them are connected", Duration::from_secs(60), || {
        Ok(silent.output()?.stdout.contains("held"))
    })?;
    // An existing session would stay anyway; the restarted agent has to connect beside the silent connections.
    node.systemctl(&["restart", "perilog-agent"])?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    assert_eq!(run.code(), Some(0), "{run}");
    assert!(!silent.has_ended()?);
    assert_eq!(pid()?, before, "another controller");
    cluster.assert_true("j", &["prolog"])
}

#[test]
fn a_certificate_for_another_host_speaks_for_nobody() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", "exit 0").boot()?;
    // n1 claims to be n0, with the certificate of n1.
    let attacker = cluster.node(1)?;
    attacker.write_file("/etc/perilog/agent.d/attacker.toml", "host = \"n0\"\n")?;
    attacker.systemctl(&["restart", "perilog-agent"])?;
    wait_logged(&cluster, &["the certificate is for n1, not for n0", attacker.address()])?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    assert_eq!(run.code(), Some(0), "{run}");
    let runs = cluster.runs("j")?;
    assert_eq!(runs.iter().map(|(_, run)| run.node.as_str()).collect::<Vec<_>>(), ["n0"]);
    Ok(())
}

#[test]
fn an_agent_of_another_authority_is_refused_with_its_address() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", "exit 0").boot()?;
    let stranger = cluster.node(1)?;
    stranger
        .sh("perilog -q ca init --dir /root/ca && perilog -q ca issue --dir /root/ca --role node n1 --out /root/out")?;
    stranger.sh("cp /root/out/n1/cert.pem /root/out/n1/key.pem /etc/perilog/tls/")?;
    stranger.systemctl(&["restart", "perilog-agent"])?;
    wait_logged(&cluster, &["refused", stranger.address()])?;
    let views = cluster.node_views()?;
    assert!(views.iter().all(|view| view.host != *"n1" || view.state != "online"), "it was let in: {views:?}");
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    assert_eq!(run.code(), Some(0), "{run}");
    Ok(())
}
