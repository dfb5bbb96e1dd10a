//! External actions under a real Flux: jobs that ask for a rabbit in their jobspec wait for the reports of its service,
//! before they start and before their nodes are free. The test reports as a service would.

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::flux::{self, Flux};
use serde_json::Value;

const BOTH: &[u32] = &[0, 1];
const SITE: &str = "/etc/perilog/edge.d/rabbit.toml";
const ASKS: [&str; 1] = ["--setattr=dw=#DW jobdw"];

/// Reports to the controller on an external action of the job, as the action's service would.
fn report(cluster: &Cluster, job: &str, words: &[&str]) -> Result<()> {
    cluster.perilog(&[&["action", "report", &flux::plain(job)], words].concat())?.ok().map(drop)
}

/// Waits until the controller shows an external action of the job, which the edge has started.
fn wait_started(flux: &Flux<'_>, cluster: &Cluster, job: &str, action: &str) -> Result<()> {
    flux.wait(&format!("{action} of {job} is open"), |_| {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        let of_job = |line: &str| line.contains(&flux::plain(job)) && line.contains(action);
        Ok(ps.lines().any(|line| of_job(line) && line.contains("external")))
    })
}

/// Returns the contexts of all events with this name in perilog's log of the job.
fn reported(cluster: &Cluster, job: &str, name: &str) -> Result<Vec<Value>> {
    let text = cluster.perilog(&["--json", "events", &flux::plain(job)])?.ok()?;
    let events: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>().context(text.clone())?;
    Ok(events.into_iter().filter(|event| event["name"] == name).map(|event| event["context"].clone()).collect())
}

/// A rabbit's service stages in before the job and copies out after it. The job neither starts nor ends without the
/// service's reports, even if the edge is killed. A job that asks for no rabbit waits for none.
#[test]
fn a_job_waits_for_its_rabbit() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    cluster.controller()?.write_file(
        SITE,
        "[external.stage]\nwhen = \"attributes.system.dw\"\nresources = [\"rabbit\"]\nlease = \"10m\"\n\
         [external.copy]\nwhen = \"attributes.system.dw\"\nat = \"epilog\"\nresources = [\"rabbit\"]\nlease \
         = \"10m\"\n",
    )?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.wait_clean(&flux.submit(2, &[], &["true"])?)?;
    let job = flux.submit(2, &ASKS, &["true"])?;
    wait_started(&flux, &cluster, &job, "stage")?;
    flux.wait("the scripts of the prolog are done", |_| {
        Ok(reported(&cluster, &job, "verdict")?.iter().any(|verdict| verdict["action"] == "prolog"))
    })?;
    flux.kill_edge()?;
    flux.wait_edge()?;
    ensure!(flux.story(&job)? == ["alloc", "prolog-start"], "{:?}", flux.story(&job)?);
    report(&cluster, &job, &["stage", "ok"])?;
    wait_started(&flux, &cluster, &job, "copy")?;
    flux.wait("the scripts of the epilog are done", |_| {
        Ok(reported(&cluster, &job, "verdict")?.iter().any(|verdict| verdict["action"] == "epilog"))
    })?;
    ensure!(!flux.story(&job)?.contains(&"epilog-finish".to_owned()), "{:?}", flux.story(&job)?);
    report(&cluster, &job, &["copy", "ok"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.len() == 4, "{runs:?}");
    flux.assert_idle()
}

