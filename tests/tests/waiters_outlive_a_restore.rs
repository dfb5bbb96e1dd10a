//! A `perilog run` and a `perilog wait` are waiting when an operator puts an older copy of the store back. Both
//! commands report why the job waits, and go on by themselves after a repeated request or an operator's command. The
//! controller releases no rank a second time. A newer attempt, unknown to the copy, keeps its prolog and gets its
//! epilog.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::manager;
use perilog_tests::{Cluster, Running};

const SOON: Duration = Duration::from_secs(90);
const COPY: &str = "/root/copy.db";
/// Script body: waits at a gate that each action of each job has of its own.
const AT_GATE: &str = "while [ ! -e /run/gate-$PERILOG_JOB-$PERILOG_ACTION ]; do sleep 0.02; done";

fn cluster() -> Result<Cluster> {
    let cluster = Cluster::builder(1)
        .script("prolog", "10-gate", AT_GATE)
        .script("epilog", "10-gate", AT_GATE)
        .controller(manager::CONFIGURATION)
        .build()?;
    cluster.stay_down()?;
    cluster.manage("")?;
    cluster.boot()?;
    Ok(cluster)
}

fn open(cluster: &Cluster, gates: &[&str]) -> Result<()> {
    gates.iter().try_for_each(|gate| cluster.node(0)?.sh(&format!("touch /run/gate-{gate}")).map(drop))
}

fn perilog(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    cluster.perilog(arguments)?.ok()
}

fn restore(cluster: &Cluster) -> Result<()> {
    perilog(cluster, &["controller", "restore", COPY])?;
    cluster.wait_online()?;
    Ok(())
}

fn wait_printed(cluster: &Cluster, who: &mut Running, words: &[&str]) -> Result<()> {
    let received = cluster.bed().wait_until(&format!("{words:?} is said"), SOON, || {
        let output = who.output()?.to_string();
        Ok(words.iter().all(|word| output.contains(word)))
    });
    match received {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(who.output()?.to_string())),
    }
}

/// Returns how often the release hook was notified of releases of this job's attempt.
fn reported(cluster: &Cluster, job: &str, attempt: &str) -> Result<usize> {
    let received = cluster.received()?;
    Ok(received.releases.iter().filter(|release| release.job == job && release.attempt == attempt).count())
}

#[test]
fn no_rank_is_reported_free_under_the_script_of_another_job() -> Result<()> {
    let cluster = cluster()?;
    // The copy has a running epilog of A. The epilog ends, the controller releases the node, and B gets the node.
    perilog(&cluster, &["job", "add", "A", "--nodes", "n0"])?;
    perilog(&cluster, &["job", "finish", "A"])?;
    cluster.wait_action_begun("A", "epilog", &[0])?;
    perilog(&cluster, &["controller", "backup", COPY])?;
    let mut of_a = cluster.start_perilog(&["wait", "A"])?;
    open(&cluster, &["A-epilog"])?;
    ensure!(cluster.wait_end(&mut of_a)? == 0);
    perilog(&cluster, &["wait", "A", "--for", "clean"])?;
    cluster.bed().wait_until("the hook has a notice of A", SOON, || Ok(reported(&cluster, "A", "0")? == 1))?;
    let mut of_b = cluster.start_perilog(&["run", "prolog", "--job", "B", "--nodes", "n0"])?;
    cluster.wait_begun("B", &[0])?;

    restore(&cluster)?;
    // The `perilog run` of B takes B up with the repeated request.
    wait_printed(&cluster, &mut of_b, &["the controller's store no longer had this action"])?;
    let mut of_a = cluster.start_perilog(&["wait", "A", "--for", "clean"])?;
    wait_printed(&cluster, &mut of_a, &["job A needs confirmation", "perilog job finish A --attempt 0"])?;
    open(&cluster, &["B-prolog"])?;
    ensure!(cluster.wait_end(&mut of_b)? == 0, "{}", of_b.output()?);
    ensure!(cluster.runs("B")?.len() == 1, "the prolog of B ran twice");
    // B has the node: the epilog of A does not run there, and no notice is sent that it is free.
    perilog(&cluster, &["job", "finish", "A", "--attempt", "0"])?;
    ensure!(perilog(&cluster, &["ps", "--abandoned"])?.contains("nothing is abandoned"));
    let ended = cluster.wait_end(&mut of_a)?;
    let output = of_a.output()?.to_string();
    ensure!(
        ended == 0
            && output.contains("but not all of it is clean")
            && output.contains("n0 given up, for its host is job B's"),
        "{output}"
    );
    // The hook gets notices in order: a release of A would have come before the release of B.
    open(&cluster, &["B-epilog"])?;
    perilog(&cluster, &["job", "add", "B", "--nodes", "n0"])?;
    perilog(&cluster, &["job", "finish", "B"])?;
    cluster.bed().wait_until("the hook has a notice of B", SOON, || Ok(reported(&cluster, "B", "0")? == 1))?;
    ensure!(reported(&cluster, "A", "0")? == 1, "A was reported free again: {:?}", cluster.received()?.releases);
    ensure!(cluster.runs("A")?.len() == 1, "the epilog of A ran twice");
    Ok(())
}

