//! A node boots with neither key nor token, and enrols with a credential of the real munge. The controller accepts a
//! credential of root that comes from the address of the host's name. It refuses a user who is not root, a request for
//! another host, and a credential that was used before. A revoked host enrols again only with a token.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;

const ENOUGH: Duration = Duration::from_secs(90);
const DROP_IN: &str = "/etc/perilog/agent.d/enroll.toml";
const DIRECTORY: &str = "/var/lib/perilog/enroll";

/// Returns the text of a node's configuration. `more` is further lines of `[enroll]`; `host` is the name that the node
/// enrols under.
fn agent(host: &str, more: &str) -> String {
    format!(
        r#"
host = "{host}"
[tls]
cert = "/run/perilog/tls/cert.pem"
key = "/run/perilog/tls/key.pem"
server-name = "ctl"
[enroll]
controller = ["ctl:5117"]
munge = true
{more}
"#
    )
}

/// Boots a cluster of two nodes, of which n1 has neither key nor certificate. The munged of all hosts have the same
/// key.
fn bed() -> Result<Cluster> {
    let cluster = Cluster::builder(2)
        .script("prolog", "10-gate", "exit 0")
        .controller("[enroll]\nlisten = \"[::]:5117\"\nmunge = true\nmunge-hosts = \"n[0-1]\"\n")
        .boot()?;
    let n1 = cluster.node(1)?;
    n1.systemctl(&["stop", "perilog-agent"])?;
    n1.sh("rm /etc/perilog/tls/key.pem /etc/perilog/tls/cert.pem")?;
    n1.write_file(DROP_IN, agent("n1", ""))?;
    cluster.controller()?.systemctl(&["start", "munge"])?;
    Ok(cluster)
}

/// Restarts the agent of n1 without its certificate, so that it must enrol again.
fn begin_anew(cluster: &Cluster) -> Result<()> {
    let n1 = cluster.node(1)?;
    n1.systemctl(&["stop", "perilog-agent"])?;
    cluster.bed().wait_until("n1 is away", ENOUGH, || Ok(!cluster.is_online("n1")?))?;
    n1.sh("rm -rf /run/perilog/tls")?;
    n1.systemctl(&["start", "perilog-agent"]).map(drop)
}

/// Makes n1 enrol again, and asserts that the controller refuses. The controller's journal must name `by` (the sender's
/// address), `asks_for` (the host to enrol) and the reason `why`. The node gets no details.
fn is_refused(cluster: &Cluster, by: &str, asks_for: &str, why: &str) -> Result<()> {
    let (ctl, n1) = (cluster.controller()?, cluster.node(1)?);
    begin_anew(cluster)?;
    cluster.wait_logged(ctl, "perilog-controller", &["refused", by, &format!("enrolled as {asks_for}: "), why])?;
    cluster.wait_logged(n1, "perilog-agent", &["not enrolled", "munge credential rejected"])?;
    ensure!(n1.sh("ls /run/perilog/tls")? == "key.pem", "it was given a certificate");
    ensure!(!cluster.is_online("n1")?, "n1 is online: {why}");
    Ok(())
}

#[test]
fn a_node_with_neither_key_nor_token_enrols_by_munge() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n1) = (cluster.controller()?, cluster.node(1)?);
    n1.sh("ln -s /lib/systemd/system/munge.service /etc/systemd/system/multi-user.target.wants/")?;
    n1.power_fail()?;
    n1.boot()?;
    cluster.wait_online()?;
    cluster.wait_logged(ctl, "perilog-controller", &["enrolled n1", n1.address(), "by munge, serial number"])?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    ensure!(run.code() == Some(0), "{run}");
    cluster.assert_true("j", &["prolog"])?;

    // Revoked: root of n1 still has munge's key and the address. An operator must re-enrol the host.
    cluster.perilog(&["--quiet", "ca", "revoke", "--dir", DIRECTORY, "n1"])?.ok()?;
    ctl.systemctl(&["reload", "perilog-controller"])?;
    is_refused(&cluster, n1.address(), "n1", "the newest certificate of n1 was revoked").context("once revoked")?;
    let token = cluster.perilog(&["--quiet", "token", "create", "n1", "--for", "10m"])?.ok()?;
    n1.write_with_mode("/etc/perilog/enroll-token", token.trim(), 0o600)?;
    n1.write_file(DROP_IN, agent("n1", "token = \"/etc/perilog/enroll-token\""))?;
    begin_anew(&cluster)?;
    cluster.wait_online().context("with a token")?;
    // The next boot: the token is used up, and munge takes the token's place.
    begin_anew(&cluster)?;
    cluster.wait_logged(n1, "perilog-agent", &["enrolled as n1 by munge"])?;
    cluster.wait_online().context("by munge again")
}