/// A service reports a bad node, while the scripts there end well: a job may tolerate that failure like a failed check.
/// If the service reports a failed resource, the job fails, and its user reads which one.
#[test]
fn a_service_names_bad_nodes_and_resources() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let rabbit = "[external.rabbit]\nwhen = \"attributes.system.dw\"\nnodes = true\nlease = \"10m\"\n";
    cluster.controller()?.write_file(SITE, rabbit)?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    let job = flux.submit(2, &[ASKS[0], "--setattr=perilog.tolerate=1"], &["true"])?;
    wait_started(&flux, &cluster, &job, "rabbit")?;
    // The service reports on n0 alone: the scripts of n0 begin, those of n1 wait.
    report(&cluster, &job, &["rabbit", "ok", "--ranks", "n0"])?;
    flux.wait_begun(&job, "prolog", &[0])?;
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.len() == 1, "{runs:?}");
    let check = ["--check", "rabbit-mount", "--message", "no mount on n1"];
    report(&cluster, &job, &[&["rabbit", "tolerable", "--ranks", "n1"], &check[..]].concat())?;
    report(&cluster, &job, &["rabbit", "ok", "--resources", "rabbit"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let reported = flux.exception(&job, "node-failure")?.context;
    ensure!(reported["severity"] == 1 && reported["hosts"] == "n1" && reported["action"] == "rabbit", "{reported}");
    ensure!(reported["checks"][0]["message"] == "no mount on n1", "{reported}");
    ensure!(flux.drained()?["n1"].contains("no mount on n1"), "{:?}", flux.drained()?);
    cluster.perilog(&["undrain", "n1"])?.ok()?;
    flux.wait_undrained()?;
    let job = flux.submit(2, &ASKS, &["true"])?;
    wait_started(&flux, &cluster, &job, "rabbit")?;
    report(&cluster, &job, &["rabbit", "ok", "--ranks", "n[0-1]"])?;
    let full = ["--check", "space", "--message", "none is left"];
    report(&cluster, &job, &[&["rabbit", "failed", "--resources", "rabbit"], &full[..]].concat())?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "FAILED", "{:#?}", flux.events(&job)?);
    let reported = flux.exception(&job, "rabbit")?.context;
    let resource = reported["resources"]["rabbit"].as_str().unwrap_or_default();
    ensure!(reported["severity"] == 0 && resource.contains("space: none is left"), "{reported}");
    flux.assert_idle()
}

/// Epilogs run as Flux's housekeeping, and the service of the job's rabbit (a named resource) reports node by node.
/// Each node is released when the rabbit's work and the scripts for that node are done, and the next job gets it. The
/// released fragments are disjoint, and the last is marked as final.
#[test]
fn each_report_of_a_rabbit_frees_its_own_part() -> Result<()> {
    let cluster = flux::edge_cluster(2).controller("[action.copy]\nrelease = \"0\"\n").boot()?;
    let copy = "[external.copy]\nwhen = \"attributes.system.dw\"\nat = \"epilog\"\nresources = [\"rabbit\"]\n\
        nodes = true\nlease = \"10m\"\n";
    cluster.controller()?.write_file(SITE, copy)?;
    let flux = Flux::with_housekeeping(&cluster, "0")?;
    let free = |nodes: &str| {
        flux.wait(&format!("{nodes} is free"), |flux| {
            Ok(flux.ask(&["resource", "list", "--states=free", "-no", "{nodelist}"])?.trim() == nodes)
        })
    };
    let job = flux.submit(2, &ASKS, &["true"])?;
    flux.wait_clean(&job)?;
    wait_started(&flux, &cluster, &job, "copy")?;
    report(&cluster, &job, &["copy", "ok", "--ranks", "n0"])?;
    free("n0")?;
    let next = flux.submit(1, &[], &["true"])?;
    flux.wait_clean(&next)?;
    ensure!(flux.nodes_of(&next)? == "n0", "{}", flux.nodes_of(&next)?);
    free("n0")?;
    report(&cluster, &job, &["copy", "ok", "--ranks", "n1"])?;
    // The nodes are done before the rabbit is.
    free("n[0-1]")?;
    report(&cluster, &job, &["copy", "ok", "--resources", "rabbit"])?;
    flux.wait("the rabbit is released", |_| {
        Ok(reported(&cluster, &job, "release")?.iter().any(|release| release["final"] == true))
    })?;
    let released: Vec<String> = reported(&cluster, &job, "release")?
        .iter()
        .map(|release| format!("{} {} {}", release["ranks"], release["resources"], release["final"]))
        .collect();
    ensure!(released == ["\"1\" [] false", "\"2\" [] false", "\"\" [\"rabbit\"] true"], "{released:?}");
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.len() == 2 * BOTH.len(), "{runs:?}");
    flux.assert_idle()
}
