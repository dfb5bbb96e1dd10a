//! Agents on nodes of several distributions, each with its own systemd, under one controller: a job over all of them,
//! kill -9 of every daemon in its prolog, and a power failure in its epilog. `cargo xtask test mixed` makes the roots.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Base, Cluster};

#[test]
fn a_job_over_several_systemds_runs_each_script_once() -> Result<()> {
    let bases = Base::several();
    ensure!(bases.len() > 1, "this test needs roots of several distributions: `cargo xtask test mixed` makes them");
    // The last node has the controller's own distribution.
    let (others, last) = (bases.len(), bases.len());
    let builder = Cluster::builder(others + 1).bases(bases).script("prolog", "10-gate", AT_GATE);
    let cluster = builder.script("epilog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut versions = BTreeSet::new();
    for node in cluster.nodes() {
        let version = node.sh("systemctl --version | sed -n '1s/systemd //p'")?;
        println!("{}: systemd {version}", node.name());
        versions.insert(version);
    }
    ensure!(versions.len() >= others, "the nodes have one systemd: {versions:?}");
    let (all, ranks): (String, Vec<u32>) = (format!("n[0-{last}]"), (0..).take(others + 1).collect());

    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", &all])?;
    cluster.wait_begun("j", &ranks)?;
    cluster.kill_controller()?;
    (0..=last).try_for_each(|rank| cluster.kill_agent(rank))?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &ranks)?;
    (0..=last).try_for_each(|rank| cluster.start_agent(rank))?;
    cluster.start_controller()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])?;

    // Each node but one loses its power, and with it the scripts of the job's epilog.
    cluster.close_gates()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", &all])?;
    cluster.wait_begun("k", &ranks)?;
    for node in &cluster.nodes()[..others] {
        node.power_fail()?;
    }
    cluster.open_gate(last)?;
    cluster.boot()?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_true("k", &["epilog"])?;
    let printed = run.output()?.stdout;
    for rank in 0..others {
        ensure!(printed.contains(&format!("n{rank}: lost (the node rebooted)")), "{printed}");
    }
    Ok(())
}
