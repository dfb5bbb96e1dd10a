//! Two hosts are active at once, because fencing is off and their link is gone: each has a copy of the store, as of a
//! mirror that is split. Nodes accept the newer epoch and refuse the other host, both hosts say so, and no script runs
//! twice.
//!
//! | job | requested on the first host | on the second host |
//! |-----|-----------------------------|--------------------|
//! | `j` | before the copy             | again, once it is active |
//! | `i` | between copy and split      | again, once it is active |
//! | `k` | once both are active        | once both are active |

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster, Node};

fn prolog(job: &str) -> [&str; 7] {
    ["perilog", "run", "prolog", "--job", job, "--nodes", "n[0-1]"]
}

fn has_nodes(host: &Node) -> Result<bool> {
    let nodes = host.run(&["perilog", "nodes"])?;
    Ok(nodes.success() && nodes.stdout.lines().any(|line| line.contains("online") && line.contains("n[0-1]")))
}

#[test]
fn nodes_accept_one_of_two_active_hosts_and_both_say_so() -> Result<()> {
    let failover = Failover::boot(Cluster::builder(2).script("prolog", "10-gate", AT_GATE))?;
    let cluster = failover.cluster();
    let (first, second) = (failover.active()?, failover.other(failover.active()?)?);
    let mut runs = vec![first.spawn(&prolog("j"))?];
    cluster.wait_begun("j", &[0, 1])?;
    failover.split_disk()?;
    runs.push(first.spawn(&prolog("i"))?);
    cluster.wait_begun("i", &[0, 1])?;

    // The second host announces the address as its own, and the nodes dial it there.
    failover.cut_between_hosts()?;
    failover.wait("both hosts are active, and the second has the nodes", || {
        Ok(first.run(&["perilog", "status"])?.success() && has_nodes(second)?)
    })?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());
    let journal = second.sh("journalctl --no-pager -o cat -u perilog-controller")?;
    ensure!(journal.contains("nodes report a newer state than this store has"), "{journal}");
    for host in [first, second] {
        for job in ["i", "j", "k"] {
            runs.push(host.spawn(&prolog(job))?);
        }
    }
    cluster.wait_begun("k", &[0, 1])?;
    // An agent that is restarted dials the first host, which learns that its time is over.
    for rank in [0, 1] {
        cluster.dial(rank, &["ctl0:5115", "ctl1:5115"])?;
    }
    failover.wait("the first host shows that its nodes have accepted the other", || {
        Ok(first.run(&["perilog", "--json", "nodes"])?.stdout.contains("perilog controller recover --take-over"))
    })?;
    let words = ["if no other controller runs", "perilog controller recover --take-over"];
    cluster.wait_logged(first, "perilog-controller", &words)?;
    failover.wait("the second host has the nodes", || has_nodes(second))?;

    cluster.open_gates()?;
    for job in ["i", "j", "k"] {
        cluster.wait_scripts_ended(job, &[0, 1])?;
        let mut ranks: Vec<u32> = cluster.runs(job)?.into_iter().map(|(rank, _)| rank).collect();
        ranks.sort_unstable();
        ensure!(ranks == [0, 1], "{job} ran on {ranks:?}");
    }
    drop(runs);
    Ok(())
}
