//! The controller's name leads a node to the passive host, or to a host that is no controller: the agent and doctor
//! name the address, and nothing else happens. With the right address, the node is back.

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{Cluster, Node};

/// Address of `ctl` that moves with the controller.
const RIGHT: &str = "10.77.0.200";

/// Makes `ctl` this address on the node, and restarts the agent.
fn resolve(node: &Node, address: &str) -> Result<()> {
    node.sh(&format!("sed 's/^[^ \\t]*\\([ \\t]ctl\\)$/{address}\\1/' /etc/hosts >/root/hosts"))?;
    node.sh("cat /root/hosts >/etc/hosts && systemctl restart perilog-agent").map(drop)
}

#[test]
fn the_address_behind_the_controllers_name_is_shown() -> Result<()> {
    let failover = Failover::boot(Cluster::builder(2))?;
    let cluster = failover.cluster();
    let passive = failover.other(failover.active()?)?;
    let node = cluster.node(0)?;
    for wrong in [passive, cluster.node(1)?] {
        resolve(node, wrong.address())?;
        let text = format!("cannot connect to ctl:5115 ({}): Connection refused", wrong.address());
        cluster.wait_logged(node, "perilog-agent", &["no session with the controller", &text])?;
        let doctor = node.run(&["perilog", "doctor", "node"])?;
        ensure!(doctor.code() == Some(1) && doctor.stdout.contains(&text), "{doctor}");
        ensure!(doctor.stdout.contains("is the address of the controller and answers ping"), "{doctor}");
    }
    resolve(node, RIGHT)?;
    failover.wait_settled()
}