#[test]
fn a_newer_attempt_and_a_younger_job_are_cleaned_up_after() -> Result<()> {
    let cluster = cluster()?;
    open(&cluster, &["C-prolog", "C-epilog", "D-prolog", "D-epilog"])?;
    perilog(&cluster, &["job", "add", "C", "--nodes", "n0"])?;
    perilog(&cluster, &["run", "prolog", "--job", "C"])?;
    perilog(&cluster, &["controller", "backup", COPY])?;
    // Requeued: perilog cleans up after the first attempt, and prepares the second. D arrives, unknown to the copy.
    perilog(&cluster, &["job", "add", "C", "--attempt", "1", "--nodes", "n0"])?;
    perilog(&cluster, &["run", "prolog", "--job", "C", "--attempt", "1"])?;
    cluster
        .bed()
        .wait_until("the hook has a notice of the first attempt", SOON, || Ok(reported(&cluster, "C", "0")? == 1))?;
    perilog(&cluster, &["job", "add", "D", "--nodes", "n0"])?;
    perilog(&cluster, &["run", "prolog", "--job", "D"])?;
    let mut of_c = cluster.start_perilog(&["wait", "C", "--attempt", "1", "--for", "clean"])?;
    let mut of_d = cluster.start_perilog(&["wait", "D", "--for", "clean"])?;
    let before = (cluster.runs("C")?.len(), cluster.runs("D")?.len());
    ensure!(before == (3, 1), "{before:?}");

    restore(&cluster)?;
    wait_printed(&cluster, &mut of_c, &["this command reads the log of C from its start"])?;
    wait_printed(&cluster, &mut of_d, &["no longer has D", "perilog job add"])?;
    // The resource manager requests both again: no script runs twice, and each job gets an epilog.
    perilog(&cluster, &["job", "add", "C", "--attempt", "1", "--nodes", "n0"])?;
    perilog(&cluster, &["job", "add", "D", "--nodes", "n0"])?;
    perilog(&cluster, &["run", "prolog", "--job", "C", "--attempt", "1"])?;
    perilog(&cluster, &["run", "prolog", "--job", "D"])?;
    ensure!((cluster.runs("C")?.len(), cluster.runs("D")?.len()) == before, "a prolog ran twice");
    perilog(&cluster, &["job", "finish", "C", "--attempt", "1"])?;
    perilog(&cluster, &["job", "finish", "D"])?;
    ensure!(cluster.wait_end(&mut of_c)? == 0, "{}", of_c.output()?);
    ensure!(cluster.wait_end(&mut of_d)? == 0, "{}", of_d.output()?);
    ensure!((cluster.runs("C")?.len(), cluster.runs("D")?.len()) == (4, 2), "{:?}", cluster.runs("C")?);
    let reported = |job, attempt| reported(&cluster, job, attempt);
    cluster.bed().wait_until(
        "the hook has a notice of \
                     both",
        SOON,
        || Ok(reported("C", "1")? == 1 && reported("D", "0")? == 1),
    )?;
    ensure!(reported("C", "0")? == 1, "the first attempt was reported free again");
    Ok(())
}

/// Starts `perilog hook KIND`, such as `slurmctld-prolog`, for job E on n0 as slurmctld would. Leaves the hook running.
fn hook(cluster: &Cluster, kind: &str) -> Result<Running> {
    let job = ["SLURM_JOB_ID=E", "SLURM_JOB_UID=64001", "SLURM_JOB_NODELIST=n0"];
    cluster.controller()?.spawn(&[&["env"], &job[..], &["perilog", "hook", kind]].concat())
}

/// The store is restored from a copy from before the job: only the hook knows that the job exists.
#[test]
fn a_hook_goes_on_over_a_restore() -> Result<()> {
    let cluster = cluster()?;
    perilog(&cluster, &["controller", "backup", COPY])?;
    for (kind, action) in [("slurmctld-prolog", "prolog"), ("slurmctld-epilog", "epilog")] {
        let mut of_e = hook(&cluster, kind)?;
        cluster.wait_action_begun("E", action, &[0])?;
        perilog(&cluster, &["controller", "restore", COPY])?;
        cluster.wait_online()?;
        wait_printed(&cluster, &mut of_e, &["this hook waits for the controller, at most 2m", "is back"])?;
        open(&cluster, &[&format!("E-{action}")])?;
        ensure!(cluster.wait_end(&mut of_e)? == 0, "{}", of_e.output()?);
    }
    perilog(&cluster, &["wait", "E", "--for", "clean"])?;
    ensure!(cluster.runs("E")?.len() == 2, "a script ran twice: {:?}", cluster.runs("E")?);
    cluster.bed().wait_until("the hook has a notice of E", SOON, || Ok(reported(&cluster, "E", "0")? == 1))?;
    ensure!(perilog(&cluster, &["ps", "--abandoned"])?.contains("nothing is abandoned"));
    Ok(())
}
