//! A site with more jobs than one page of the edge's list has: the edge was away while they began, and comes back.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};

/// Number of jobs, of one core each: nine pages of the list, and more than one request of 1 MiB could list.
const JOBS: usize = 9_000;
/// Number of jobs that one command submits.
const A_COMMAND: usize = 100;

#[test]
fn an_edge_with_many_jobs_comes_back() -> Result<()> {
    let cluster = flux::edge_cluster(1).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.has_cores(JOBS)?;
    flux.stop_edge()?;
    flux.hold("prolog")?;
    // One command for all takes Flux longer than a command may take beside other tests.
    for _ in 0..JOBS / A_COMMAND {
        flux.ask(&["submit", "--quiet", &format!("--cc=1-{A_COMMAND}"), "-n1", "true"])?;
    }
    let running = |flux: &Flux<'_>| flux.ask(&["jobs", "--count=0", "--no-header", "--filter=run", "--format={id}"]);
    flux.wait("all jobs wait for their prologs", |flux| Ok(running(flux)?.lines().count() == JOBS))?;
    // The edge lists the jobs, which the controller does not know, and follows the controller's feed.
    flux.start_edge()?;
    flux.wait_edge()?;
    let status = cluster.perilog(&["status", "--json"])?.ok()?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    ensure!(status["status"]["jobs"] == JOBS, "{status}");
    // After a kill, the edge lists jobs that the controller has.
    flux.kill_edge()?;
    flux.wait_edge()
}
