//! Two equal `perilog run` at the same time: one action begins, each script runs once, and both callers get the same
//! result.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn two_callers_of_one_action_share_it() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    let words = ["run", "prolog", "--job", "j", "--nodes", "n[0-1]"];
    let mut both = [cluster.start_perilog(&words)?, cluster.start_perilog(&words)?];
    cluster.wait_begun("j", &[0, 1])?;
    cluster.open_gates()?;
    let codes = [cluster.wait_end(&mut both[0])?, cluster.wait_end(&mut both[1])?];
    assert_eq!(codes[0], codes[1]);
    assert_eq!(cluster.runs("j")?.len(), 2, "one run of the script on each rank");
    cluster.assert_ran("j", &["prolog"])?;
    // A third run, long after: the run attaches, reports the result, and starts nothing.
    let again = cluster.perilog(&words)?;
    assert_eq!(again.code(), Some(codes[0]), "{again}");
    assert_eq!(cluster.runs("j")?.len(), 2);
    Ok(())
}