#[test]
fn munge_enrols_only_root_of_the_named_host() -> Result<()> {
    let cluster = bed()?;
    let (ctl, n0, n1) = (cluster.controller()?, cluster.node(0)?, cluster.node(1)?);

    // munged is down on n1.
    n1.systemctl(&["start", "perilog-agent"])?;
    cluster.wait_logged(n1, "perilog-agent", &["not enrolled", "is munged up"])?;
    n1.systemctl(&["start", "munge"])?;

    // A credential of a user.
    let as_alice = "#!/bin/sh\nexec /usr/bin/systemd-run --quiet --pipe --wait --uid=alice /usr/bin/munge\n";
    n1.write_script("/opt/site/munge", as_alice)?;
    n1.write_file(DROP_IN, agent("n1", "munge-program = \"/opt/site/munge\""))?;
    is_refused(&cluster, n1.address(), "n1", "is of uid 64001, not of root").context("a user's credential")?;

    // Root of n1 asks for n0.
    n1.write_file(DROP_IN, agent("n0", ""))?;
    let why = format!("n0 has the address {} here, not {}", n0.address(), n1.address());
    is_refused(&cluster, n1.address(), "n0", &why).context("another host's name")?;

    // n1 asks under an unlisted name.
    ctl.sh(&format!("echo '{} licence' >>/etc/hosts", n1.address()))?;
    n1.write_file(DROP_IN, agent("licence", ""))?;
    is_refused(&cluster, n1.address(), "licence", "licence is not in [enroll] munge-hosts").context("an alias")?;

    // A user of n0 relays the request: then the address is n0's, and the source port is no port of root.
    let mut relay = n0.spawn(&["setpriv", "--reuid", "alice", "--clear-groups", "python3", "-u", "-c", RELAY])?;
    cluster.bed().wait_until("the relay listens", ENOUGH, || Ok(relay.output()?.stdout.contains("listens")))?;
    n1.write_file(DROP_IN, agent("n0", "").replace("ctl:5117", "n0:5117"))?;
    is_refused(&cluster, n0.address(), "n0", "but an agent uses one of 600 to 1023")
        .context("by way of a user of n0")?;

    // A used credential, which is good the first time.
    let again = "#!/bin/sh\n[ -e /run/kept ] || /usr/bin/munge >/run/kept\nexec /bin/cat /run/kept\n";
    n1.write_script("/opt/site/munge", again)?;
    n1.write_file(DROP_IN, agent("n1", "munge-program = \"/opt/site/munge\""))?;
    begin_anew(&cluster)?;
    cluster.wait_online().context("a new credential")?;
    is_refused(&cluster, n1.address(), "n1", "Replayed credential").context("a used credential")?;

    // munge gets another key.
    n1.sh("head -c 64 /dev/urandom >/etc/munge/munge.key")?;
    n1.systemctl(&["restart", "munge"])?;
    n1.write_file(DROP_IN, agent("n1", ""))?;
    is_refused(&cluster, n1.address(), "n1", "do both hosts have the same munge key").context("another key")?;

    // A reload switches munge off.
    ctl.write_file("/etc/perilog/controller.d/zz-munge.toml", "[enroll]\nmunge = false\n")?;
    ctl.systemctl(&["reload", "perilog-controller"])?;
    is_refused(&cluster, n1.address(), "n1", "[enroll] munge is not set on this controller").context("switched off")
}

/// Python program: relays each connection to port 5117 of n0 to port 5117 of the controller's host. The controller then
/// sees n0's address, whichever host makes the request.
const RELAY: &str = r#"
import socket, threading
def pour(source, sink):
    while True:
        data = source.recv(65536)
        if not data:
            break
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
listener = socket.create_server(("", 5117))
print("listens")
while True:
    client, _ = listener.accept()
    controller = socket.create_connection(("ctl", 5117))
    threading.Thread(target=pour, args=(client, controller), daemon=True).start()
    threading.Thread(target=pour, args=(controller, client), daemon=True).start()
"#;
