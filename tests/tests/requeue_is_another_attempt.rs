//! A requeue within a second of a failed attempt is a new attempt: the scripts run anew, and no result of the old
//! attempt counts. The new attempt's scripts begin on a node when the old attempt's after-actions have ended there.

use anyhow::Result;
use perilog_tests::Cluster;

/// Script body that fails in attempt 0 and succeeds later.
const FIRST_FAILS: &str = "[ \"$PERILOG_ATTEMPT\" != 0 ] || exit 7";

#[test]
fn a_quick_requeue_runs_its_own_scripts() -> Result<()> {
    let builder = Cluster::builder(2).script("prolog", "10-gate", FIRST_FAILS);
    let cluster = builder.script("epilog", "10-gate", "sleep 0.2").boot()?;
    let first = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    assert_eq!(first.code(), Some(1), "{first}");
    let second = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]", "--attempt", "1"])?;
    assert_eq!(second.code(), Some(0), "{second}");
    cluster.assert_true("j", &["prolog", "epilog"])?;
    let ledger = cluster.ledger()?;
    for rank in 0..2 {
        let runs: Vec<_> = ledger.of_job("j").into_iter().filter(|(key, _)| key.rank == rank).collect();
        let order: Vec<_> = runs.iter().map(|(key, _)| (key.attempt.as_str(), key.action.as_str())).collect();
        assert_eq!(order, [("0", "prolog"), ("0", "epilog"), ("1", "prolog")], "on rank {rank}");
        for pair in runs.windows(2) {
            let ended = pair[0].1.ended.map(|(when, _)| when);
            assert!(ended.is_some_and(|ended| ended <= pair[1].1.started), "on rank {rank}: {pair:?}");
        }
    }
    // The closed attempt accepts a request for the epilog, which has run; the closed attempt accepts no new action.
    let again = cluster.perilog(&["run", "epilog", "--job", "j", "--attempt", "0"])?.ok()?;
    assert!(again.contains("attached"), "{again}");
    let late = cluster.perilog(&["run", "check", "--job", "j", "--attempt", "0"])?;
    assert_eq!(late.code(), Some(10), "{late}");
    assert!(late.stderr.contains("is over"), "{late}");
    assert_eq!(cluster.ledger()?.of_job("j"), ledger.of_job("j"), "something was run again");
    Ok(())
}

#[test]
fn a_requeue_beside_a_live_script_waits_for_it_and_says_so() -> Result<()> {
    const SLOW_FIRST: &str = "[ \"$PERILOG_ATTEMPT\" != 0 ] || while [ ! -e /run/gate ]; do sleep 0.02; done";
    let builder = Cluster::builder(1).script("prolog", "10-gate", SLOW_FIRST);
    let cluster = builder.script("epilog", "10-gate", "true").boot()?;
    let mut first = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let mut second = cluster.start_perilog(&["run", "prolog", "--job", "j", "--attempt", "1"])?;
    cluster.bed().wait_until("the second attempt is seen to wait", std::time::Duration::from_secs(60), || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("waiting") && ps.contains("of attempt 0 has not ended there"))
    })?;
    assert_eq!(cluster.runs("j")?.len(), 1, "two attempts at once on one host");
    cluster.open_gates()?;
    assert_eq!((cluster.wait_end(&mut first)?, cluster.wait_end(&mut second)?), (0, 0));
    cluster.assert_true("j", &["prolog", "epilog"])
}
