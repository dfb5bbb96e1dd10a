//! A job asked for four nodes and keeps two. The controller releases the node that failed a tolerable check, and the
//! surplus node, through the epilog and while the job goes on. A job that keeps four nodes, and has three good nodes
//! left, fails and keeps all nodes.

use anyhow::{Result, ensure};
use perilog_core::IdSet;
use perilog_tests::Cluster;
use perilog_tests::manager::{self, FOUR};

const PROLOG: &str = "[ \"$(uname -n)\" != n1 ] || perilog-report tolerable --check lustre 'not mounted'";
const SCRIPTS: &[(&str, &[&str])] = &[("prolog", &["10-lustre"]), ("epilog", &["10-clean"])];
const SOON: std::time::Duration = std::time::Duration::from_secs(90);

fn cleaned(cluster: &Cluster, job: &str) -> Result<IdSet> {
    let ledger = cluster.ledger()?;
    Ok(ledger.of_job(job).iter().filter(|(key, _)| key.action == "epilog").map(|(key, _)| key.rank).collect())
}

#[test]
fn a_job_keeps_as_many_as_it_asked_for_and_never_fewer() -> Result<()> {
    let builder = Cluster::builder(4).script("prolog", "10-lustre", PROLOG).script("epilog", "10-clean", "exit 0");
    let cluster = builder.controller(manager::CONFIGURATION).build()?;
    cluster.manage("")?;
    cluster.controller()?.write_file("/root/R.json", FOUR.r)?;
    cluster.boot()?;
    let given = |job: &str| -> Result<IdSet> {
        Ok(cluster.received()?.once(job).iter().flat_map(|release| release.ranks.iter()).collect())
    };
    let wait_given = |job: &str, ranks: &str| {
        let ranks: IdSet = ranks.parse()?;
        cluster.bed().wait_until(&format!("{ranks} of {job} are released"), SOON, || Ok(given(job)? == ranks))
    };

    cluster.perilog(&["job", "add", "two", "--R", "/root/R.json", "--keep", "2"])?.ok()?;
    cluster.perilog(&["run", "prolog", "--job", "two"])?.ok()?;
    // Ranks 4 and 6 are the first two good ranks: 5 failed, 7 is surplus.
    wait_given("two", "5,7")?;
    ensure!(cleaned(&cluster, "two")?.to_string() == "5,7", "{}", cleaned(&cluster, "two")?);
    let received = cluster.received()?;
    ensure!(received.drained("n1").is_some() && received.drained("n3").is_none(), "{:?}", received.drains);
    let events = cluster.perilog(&["--json", "events", "two"])?.ok()?;
    let shrink = events.lines().find(|line| line.contains("\"name\":\"shrink\""));
    ensure!(shrink.is_some_and(|line| line.contains("\"left\":\"4,6\"")), "{events}");
    cluster.perilog(&["job", "finish", "two"])?.ok()?;
    wait_given("two", "4-7")?;

    cluster.perilog(&["job", "add", "four", "--R", "/root/R.json", "--keep", "4", "--tolerate", "1"])?.ok()?;
    let run = cluster.perilog(&["run", "prolog", "--job", "four"])?;
    ensure!(run.code() == Some(1), "{run}");
    ensure!(
        given("four")?.is_empty() && cleaned(&cluster, "four")?.is_empty(),
        "{:?}",
        cluster.received()?.once("four")
    );
    cluster.perilog(&["job", "finish", "four"])?.ok()?;
    wait_given("four", "4-7")?;

    for job in ["two", "four"] {
        let received = cluster.received()?;
        let faults = received.faults(job, &FOUR);
        ensure!(faults.is_empty() && received.complete(job, &FOUR)?, "{job}: {faults:?} {:?}", received.once(job));
        let comparison = cluster.compare(job, SCRIPTS)?;
        ensure!(comparison.holds() && comparison.len() == 8, "{comparison}");
    }
    Ok(())
}
