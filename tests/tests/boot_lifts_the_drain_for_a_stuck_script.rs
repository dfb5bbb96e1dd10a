//! On two nodes a script hangs past its limit, and the controller drains both. An operator drains one of them as well.
//! Both nodes lose their power and boot. With `reboot-cleans`, the boot lifts the controller's drains; the operator's
//! drain stays.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster, LIMIT};

const SOON: Duration = Duration::from_secs(90);

#[test]
fn the_boot_lifts_it_and_not_an_operators() -> Result<()> {
    let deaf = format!("trap '' TERM\n{AT_GATE}");
    let agent = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    let cluster = Cluster::builder(2).script("epilog", "10-stuck", &deaf).agent(&agent);
    let cluster = cluster.controller("reboot-cleans = true\n").build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let drained = || cluster.perilog(&["--quiet", "drain"])?.ok();
    let is_drained = |text: &str, host: &str| text.lines().any(|name| name == host);
    cluster.bed().wait_until("both are drained", SOON, || {
        let text = drained()?;
        Ok(is_drained(&text, "n0") && is_drained(&text, "n1"))
    })?;
    cluster.perilog(&["drain", "n1", "bad memory"])?.ok()?;
    for node in cluster.nodes() {
        node.power_fail()?;
    }
    for node in cluster.nodes() {
        node.boot()?;
    }
    cluster.wait_end(&mut run)?;
    cluster.bed().wait_until("the boot lifts the drain of n0", SOON, || Ok(!is_drained(&drained()?, "n0")))?;
    let text = drained()?;
    ensure!(is_drained(&text, "n1"), "{text}");
    Ok(())
}
