//! Power saving powers down an idle node, and leaves one alone that an orphan holds. Slurm before 23.02 has no setting
//! for that (SuspendExcStates): `cargo xtask test` counts this program as skipped there.

use anyhow::{Result, ensure};
use perilog_tests::slurm::{EXCLUSIVE, ON_NODES, SERIALIZED, Slurm, gated, knows};

#[test]
fn power_saving_leaves_the_node_of_an_orphan_alone() -> Result<()> {
    if !knows("SuspendExcStates") {
        eprintln!("not run: this Slurm does not know SuspendExcStates");
        return Ok(());
    }
    let cluster = gated(2).agent(SERIALIZED).boot()?;
    let saves = "SuspendProgram=/usr/local/sbin/stand-in-suspend\nResumeProgram=/usr/bin/true\nSuspendTime=5\n\
                 SuspendTimeout=5\nResumeTimeout=60\nSuspendExcStates=DRAIN,RESERVED\n";
    cluster.controller()?.write_script(
        "/usr/local/sbin/stand-in-suspend",
        "#!/bin/sh\nscontrol show hostnames \"$1\" >>/tmp/suspended\n",
    )?;
    let slurm = Slurm::start(&cluster, &format!("{ON_NODES}{EXCLUSIVE}{saves}"))?;
    slurm.open_all("prolog")?;
    slurm.open(1, "epilog", 0)?;
    let other = slurm.submit_with(&["--nodelist=n1"], "while [ ! -e /run/go ]; do sleep 0.05; done")?;
    let job = slurm.submit_with(&["--nodelist=n0"], "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    // n1 is idle from now on, n0 was before: if power saving took n0, it would take it first.
    cluster.node(1)?.write_file("/run/go", "")?;
    slurm.wait_job(&other, "COMPLETED")?;
    let suspended = || slurm.ask(&["cat", "/tmp/suspended"]);
    slurm.wait("power saving takes n1", |_| Ok(suspended().is_ok_and(|output| output.contains("n1"))))?;
    ensure!(!suspended()?.contains("n0"), "{}", suspended()?);
    slurm.open(0, "epilog", 0)?;
    slurm.wait_unheld(0)?;
    slurm.wait("power saving takes n0", |_| Ok(suspended()?.contains("n0")))?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}
