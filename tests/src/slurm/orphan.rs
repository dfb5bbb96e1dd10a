//! Orphans under Slurm: scripts that Slurm no longer waits for, and the reservations with which they hold their node.

use anyhow::Result;

use super::{Slurm, value};

impl Slurm<'_> {
    /// Returns the names of the reservations with which perilog's orphans hold node `n{rank}`.
    pub fn holds(&self, rank: usize) -> Result<Vec<String>> {
        let shown = self.ask(&["scontrol", "--oneliner", "show", "reservation"])?;
        let on_node = format!(" Nodes={} ", self.cluster.node(rank)?.name());
        let ours = shown.lines().filter(|line| line.contains(&on_node));
        let names = ours.filter_map(|line| value(line, "ReservationName"));
        Ok(names.filter(|name| name.starts_with("perilog-orphaned-")).collect())
    }

    /// Waits until the orphaned script of this job and action holds node `n{rank}`.
    pub fn wait_held(&self, rank: usize, job: &str, action: &str) -> Result<()> {
        let begins = format!("perilog-orphaned-{action}-{job}-");
        self.wait(&format!("{action} of {job} holds n{rank}"), |slurm| {
            Ok(slurm.holds(rank)?.iter().any(|name| name.starts_with(&begins)))
        })
    }

    /// Waits until no orphaned script holds node `n{rank}`.
    pub fn wait_unheld(&self, rank: usize) -> Result<()> {
        self.wait(&format!("no orphan holds n{rank}"), |slurm| Ok(slurm.holds(rank)?.is_empty()))
    }

    /// Waits until a prolog whose slurmd has died holds n0; then starts slurmd, and lets the prolog end. Returns when
    /// Slurm has requeued the job and n0 is free.
    pub fn requeued_after_a_death(&self, job: &str) -> Result<()> {
        self.wait_held(0, job, "prolog")?;
        self.start_slurmd(0)?;
        self.open(0, "prolog", 0)?;
        self.wait_requeued(job)?;
        self.wait_unheld(0)
    }

    /// Has node `n{rank}` run the shell command `first` before each scontrol whose arguments match the pattern `of`.
    pub fn before_scontrol(&self, rank: usize, of: &str, first: &str) -> Result<()> {
        let text = format!("case \"$*\" in\n{of}) {first} ;;\nesac\nexec /usr/bin/scontrol \"$@\"");
        self.cluster.node(rank)?.write_script("/usr/local/sbin/scontrol", text)
    }
}
