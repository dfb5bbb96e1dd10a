//! The edge under a real Flux, and an operator who resolves an epilog that hangs, or ends perilog's hold on a job while
//! the edge is down.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};

const BOTH: &[u32] = &[0, 1];

/// An epilog hangs on n1 of a completed job. An operator resolves it, and the node is drained before Flux frees it. The
/// script goes on, and perilog reports its own end later.
#[test]
fn an_epilog_that_hangs_loses_nothing_and_is_settled_by_a_resolution() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let name = flux::plain;
    flux.hold("epilog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "epilog", BOTH)?;
    cluster.node(0)?.sh("rm /run/hold-epilog")?;
    ensure!(flux.wait_event(&job, "finish")?.context["status"] == 0, "{:?}", flux.story(&job)?);
    cluster.bed().wait_until("the controller knows that it hangs on n1 alone", flux::SOON, || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("running") && ps.contains(" n1 "))
    })?;
    ensure!(!flux.story(&job)?.contains(&"epilog-finish".to_owned()), "{:?}", flux.story(&job)?);
    cluster.perilog(&["resolve", &name(&job), "epilog", "--ranks", "n1", "--reason", "hangs in umount"])?.ok()?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    ensure!(flux.exception(&job, "epilog")?.context["severity"] == 2);
    ensure!(flux.drained_at("n1")? <= flux.wait_event(&job, "free")?.timestamp, "{:?}", flux.story(&job)?);
    ensure!(flux.drained()?.keys().eq(["n1"]), "{:?}", flux.drained()?);
    flux.release_scripts("epilog")?;
    cluster.bed().wait_until("its own end is reported late", flux::SOON, || {
        let job = cluster.job(&name(&job))?;
        let actions = job.attempts.iter().flat_map(|attempt| &attempt.actions);
        let mut late = actions.flat_map(|action| &action.ended).flat_map(|rank| &rank.late);
        Ok(late.any(|late| late.outcome.to_string() == "ok"))
    })?;
    flux.assert_once(&job, &[("prolog", BOTH, &[]), ("epilog", BOTH, &[])])
}

/// A job waits in its prolog because the edge is down. `perilog-flux --drop-hold` finishes the prolog and epilog
/// references by which perilog holds the job. When the edge is back, it begins no action for the job.
#[test]
fn a_job_is_released_by_an_operator_while_the_edge_is_away() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let release = |job: &str| flux.rank_0()?.run(&["perilog-flux", "--drop-hold", job]);
    let output = release("all")?.ok()?;
    ensure!(output.contains("perilog holds nothing of any job"), "{output}");
    flux.stop_edge()?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_event(&job, "prolog-start")?;
    let output = release(&job)?.ok()?;
    ensure!(output.contains(&format!("{} on n[0-1]: prolog is released", flux::plain(&job))), "{output}");
    flux.wait_event(&job, "epilog-start")?;
    let output = release("all")?.ok()?;
    ensure!(output.contains("epilog is released"), "{output}");
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let output = release(&job)?;
    ensure!(output.code() == Some(1) && output.stderr.contains("perilog holds nothing of"), "{output}");
    flux.start_edge()?;
    flux.wait_edge()?;
    // The next job shows that the edge is at work again.
    let next = flux.submit(2, &[], &["true"])?;
    flux.wait_clean(&next)?;
    flux.assert_once(&next, &[("prolog", BOTH, &[]), ("epilog", BOTH, &[])])?;
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.is_empty(), "{runs:?}");
    flux.assert_idle()
}
