//! Saved state of slurmctld. slurmctld saves a change a few seconds later; a kill before that loses the change. A test
//! keeps a copy of the saved state, and later puts the copy in place of the newer state.

use anyhow::Result;

use super::Slurm;
use crate::cluster::Cluster;

/// Directory of the state that slurmctld saves (StateSaveLocation).
const STATE: &str = "/var/lib/slurm/slurmctld";
/// Copy of [`STATE`] that [`Slurm::keep_saved`] makes.
const KEPT: &str = "/var/lib/slurm/kept";

impl Slurm<'_> {
    /// Submits a batch job of this name, which Slurm holds until [`release`](Self::release); returns the job's id.
    pub fn submit_held(&self, name: &str, body: &str) -> Result<String> {
        let (name, wrap) = (format!("--job-name={name}"), format!("--wrap={body}"));
        let sbatch = ["sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", &name, &wrap];
        self.ask(&[&["runuser", "-u", "alice", "--"], &sbatch[..]].concat())
    }

    pub fn release(&self, job: &str) -> Result<()> {
        self.ask(&["scontrol", "release", job]).map(drop)
    }

    /// Kills slurmctld with kill -9; returns when the process has ended.
    pub fn kill_slurmctld(&self) -> Result<()> {
        let node = self.control()?;
        Cluster::kill_unit(node, "slurmctld.service")?;
        self.wait("slurmctld is gone", |_| {
            let state = node.run(&["systemctl", "is-active", "slurmctld.service"])?.stdout;
            Ok(matches!(state.trim(), "failed" | "inactive"))
        })
    }

    /// Waits until slurmctld has saved its present state to disk, which it does a few seconds after a change.
    pub fn wait_saved(&self) -> Result<()> {
        // The change is a further job, and the saved state has the names of all jobs.
        let name = self.ask(&["date", "+saved-%s%N"])?;
        self.submit_held(&name, "true")?;
        self.wait("slurmctld has saved its state", |slurm| {
            Ok(slurm.control()?.run(&["grep", "-q", &name, &format!("{STATE}/job_state")])?.code() == Some(0))
        })
    }

    /// Keeps a copy of the state that slurmctld has saved, for [`lose_unsaved`](Self::lose_unsaved).
    pub fn keep_saved(&self) -> Result<()> {
        self.wait_saved()?;
        self.control()?.sh(&format!("rm -rf {KEPT}; cp -a {STATE} {KEPT}")).map(drop)
    }

    /// Kills slurmctld with kill -9, as if slurmctld had saved nothing since [`keep_saved`](Self::keep_saved). Returns
    /// when the process has ended.
    pub fn lose_unsaved(&self) -> Result<()> {
        self.kill_slurmctld()?;
        self.control()?.sh(&format!("rm -rf {STATE}; cp -a {KEPT} {STATE}")).map(drop)
    }

    /// Starts slurmctld; returns when slurmctld answers.
    pub fn start_slurmctld(&self) -> Result<()> {
        self.control()?.systemctl(&["start", "slurmctld"])?;
        self.wait("slurmctld answers", |slurm| {
            Ok(slurm.control()?.run(&["scontrol", "ping"])?.stdout.contains("is UP"))
        })
    }
}
