//! A hook of Slurm waits for an absent agent, up to the hook's time limit. A hook that gets a signal to stop stops the
//! scripts, even if the agent was away at that moment. A killed hook leaves the scripts alone, and the next hook
//! attaches to them.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::slurm::BY_GATE;
use perilog_tests::{Cluster, Node, Running};

const SOON: Duration = Duration::from_secs(90);

fn hook(node: &Node, kind: &str, job: &str, more: &[&str]) -> Result<Running> {
    let job = format!("SLURM_JOB_ID={job}");
    // Each step is an exec(2): the shell's process becomes the hook.
    let shell = ["sh", "-c", "echo $$ >/root/pid; exec env \"$@\"", "sh"];
    node.spawn(&[&shell, &[&job, "SLURM_JOB_UID=64001", "perilog", "hook", kind][..], more].concat())
}

fn wait_stderr(cluster: &Cluster, running: &mut Running, text: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("the hook says {text:?}"), SOON, || Ok(running.output()?.stderr.contains(text)))
}

#[test]
fn an_agent_that_is_away_is_waited_for_and_not_for_ever() -> Result<()> {
    let cluster =
        Cluster::builder(1).script("prolog", "10-gate", BY_GATE).script("epilog", "10-gate", BY_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let node = cluster.node(0)?;
    cluster.kill_agent(0)?;
    let mut short = hook(node, "slurm-prolog", "4", &["--patience", "300ms"])?;
    ensure!(cluster.wait_end(&mut short)? == 7, "{}", short.output()?);
    wait_stderr(
        &cluster,
        &mut short,
        "prolog of 4: the agent was away for 300ms, so this hook gives up; no script has begun, as far as this hook \
         knows",
    )?;
    let mut patient = hook(node, "slurm-prolog", "5", &[])?;
    wait_stderr(&cluster, &mut patient, "this hook waits for the agent, at most 2m")?;
    cluster.start_agent(0)?;
    cluster.wait_action_begun("5", "prolog", &[0])?;
    // An epilog without a prolog on this host. After the epilog's end, the host would count the next call as the next
    // attempt.
    let mut epilog = hook(node, "slurm-epilog", "6", &[])?;
    cluster.wait_action_begun("6", "epilog", &[0])?;
    // The agent is away in the middle of both; the scripts end meanwhile.
    cluster.kill_agent(0)?;
    node.write_file("/run/gate-prolog", "37")?;
    node.write_file("/run/gate-epilog", "0")?;
    cluster.wait_scripts_ended("5", &[0])?;
    cluster.wait_scripts_ended("6", &[0])?;
    cluster.start_agent(0)?;
    ensure!(cluster.wait_end(&mut patient)? == 37, "{}", patient.output()?);
    wait_stderr(&cluster, &mut patient, "prolog of 5: failed (exit 37)")?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    ensure!(cluster.runs("6")?.len() == 1, "{:?}", cluster.runs("6")?);
    // A second call, long after the end.
    let mut again = hook(node, "slurm-prolog", "5", &[])?;
    ensure!(cluster.wait_end(&mut again)? == 37, "{}", again.output()?);
    wait_stderr(&cluster, &mut again, "prolog of 5 had ended before: failed (exit 37); it does not run again")?;
    ensure!(cluster.runs("5")?.len() == 1 && cluster.runs("4")?.is_empty(), "{:?}", cluster.runs("5")?);
    Ok(())
}

#[test]
fn a_stopped_hook_stops_its_scripts_and_a_killed_one_does_not() -> Result<()> {
    let cluster =
        Cluster::builder(1).script("prolog", "10-gate", BY_GATE).script("epilog", "10-gate", BY_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let node = cluster.node(0)?;
    let mut killed = hook(node, "slurm-epilog", "5", &[])?;
    cluster.wait_action_begun("5", "epilog", &[0])?;
    killed.kill()?;
    let mut next = hook(node, "slurm-epilog", "5", &[])?;
    wait_stderr(&cluster, &mut next, "epilog of 5 exists already; this hook attached to")?;
    cluster.kill_agent(0)?;
    wait_stderr(&cluster, &mut next, "this hook waits for the agent")?;
    node.sh("kill -TERM $(cat /root/pid)")?;
    wait_stderr(&cluster, &mut next, "cannot ask the scripts to stop")?;
    cluster.start_agent(0)?;
    wait_stderr(&cluster, &mut next, "asked the scripts to stop; this hook waits until they have ended")?;
    let code = cluster.wait_end(&mut next)?;
    ensure!(code == 143, "{code}: {}", next.output()?);
    wait_stderr(&cluster, &mut next, "epilog of 5: cancelled")?;
    ensure!(cluster.runs("5")?.len() == 1, "{:?}", cluster.runs("5")?);
    // The node refuses an unknown action, and lists the known actions.
    let mut refused = hook(node, "slurm-prolog", "6", &["--action", "check"])?;
    ensure!(cluster.wait_end(&mut refused)? == 5, "{}", refused.output()?);
    wait_stderr(&cluster, &mut refused, "action check is not configured on this node; configured: epilog, prolog")
}
