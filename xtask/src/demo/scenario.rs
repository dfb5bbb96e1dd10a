//! Demo `kills`, the default: a prolog and then an epilog over four nodes. An agent and the controller are killed in
//! the middle of the prolog, and scripts end while both are dead. Not even the controller can know the scripts' exit
//! codes beforehand: each script draws its code at random when it runs.

use anyhow::Result;
use perilog_tests::{Cluster, Layer, Stopwatch, ledger};

use super::narrator::Narrator;
use crate::stages::print_line;

const JOB: &str = "f2mKAgF7";
const NODES: &str = "n[0-3]";

const CHECK: &str = "echo \"checking $(uname -n)\"\nexit $(draw 0 0 0 0 0 3)";
const MOUNT: &str = "\
perilog-report progress 'mounting /p/lustre1'
while [ ! -e /run/gate ]; do sleep 0.05; done
code=$(draw 0 0 37)
[ $code = 0 ] || echo \"mount: /p/lustre1: no such device\" >&2
exit $code";
const CLEAN: &str = "echo \"scrubbing /tmp of job $PERILOG_JOB\"\nsleep 0.$(draw 1 3 6)\nexit $(draw 0 0 0 9)";
const SCRIPTS: &[(&str, &[&str])] = &[("prolog", &["10-check", "20-mount"]), ("epilog", &["10-clean"])];

pub(super) fn play(layer: Layer) -> Result<bool> {
    let watch = Stopwatch::start();
    let builder = Cluster::builder(4).layer(layer);
    let builder = builder.script("prolog", "10-check", CHECK).script("prolog", "20-mount", MOUNT);
    let cluster = builder.script("epilog", "10-clean", CLEAN).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    print_line(&format!(
        ">> a controller and four nodes, each with its own systemd, booted in {:.1} s",
        watch.elapsed().as_secs_f64()
    ))?;
    let narrator = Narrator::new(&cluster);
    narrator.show(cluster.controller()?, &["perilog", "nodes"])?;
    prolog(&narrator)?;
    epilog(&narrator)?;
    narrator.announce("What the controller knows of the job, and its event log")?;
    narrator.show(cluster.controller()?, &["perilog", "show", JOB])?;
    narrator.show(cluster.controller()?, &["perilog", "events", JOB])?;
    compare(&narrator)
}

fn prolog(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.announce("A prolog on all four; its second script takes a while")?;
    let mut run = narrator.start(&["run", "prolog", "--job", JOB, "--nodes", NODES])?;
    narrator.wait("every second script has begun", &mut run, |_| {
        let ledger = cluster.ledger()?;
        Ok(ledger.of_job(JOB).iter().filter(|(key, _)| key.script == "20-mount").count() == 4)
    })?;
    narrator.announce("What an operator sees on a node: plain systemd")?;
    narrator.show(cluster.node(1)?, &["systemctl", "--no-pager", "status", "perilog-task-*"])?;
    narrator.announce("What waits, cluster-wide, and why")?;
    narrator.wait("ps shows what runs", &mut run, |_| Ok(cluster.perilog(&["ps"])?.ok()?.contains("20-mount")))?;
    narrator.show(cluster.controller()?, &["perilog", "ps"])?;
    narrator.announce("n0 may end; then kill -9 of the agent of n2, and of the controller")?;
    cluster.open_gate(0)?;
    narrator.wait("n0 is shown", &mut run, |run| run.has_printed("n0:"))?;
    cluster.kill_agent(2)?;
    cluster.kill_controller()?;
    narrator.show(cluster.node(2)?, &["systemctl", "--no-pager", "is-active", "perilog-agent"])?;
    narrator.show(cluster.controller()?, &["systemctl", "--no-pager", "is-active", "perilog-controller"])?;
    narrator.announce("Both are dead. The scripts go on, and end with no agent to report to")?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended(JOB, &[0, 1, 2, 3])?;
    narrator.show(cluster.node(2)?, &["systemctl", "--no-pager", "list-units", "--plain", "perilog-task-*"])?;
    narrator.announce("Both come back; `perilog run` has waited and attaches by itself")?;
    cluster.start_controller()?;
    cluster.start_agent(2)?;
    narrator.finish(&mut run)
}

fn epilog(narrator: &Narrator<'_>) -> Result<()> {
    narrator.announce("The epilog, in one line per result as ranks complete")?;
    let mut run = narrator.start(&["run", "epilog", "--job", JOB])?;
    narrator.finish(&mut run)
}

/// Compares the ledgers (files on the nodes, in which each script notes its begin and its end) with what the controller
/// says about the tasks. Prints the comparison; returns `true` if both agree on all eight tasks.
fn compare(narrator: &Narrator<'_>) -> Result<bool> {
    narrator.announce(&format!(
        "The ledgers that the scripts wrote on their nodes ({}) against what the controller knows",
        ledger::PATH
    ))?;
    let comparison = narrator.cluster.compare(JOB, SCRIPTS)?;
    for line in comparison.to_string().lines() {
        print_line(&format!("   {line}"))?;
    }
    let all = comparison.len() == 8;
    if !all {
        print_line(&format!("   {} tasks, 8 were to be compared", comparison.len()))?;
    }
    print_line(if comparison.holds() && all {
        "\n>> They agree: nothing was lost, doubled or made up."
    } else {
        "\n>> They DIFFER."
    })?;
    Ok(comparison.holds() && all)
}
