//! The edge under a real Flux, with real agents: each job has its prolog and its epilog once, and its nodes are free
//! when the job and the epilog have ended.

use anyhow::{Result, ensure};
use perilog_tests::LIMIT;
use perilog_tests::flux::{self, Flux};

const ALL: &[u32] = &[0, 1, 2, 3];
const STORY: [&str; 10] = [
    "alloc",
    "prolog-start",
    "prolog-finish",
    "start",
    "finish",
    "epilog-start",
    "release",
    "epilog-finish",
    "free",
    "clean",
];

/// A job of a guest (a user who does not own the Flux instance) runs on all nodes. Prolog and epilog run once on each
/// node, with Flux's variables of the job, such as FLUX_JOB_ID.
#[test]
fn a_job_has_its_prolog_and_its_epilog_once() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let ran = ["sh", "-c", "echo $(hostname) >>/tmp/ran"];
    let job = flux.submit(4, &[], &ran)?;
    flux.wait_clean(&job)?;
    ensure!(flux.story(&job)? == STORY, "{:?}", flux.story(&job)?);
    ensure!(flux.result(&job)? == "COMPLETED", "{}", flux.result(&job)?);
    flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
    let plain = flux::plain(&job);
    for node in cluster.nodes() {
        ensure!(node.read_file("/tmp/ran")?.trim() == node.name());
        let reported = node.read_file("/var/lib/ledger/flux")?;
        for action in ["prolog", "epilog"] {
            let line = format!("{action} {plain} ƒ{} 64001 1-4", plain.trim_start_matches('f'));
            ensure!(reported.lines().filter(|of| **of == line).count() == 1, "{line}: {reported}");
        }
    }
    flux.assert_idle()
}

/// An operator stops the edge during a prolog: `status` reports the missing edge until it is back. The
/// edge's journal has each step once, with job and hosts.
#[test]
fn a_stopped_edge_is_missed_while_its_jobs_wait() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.hold("prolog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "prolog", &[0, 1])?;
    let is_missed =
        || Ok::<_, anyhow::Error>(cluster.perilog(&["status"])?.ok()?.contains("no edge is connected for flux"));
    ensure!(!is_missed()?, "the edge is there");
    flux.stop_edge()?;
    flux.wait("the controller misses the edge", |_| is_missed())?;
    flux.start_edge()?;
    flux.wait("the controller has the edge again", |_| Ok(!is_missed()?))?;
    flux.release_scripts("prolog")?;
    flux.wait_clean(&job)?;
    flux.wait("all is logged", |flux| Ok(flux.edge_log()?.contains("epilog is over")))?;
    let log = flux.edge_log()?;
    let name = flux::plain(&job);
    for step in ["prolog begins", "prolog is over: status 0", "epilog begins", "epilog is over: status 0"] {
        let line = format!("{name} on n[0-1]: {step}");
        ensure!(log.lines().filter(|of| **of == line).count() == 1, "{line}:\n{log}");
    }
    flux.assert_idle()
}

/// The controller's configuration does not name the edge's group: the edge says which key is missing, where, and what
/// to type. `doctor` finds the plugin, both loaded and in Flux's configuration, and reports when the configuration has
/// lost it.
#[test]
fn what_a_site_has_left_out_is_named() -> Result<()> {
    let cluster = flux::edge_cluster(1).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let node = flux.rank_0()?;
    let doctor = || Ok::<_, anyhow::Error>(cluster.perilog(&["doctor", "controller"])?.stdout);
    let output = doctor()?;
    for part in [
        "perilog-hold.so is loaded\n",
        "the broker of rank 0 loads perilog-hold.so when it starts again",
        "starts jobs as",
    ] {
        ensure!(output.contains(part), "no {part:?} in {output}");
    }
    node.write_file("/etc/perilog/controller.d/edge.toml", "[edge]\ndrains = true\n")?;
    node.systemctl(&["restart", "perilog-controller"])?;
    let named =
        ["[edge]", "group = \"flux\"", "/etc/perilog/controller.d/edge.toml", "systemctl restart perilog-controller"];
    flux.wait("the edge names the key", |flux| {
        let log = flux.edge_log()?;
        Ok(log.lines().any(|line| named.iter().all(|part| line.contains(part))))
    })?;
    ensure!(doctor()?.contains("[edge] group is not set"), "{}", doctor()?);
    node.sh("sed -i '/perilog-hold/d' $(grep -rl perilog-hold /etc/flux/system /usr/local/etc/flux 2>/dev/null)")?;
    flux.ask(&["jobtap", "remove", "perilog-hold.so"])?;
    let output = doctor()?;
    for part in ["perilog-hold.so is not loaded", "does not load perilog-hold.so", "flux jobtap load /usr/lib/perilog"]
    {
        ensure!(output.contains(part), "no {part:?} in {output}");
    }
    Ok(())
}

