//! Signs of life of a job's tasks. Each task of such a test appends the time, by the ledger's clock, to `/tmp/alive` on
//! its node while it lives.

use anyhow::{Context, Result, ensure};

use super::{Flux, plain};

const ALIVE: &str = "/tmp/alive";

impl Flux<'_> {
    /// Waits until tasks have given a sign of life on each node.
    pub fn wait_alive(&self) -> Result<()> {
        self.wait("tasks live on each node", |flux| {
            let alive = flux.cluster.nodes().iter().map(|node| Ok(node.try_read_file(ALIVE)?.is_some()));
            alive.collect::<Result<Vec<bool>>>().map(|alive| alive.iter().all(|alive| *alive))
        })
    }

    /// Asserts that on each node the job's epilog began after the last sign of life of the job's tasks.
    pub fn assert_epilog_after_tasks(&self, job: &str) -> Result<()> {
        let ledger = self.cluster.ledger()?;
        for node in self.cluster.nodes() {
            let alive = node.read_file(ALIVE)?;
            // SIGKILL may have cut the last line.
            let last = alive.rsplit_once('\n').and_then(|(lines, _)| lines.lines().last());
            let last: f64 = last.context("a sign of life")?.parse()?;
            let of_job = ledger.of_job(&plain(job));
            let epilog = of_job.iter().find(|(key, run)| key.action == "epilog" && run.node == node.name());
            let (_, epilog) = epilog.context("an epilog")?;
            ensure!(
                epilog.started >= last,
                "{}: tasks lived at {last}, epilog began at {}",
                node.name(),
                epilog.started
            );
        }
        Ok(())
    }
}
