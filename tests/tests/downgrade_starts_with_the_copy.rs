//! An older release is installed after a newer one has migrated the store, while a script runs. The controller refuses
//! the newer store and leaves it as it is, and starts with the copy that the migration kept. The test's own release is
//! the older one: the store is marked as that of the next version.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster};

/// Keeps a copy as a migration does, and marks the store as one of the next version. Prints this release's version.
const NEWER: &str = "import sqlite3
store = '/var/lib/perilog/controller.db'
db = sqlite3.connect(store)
[version] = db.execute('PRAGMA user_version').fetchone()
db.execute(f\"VACUUM INTO '{store}-version-{version}'\")
db.execute(f'PRAGMA user_version = {version + 1}')
print(version)";
const STORE: &str = "/var/lib/perilog/controller.db";
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn a_newer_store_is_refused_and_its_copy_goes_on() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", AT_GATE).boot()?;
    let host = cluster.controller()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    cluster.stop_controller()?;
    let version: u32 = host.run(&["python3", "-c", NEWER])?.ok()?.parse()?;
    let before = host.sh(&format!("sha256sum {STORE}"))?;

    host.systemctl(&["--no-block", "start", "perilog-controller"])?;
    let text = format!("version {}, and this controller supports up to {version}", version + 1);
    cluster.wait_logged(host, "perilog-controller", &[&text])?;
    ensure!(host.sh(&format!("sha256sum {STORE}"))? == before, "the refused store was changed");

    host.run(&["perilog", "controller", "restore", &format!("{STORE}-version-{version}")])?.ok()?;
    cluster.wait_online()?;
    cluster.bed().wait_until("the waiting caller has asked again", LIMIT, || {
        Ok(cluster.perilog(&["ps"])?.stdout.contains(" j "))
    })?;
    ensure!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}