/// A prolog fails on n2. The edge drains the node before it fails the job and before the job gives the node up, so no
/// other job gets the node. A drain lifted in perilog is lifted in Flux, and the other way round.
#[test]
fn a_node_whose_prolog_failed_is_given_to_no_other_job() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.hold("prolog")?;
    flux.ends_with(2, "prolog", 3)?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_begun(&job, "prolog", ALL)?;
    let next = flux.submit(3, &[], &["true"])?;
    flux.release_scripts("prolog")?;
    flux.wait_clean(&job)?;
    flux.wait_clean(&next)?;
    ensure!(flux.result(&job)? == "FAILED" && flux.result(&next)? == "COMPLETED", "{:?}", flux.story(&next)?);
    ensure!(flux.nodes_of(&next)? == "n[0-1,3]", "{}", flux.nodes_of(&next)?);
    let exception = flux.exception(&job, "prolog")?;
    let note = exception.context["note"].as_str().unwrap_or_default();
    ensure!(exception.context["severity"] == 0 && exception.context["hosts"] == "n2", "{exception:?}");
    ensure!(note.contains("prolog failed on n2") && note.contains("exit 3"), "{note}");
    ensure!(flux.drained_at("n2")? <= exception.timestamp, "{exception:?}");
    ensure!(exception.timestamp <= flux.wait_event(&job, "prolog-finish")?.timestamp, "{:?}", flux.story(&job)?);
    flux.assert_once(&job, &[("prolog", ALL, &[0, 0, 3, 0]), ("epilog", ALL, &[])])?;
    flux.assert_once(&next, &[("prolog", &[0, 1, 3], &[]), ("epilog", &[0, 1, 3], &[])])?;
    let drained = flux.drained()?;
    ensure!(drained.len() == 1 && drained["n2"].contains("exit 3"), "{drained:?}");
    cluster.perilog(&["undrain", "n2"])?.ok()?;
    flux.wait_undrained()?;
    // The other direction: an operator lifts the drain in Flux.
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.drained()?.contains_key("n2"), "{:?}", flux.drained()?);
    flux.ask(&["resource", "undrain", "n2"])?;
    flux.wait("perilog learns of it", |_| Ok(!cluster.perilog(&["--json", "drain"])?.ok()?.contains("n2")))?;
    flux.assert_idle()
}

/// A check fails on n2, and the job tolerates the failure. The job goes on, its user reads the node and the reason, and
/// the node is drained. Without tolerance, the job fails.
#[test]
fn a_tolerated_failure_is_reported_and_the_job_goes_on() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    flux.lustre_fails(2)?;
    let job = flux.submit(4, &["--setattr=perilog.tolerate=1"], &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:?}", flux.story(&job)?);
    let reported = flux.exception(&job, "node-failure")?.context;
    ensure!(reported["severity"] == 1 && reported["hosts"] == "n2" && reported["ranks"] == "3", "{reported}");
    ensure!(
        reported["checks"][0]["check"] == "lustre" && reported["note"].as_str().unwrap_or_default().contains("lustre1")
    );
    flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
    ensure!(flux.drained()?["n2"].contains("/p/lustre1 is not mounted"), "{:?}", flux.drained()?);
    cluster.perilog(&["undrain", "n2"])?.ok()?;
    flux.wait_undrained()?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "FAILED", "{:?}", flux.story(&job)?);
    ensure!(flux.exception(&job, "prolog")?.context["severity"] == 0);
    Ok(())
}

