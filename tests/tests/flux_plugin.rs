//! perilog's plugin under a real Flux, without the edge. The plugin holds a job by two references, of the prolog and of
//! the epilog, until each is finished. The test finishes the references as the edge would.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};
use serde_json::json;

const HELD_IN_PROLOG: [&str; 2] = ["alloc", "prolog-start"];

/// The plugin holds a job by a prolog reference and an epilog reference. The job begins when the first is finished; its
/// nodes are free when the second is finished.
#[test]
fn a_job_goes_on_when_its_references_are_finished() -> Result<()> {
    let cluster = flux::cluster(2).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_event(&job, "prolog-start")?;
    ensure!(flux.held(&job)? == held("open", "none"), "{:?}", flux.held(&job)?);
    for (what, errnum) in [("epilog", 2), ("nonsense", 71), ("prolog", 0), ("prolog", 114)] {
        let answer = flux.finish(&job, what, 0)?;
        ensure!(answer.errnum == errnum, "{what}: {answer:?}");
    }
    flux.wait_event(&job, "epilog-start")?;
    flux.wait_event(&job, "release")?;
    ensure!(flux.held(&job)? == held("finished", "open"), "{:?}", flux.held(&job)?);
    // The job's user may neither finish the job nor list the references of others.
    for service in ["finish", "list"] {
        let payload = json!({"id": 1, "what": "epilog", "status": 0});
        let answer = flux.rpc_as("alice", &format!("job-manager.perilog-hold.{service}"), &payload)?;
        ensure!(answer.errnum == 1, "{service}: {answer:?}");
    }
    ensure!(!flux.story(&job)?.contains(&"free".to_owned()), "{:?}", flux.story(&job)?);
    ensure!(flux.finish(&job, "epilog", 256)?.errnum == 0, "the epilog is open");
    flux.wait_event(&job, "clean")?;
    let story = ["alloc", "prolog-start", "prolog-finish", "start", "finish", "epilog-start", "release"];
    let story = [&story[..], &["epilog-finish", "free", "clean"]].concat();
    ensure!(flux.story(&job)? == story, "{:?}", flux.story(&job)?);
    ensure!(flux.held(&job)?.is_none() && flux.finish(&job, "epilog", 0)?.errnum == 2, "the job is gone");
    Ok(())
}

/// A cancel in the prolog leaves both the prolog reference and the epilog reference open: the plugin holds the job
/// until both are finished.
#[test]
fn a_cancelled_job_is_held_until_both_are_finished() -> Result<()> {
    let cluster = flux::cluster(1).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = flux.submit(1, &[], &["true"])?;
    flux.wait_event(&job, "prolog-start")?;
    flux.ask(&["cancel", &job])?;
    flux.wait_event(&job, "epilog-start")?;
    ensure!(flux.held(&job)? == held("open", "open"), "{:?}", flux.held(&job)?);
    ensure!(flux.finish(&job, "prolog", 15)?.errnum == 0, "the prolog is open");
    ensure!(!flux.story(&job)?.contains(&"free".to_owned()), "{:?}", flux.story(&job)?);
    ensure!(flux.finish(&job, "epilog", 0)?.errnum == 0, "the epilog is open");
    flux.wait_event(&job, "clean")?;
    ensure!(!flux.story(&job)?.contains(&"start".to_owned()), "{:?}", flux.story(&job)?);
    Ok(())
}

/// kill -9 of rank 0, first in the prolog and then in the epilog. The plugin holds a job by a prolog reference and an
/// epilog reference. The job's eventlog keeps both, so the reloaded plugin can finish them.
#[test]
fn references_outlive_a_kill_of_rank_0() -> Result<()> {
    let cluster = flux::cluster(2).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_event(&job, "prolog-start")?;
    flux.restart_rank_0()?;
    ensure!(flux.held(&job)? == held("before", "none"), "{:?}", flux.held(&job)?);
    ensure!(flux.story(&job)? == HELD_IN_PROLOG, "{:?}", flux.story(&job)?);
    ensure!(flux.finish(&job, "prolog", 0)?.errnum == 0 && flux.finish(&job, "prolog", 0)?.errnum == 114, "once");
    flux.wait_event(&job, "release")?;
    flux.restart_rank_0()?;
    ensure!(flux.held(&job)? == held("before", "before"), "{:?}", flux.held(&job)?);
    ensure!(flux.finish(&job, "epilog", 0)?.errnum == 0, "the epilog is open");
    flux.wait_event(&job, "clean")?;
    let last = flux.ask(&["jobs", "-no", "{result}", &job])?;
    ensure!(last.trim() == "COMPLETED", "{last}");
    Ok(())
}

