//! SIGKILL of a quiesced controller: a running prolog goes on, no new action begins before or after the restart,
//! after-actions begin, and `resume` allows new starts.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;

const AT_GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done\nexit 0";

#[test]
fn nothing_new_begins_until_an_operator_resumes() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).script("epilog", "10-clean", "exit 0");
    let cluster = cluster.controller("[action.epilog]\nrelease = \"0\"\n").build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "a", "--nodes", "n0"])?.ok()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "a"])?;
    cluster.wait_begun("a", &[0])?;
    let quiet = cluster.perilog(&["quiesce", "--reason", "new release", "--wait", "0s"])?;
    ensure!(quiet.code() == Some(124), "{quiet}");
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    let refused = cluster.perilog(&["run", "prolog", "--job", "b", "--nodes", "n0"])?;
    ensure!(refused.code() != Some(0) && refused.to_string().contains("perilog resume"), "{refused}");
    for verb in ["status", "ps"] {
        let shown = cluster.perilog(&[verb])?.ok()?;
        ensure!(shown.contains("by uid 0 (new release)") && shown.contains("perilog resume"), "{verb}: {shown}");
    }
    // A client that waits for quiescence gets the answer when the last task has ended.
    let mut waits = cluster.start_perilog(&["quiesce", "--wait"])?;
    cluster.open_gate(0)?;
    ensure!(cluster.wait_end(&mut run)? == 0, "the prolog that ran goes on");
    ensure!(cluster.wait_end(&mut waits)? == 0, "nothing is open");
    cluster.perilog(&["job", "finish", "a"])?.ok()?;
    let clean = cluster.perilog(&["wait", "a", "--for", "clean"])?;
    ensure!(clean.code() == Some(0), "{clean}");
    cluster.perilog(&["resume"])?.ok()?;
    let run = cluster.perilog(&["run", "prolog", "--job", "b", "--nodes", "n0"])?;
    ensure!(run.code() == Some(0), "{run}");
    let comparison = cluster.compare("a", &[("prolog", &["10-gate"]), ("epilog", &["10-clean"])])?;
    ensure!(comparison.holds(), "{comparison}");
    Ok(())
}
