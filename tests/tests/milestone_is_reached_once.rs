//! Two nodes report a milestone from a script that goes on; between the two reports the controller is killed. Each
//! report counts once. A client that waits for the job's milestone gets the answer after both reports, before the
//! scripts end.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;

const GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done";

#[test]
fn a_waiter_is_answered_when_all_ranks_have_reported_it() -> Result<()> {
    // n0 reports at once, n1 at a gate; both go on to another gate.
    let epilog = format!(
        "if [ \"$(hostname)\" = n0 ]; then perilog-report milestone data-out || exit 9; fi\n{GATE}\n\
         if [ \"$(hostname)\" = n1 ]; then perilog-report milestone data-out || exit 9; fi\nexit 0"
    );
    let cluster = Cluster::builder(2).script("epilog", "10-gate", &epilog).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "j", "--nodes", "n[0-1]"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    let mut waits = cluster.start_perilog(&["wait", "j", "--for", "data-out"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let reported = |ranks: &str| -> Result<usize> {
        let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
        let is_milestone = |line: &&str| line.contains("\"name\":\"milestone\"") && line.contains(ranks);
        Ok(events.lines().filter(is_milestone).count())
    };
    let soon = std::time::Duration::from_secs(60);
    cluster.bed().wait_until("n0 has said it", soon, || Ok(reported("\"ranks\":\"0\"")? == 1))?;
    ensure!(!waits.has_ended()?, "the job has not reached it");
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    cluster.open_gate(1)?;
    ensure!(cluster.wait_end(&mut waits)? == 0, "the job has reached it");
    let at_once = cluster.perilog(&["wait", "j", "--for", "data-out", "--timeout", "0s"])?;
    ensure!(at_once.code() == Some(0), "{at_once}");
    ensure!(reported("\"ranks\":\"0\"")? == 1 && reported("\"ranks\":\"1\"")? == 1 && reported("")? == 3, "each once");
    // A wait for a milestone that never comes ends with the job.
    let mut never = cluster.start_perilog(&["wait", "j", "--for", "never"])?;
    cluster.open_gate(0)?;
    ensure!(cluster.wait_end(&mut never)? == 1, "everything was released without it");
    Ok(())
}