/// Two checks fail on one node each, and the job tolerates one node for each check. One check that fails on two nodes
/// exceeds this tolerance, although `perilog.tolerate` would allow two nodes.
#[test]
fn a_check_has_a_tolerance_of_its_own() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 2\n")?;
    let terms = ["tolerate=2", "tolerate-check.lustre=1", "tolerate-check.gpu=1"];
    let terms = terms.map(|term| format!("--setattr=perilog.{term}"));
    let terms: Vec<&str> = terms.iter().map(String::as_str).collect();
    flux.lustre_fails(2)?;
    flux.gpu_fails(3)?;
    let job = flux.submit(4, &terms, &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    ensure!(flux.drained()?.keys().eq(["n2", "n3"]), "{:?}", flux.drained()?);
    cluster.perilog(&["undrain", "n2,n3"])?.ok()?;
    flux.wait_undrained()?;
    flux.lustre_fails(1)?;
    cluster.node(3)?.sh("rm /run/gpu-prolog")?;
    let job = flux.submit(4, &terms, &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "FAILED", "{:#?}", flux.events(&job)?);
    let exception = flux.exception(&job, "prolog")?.context;
    ensure!(exception["severity"] == 0 && exception["hosts"] == "n[1-2]", "{exception}");
    Ok(())
}

/// The site's configuration, not the script, says that a job may tolerate the script's failure.
#[test]
fn a_script_that_the_site_calls_tolerable_may_fail() -> Result<()> {
    let tolerable = "[action.prolog.script.\"10-held\"]\ntolerable = true\n";
    let cluster = flux::edge_cluster(2).agent(tolerable).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    flux.ends_with(1, "prolog", 3)?;
    let job = flux.submit(2, &["--setattr=perilog.tolerate=1"], &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let reported = flux.exception(&job, "node-failure")?.context;
    ensure!(reported["severity"] == 1 && reported["hosts"] == "n1", "{reported}");
    ensure!(flux.drained()?["n1"].contains("prolog 10-held: tolerable (exit 3)"), "{:?}", flux.drained()?);
    // The ledger's comparison counts exit 3 as a failure.
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.len() == 4, "{runs:?}");
    Ok(())
}

/// An epilog fails on n1 of a job that has completed. The node is drained before the job's nodes are free, and the user
/// reads the reason.
#[test]
fn a_node_whose_epilog_failed_is_drained_before_it_is_free() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.ends_with(1, "epilog", 4)?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_clean(&job)?;
    let exception = flux.exception(&job, "epilog")?;
    ensure!(exception.context["severity"] == 2 && exception.context["hosts"] == "n1", "{exception:?}");
    ensure!(flux.drained_at("n1")? <= flux.wait_event(&job, "free")?.timestamp, "{:?}", flux.story(&job)?);
    ensure!(flux.drained()?.keys().eq(["n1"]), "{:?}", flux.drained()?);
    flux.assert_once(&job, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[0, 4])])
}

/// flux-core #5734: a user cancels a job in its prolog. The scripts stop, the epilog follows, and no node is drained,
/// not even that of rank 0.
#[test]
fn a_cancel_in_the_prolog_drains_nobody() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.hold("prolog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "prolog", &[0, 1])?;
    flux.run_as("alice", &["cancel", &job])?.ok()?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "CANCELED", "{:?}", flux.story(&job)?);
    flux.release_scripts("prolog")?;
    let ledger = cluster.ledger()?;
    let began = |action| ledger.of_job(&flux::plain(&job)).iter().filter(|(key, _)| key.action == action).count();
    ensure!((began("prolog"), began("epilog")) == (2, 2), "{ledger:?}");
    flux.assert_idle()
}

/// A quiesced controller begins no prolog: jobs wait without a limit, and no job fails.
#[test]
fn a_quiet_controller_fails_no_job() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    cluster.perilog(&["quiesce", "--reason", "new release"])?.ok()?;
    let jobs = [flux.submit(1, &[], &["true"])?, flux.submit(1, &[], &["true"])?];
    flux.wait("the edge learns that nothing is begun", |flux| Ok(flux.edge_log()?.contains("perilog resume")))?;
    for job in &jobs {
        ensure!(flux.story(job)? == ["alloc", "prolog-start"], "{:?}", flux.story(job)?);
    }
    cluster.perilog(&["resume"])?.ok()?;
    for job in &jobs {
        flux.wait_clean(job)?;
        ensure!(flux.result(job)? == "COMPLETED", "{:?}", flux.story(job)?);
    }
    flux.assert_idle()
}

