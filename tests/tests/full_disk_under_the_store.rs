//! The disk under the controller's store is full: no prolog begins, epilogs run, and the store keeps ends. With free
//! space again, everything continues by itself.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const SOON: Duration = Duration::from_secs(90);

#[test]
fn prologs_are_refused_epilogs_run_and_outcomes_are_kept() -> Result<()> {
    let cluster = Cluster::builder(2)
        .script("prolog", "10-gate", AT_GATE)
        .script("epilog", "10-gate", "exit $(draw 0 3)")
        .build()?;
    let controller = cluster.controller()?;
    // The store has a disk of its own: a mount on the state directory before the controller starts.
    let mount = "[Unit]\nBefore=perilog-controller.service\n[Mount]\nWhat=none\nType=tmpfs\nOptions=size=32m\n\
                 Where=/var/lib/perilog\n";
    controller.write_file("/etc/systemd/system/var-lib-perilog.mount", mount)?;
    let after = "[Unit]\nRequiresMountsFor=/var/lib/perilog\n";
    controller.write_file("/etc/systemd/system/perilog-controller.service.d/disk.conf", after)?;
    cluster.boot()?;
    let pid = || controller.systemctl(&["show", "--property=MainPID", "--value", "perilog-controller"]);
    let before = pid()?;
    assert_eq!(controller.sh("stat -f -c %T /var/lib/perilog")?, "tmpfs");
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;

    controller.sh("cat /dev/zero > /var/lib/perilog/filler 2>/dev/null || true")?;
    // The store keeps ends from now on: the reserve is for ends.
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])?;
    cluster.wait_journal("ctl", "perilog-controller", &["disk is full", "no new prolog"])?;
    let refused = cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n[0-1]"])?;
    assert!(!refused.success() && refused.stderr.contains("disk"), "{refused}");
    assert!(cluster.perilog(&["status"])?.ok()?.contains("the store's disk is full"));
    cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.assert_ran("j", &["prolog", "epilog"])?;
    assert_eq!(cluster.runs("j")?.len(), 4, "the epilogs ran");

    controller.sh("rm /var/lib/perilog/filler")?;
    cluster.bed().wait_until("there is room again", SOON, || {
        Ok(!cluster.perilog(&["status"])?.ok()?.contains("the store's disk is full"))
    })?;
    cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n[0-1]"])?;
    cluster.assert_ran("k", &["prolog"])?;
    assert!(cluster.runs("k")?.len() == 2, "once, and not for the refused one");
    assert_eq!(pid()?, before, "without a restart");
    Ok(())
}