/// The plugin is reloaded in the middle of a prolog: the new instance of the plugin takes over the job.
#[test]
fn references_outlive_a_reload_of_the_plugin() -> Result<()> {
    let cluster = flux::cluster(1).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = flux.submit(1, &[], &["true"])?;
    flux.wait_event(&job, "prolog-start")?;
    flux.ask(&["jobtap", "remove", "perilog-hold.so"])?;
    ensure!(flux.finish(&job, "prolog", 0)?.errnum == 38, "there is no such service");
    flux.ask(&["jobtap", "load", flux::PLUGIN])?;
    ensure!(flux.held(&job)? == held("before", "none"), "{:?}", flux.held(&job)?);
    ensure!(flux.finish(&job, "prolog", 0)?.errnum == 0, "the prolog is open");
    flux.wait_event(&job, "epilog-start")?;
    ensure!(flux.held(&job)? == held("finished", "open"), "{:?}", flux.held(&job)?);
    ensure!(flux.finish(&job, "epilog", 0)?.errnum == 0, "the epilog is open");
    flux.wait_event(&job, "clean").map(drop)
}

/// `flux submit` refuses bad terms and terms beyond the site's cap, and a user reads the reason. A malformed cap
/// neither keeps rank 0 from starting nor replaces a good cap.
#[test]
fn bad_terms_are_refused_at_submit() -> Result<()> {
    let cluster = flux::cluster(1).boot()?;
    let flux = Flux::start(&cluster, "[perilog]\nmax-tolerate = 2\nmax-tolerate-check = { lustre = \"10%\" }\n")?;
    let count = "expected a number of ranks, or a percentage such as \"10%\", not";
    for (term, text) in [
        ("tolerate=abc", format!("perilog.tolerate: {count} \"abc\"")),
        ("tolerate=3", "perilog.tolerate: 3 is more than the limit of this site, 2".into()),
        (
            "tolerate-check.lustre=11%",
            "perilog.tolerate-check.lustre: 11% is more than the limit of this site, \
                                       10%"
            .into(),
        ),
        ("keep=0", "perilog.keep: expected a number of ranks, at least 1, not 0".into()),
        ("keep=2", "perilog.keep: 2 is more than the number of nodes of this job, 1".into()),
        ("tolarate=1", "perilog: unknown key tolarate; known are tolerate, keep and tolerate-check.NAME".into()),
    ] {
        let output = flux.try_submit(1, &[&format!("--setattr=perilog.{term}")], &["true"])?;
        ensure!(output.code() != Some(0) && output.stderr.contains(&text), "{term}: {output:?}");
    }
    let good = ["--setattr=perilog.tolerate=2", "--setattr=perilog.tolerate-check.lustre=10%"];
    flux.submit(1, &good, &["true"])?;
    flux.site("[perilog]\nmax-tolerate = 4\n")?;
    flux.ask(&["config", "reload"])?;
    flux.submit(1, &["--setattr=perilog.tolerate=3"], &["true"])?;
    flux.site("[perilog]\nmax-tolerate = \"many\"\n")?;
    let reload = flux.run_as("flux", &["config", "reload"])?;
    ensure!(reload.code() != Some(0) && reload.stderr.contains("[perilog] max-tolerate: expected"), "{reload:?}");
    flux.submit(1, &["--setattr=perilog.tolerate=3"], &["true"])?;
    flux.restart_rank_0()?;
    let output = flux.try_submit(1, &["--setattr=perilog.tolerate=1"], &["true"])?;
    ensure!(output.stderr.contains("1 is more than the limit of this site, 0"), "{output:?}");
    flux.submit(1, &[], &["true"]).map(drop)
}

/// The site allows tolerance only to a job that is a Flux instance of its own, which gives the bad nodes no work.
#[test]
fn tolerance_may_be_for_instances_only() -> Result<()> {
    let cluster = flux::cluster(1).boot()?;
    let flux = Flux::start(&cluster, "[perilog]\ntolerate-needs-instance = true\n")?;
    let tolerates = "--setattr=perilog.tolerate=1";
    let refused = flux.try_submit(1, &[tolerates], &["true"])?;
    ensure!(refused.code() != Some(0) && refused.stderr.contains("use flux batch or flux alloc"), "{refused:?}");
    flux.submit(1, &[], &["true"])?;
    flux.submit(1, &["--setattr=perilog.tolerate=0"], &["true"])?;
    flux.rank_0()?.write_script("/tmp/batch.sh", "#!/bin/sh\n")?;
    for instance in [&["batch", "-N1", tolerates, "/tmp/batch.sh"][..], &["submit", "-N1", tolerates, "flux", "start"]]
    {
        flux.run_as("alice", instance)?.ok()?;
    }
    Ok(())
}

fn held(prolog: &str, epilog: &str) -> Option<(String, String)> {
    Some((prolog.to_owned(), epilog.to_owned()))
}