/// A milestone that the scripts report is an event of the job, and the job's user waits for it. The edge posts no
/// milestone whose name would be an instruction to Flux, such as `free`.
#[test]
fn a_milestone_is_an_event_that_a_user_waits_for() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.reach("epilog", "free data-out")?;
    flux.hold("epilog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_event(&job, "data-out")?;
    flux.run_as("alice", &["job", "wait-event", "--timeout=60", &job, "data-out"])?.ok()?;
    ensure!(!flux.story(&job)?.contains(&"free".to_owned()), "{:?}", flux.story(&job)?);
    flux.release_scripts("epilog")?;
    flux.wait_clean(&job)?;
    let reported = flux.story(&job)?.iter().filter(|name| *name == "data-out").count();
    ensure!(reported == 1, "{:?}", flux.story(&job)?);
    flux.assert_once(&job, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[])])?;
    flux.assert_idle()
}

/// An operator runs a check on the nodes of a running job, and the check fails on n1. The job goes on, its user reads
/// of the failure, and the node is drained.
#[test]
fn a_node_that_goes_bad_while_the_job_runs_is_reported() -> Result<()> {
    let check = "[ ! -e /run/gone ] || perilog-report tolerable --check gpu 'gpu0 is gone'";
    let cluster = flux::edge_cluster(2).script("check", "10-gpu", check).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    let until_file = ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.05; done"];
    let job = flux.submit(2, &["--setattr=perilog.tolerate=1"], &until_file)?;
    flux.wait_event(&job, "start")?;
    cluster.node(1)?.write_file("/run/gone", "")?;
    cluster.perilog(&["run", "check", "--job", &flux::plain(&job)])?.ok()?;
    let reported = flux.wait_event(&job, "exception")?.context;
    ensure!(reported["type"] == "node-failure" && reported["severity"] == 1 && reported["hosts"] == "n1", "{reported}");
    ensure!(
        reported["checks"][0]["message"] == "gpu0 is gone" && reported["perilog"]["attempt"].is_string(),
        "{reported}"
    );
    ensure!(!flux.story(&job)?.contains(&"finish".to_owned()), "{:?}", flux.story(&job)?);
    ensure!(flux.drained()?["n1"].contains("gpu0 is gone"), "{:?}", flux.drained()?);
    cluster.nodes().iter().try_for_each(|node| node.write_file("/tmp/end", ""))?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let exceptions = flux.story(&job)?.iter().filter(|name| *name == "exception").count();
    ensure!(exceptions == 1, "{:#?}", flux.events(&job)?);
    Ok(())
}

/// A prolog hangs on one of two nodes, past its limit, and ignores SIGTERM. A job that tolerates one node starts
/// meanwhile, and the node is drained; the script goes on, is shown as long as it lives, and the epilog comes after it.
#[test]
fn a_straggler_in_the_prolog_does_not_hold_the_job() -> Result<()> {
    let limit = format!("[action.prolog]\ntimeout = \"{LIMIT}\"\n");
    let cluster = flux::edge_cluster(2).agent(&limit).controller("tolerate-timeout = true\n").boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    flux.hold_on(1, "prolog")?;
    cluster.node(1)?.write_file("/run/deaf", "")?;
    let job = flux.submit(2, &["--setattr=perilog.tolerate=1"], &["true"])?;
    let finish = flux.wait_event(&job, "finish")?;
    ensure!(finish.context["status"] == 0, "{finish:?}");
    let is_alive = |run: &perilog_tests::ledger::Run| run.node == "n1" && run.ended.is_none();
    let ledger = cluster.ledger()?;
    let of_job = ledger.of_job(&flux::plain(&job));
    ensure!(of_job.iter().any(|(key, run)| key.action == "prolog" && is_alive(run)), "{ledger:?}");
    let shown = cluster.perilog(&["ps"])?.ok()?;
    ensure!(shown.contains("it still runs, although its task has ended: timeout") && shown.contains("n1"), "{shown}");
    let reported = flux.exception(&job, "node-failure")?.context;
    ensure!(reported["severity"] == 1 && reported["hosts"] == "n1", "{reported}");
    ensure!(flux.drained()?["n1"].contains("past its limit"), "{:?}", flux.drained()?);
    ensure!(flux.drained_at("n1")? <= flux.wait_event(&job, "start")?.timestamp, "{:?}", flux.story(&job)?);
    flux.release_scripts("prolog")?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    let runs = cluster.runs(&flux::plain(&job))?;
    ensure!(runs.len() == 4, "{runs:?}");
    Ok(())
}
