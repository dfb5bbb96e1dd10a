//! A check fails on one node of four, and the node's prolog marks the failure as tolerable. Within the job's tolerance
//! the job goes on with the other three nodes; the job's owner sees the failed node, and the node is drained with the
//! message of the check. Beyond the tolerance, or for an unmarked failure, the job fails.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;

const PROLOG: &str = "\
if [ \"$PERILOG_JOB\" = generic ] && [ \"$(hostname)\" = n1 ]; then exit 5; fi
if [ \"$(hostname)\" = n2 ]; then perilog-report tolerable --check lustre 'mount missing' || exit 9; fi
exit 0";

#[test]
fn within_the_tolerance_the_job_goes_on_and_never_beyond_it() -> Result<()> {
    let epilog = "exit 0";
    let cluster =
        Cluster::builder(4).script("prolog", "10-check", PROLOG).script("epilog", "10-clean", epilog).boot()?;
    for (job, terms, code) in [
        ("tolerant", &["--tolerate", "1", "--shrink"][..], 0),
        ("percent", &["--tolerate", "25%"], 0),
        ("strict", &[], 1),
        ("little", &["--tolerate", "24%"], 1),
        ("generic", &["--tolerate", "100%"], 1),
    ] {
        cluster.perilog(&[&["job", "add", job, "--nodes", "n[0-3]"], terms].concat())?.ok()?;
        let run = cluster.perilog(&["run", "prolog", "--job", job])?;
        ensure!(run.code() == Some(code), "{job}: {run:?}");
    }
    let failed = |job: &str, format: &str| cluster.perilog(&["failed", job, "--format", format])?.ok();
    ensure!(failed("tolerant", "hostlist")?.trim() == "n2");
    ensure!(failed("tolerant", "idset")?.trim() == "2");
    ensure!(failed("tolerant", "json")?.contains("mount missing"));
    ensure!(failed("generic", "hostlist")?.trim() == "n[1-2]");
    let events = cluster.perilog(&["--json", "events", "tolerant"])?.ok()?;
    let reported = |name: &str| events.lines().any(|line| line.contains(&format!("\"name\":\"{name}\"")));
    ensure!(reported("exception") && reported("shrink"), "{events}");
    let events = cluster.perilog(&["--json", "events", "strict"])?.ok()?;
    ensure!(!events.contains("\"name\":\"exception\""), "{events}");
    let drained = cluster.perilog(&["drain"])?.ok()?;
    ensure!(drained.contains("n2") && drained.contains("lustre: mount missing"), "{drained}");
    ensure!(drained.contains("n1") && drained.contains("10-check: failed (exit 5)"), "{drained}");
    ensure!(!drained.contains("n0") && !drained.contains("n3"), "{drained}");
    // The controller releases the failed rank through its epilog, and the other ranks at the end of the job.
    cluster.perilog(&["job", "finish", "tolerant"])?.ok()?;
    cluster.wait_verdicts("tolerant")?;
    let epilog = &["10-clean"][..];
    let comparison = cluster.compare("tolerant", &[("prolog", &["10-check"]), ("epilog", epilog)])?;
    ensure!(comparison.holds(), "{comparison}");
    Ok(())
}
