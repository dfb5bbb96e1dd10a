//! The hooks as stock Flux runs them. Debian has no Flux: what calls the hooks here is a stand-in for perilog.so and for the job manager's housekeeping,
//! with a stand-in for flux(1) beside it. What flux-core 0.88 does, by its source:
//!
//! * `[job-manager.prolog|epilog] command` with `per-rank = false`: once, on broker rank 0, in its environment and FLUX_URI, with FLUX_JOB_ID (F58 with
//!   its sign), FLUX_JOB_RANKS (RFC 22), FLUX_JOB_USERID; SIGTERM when the job is cancelled in its prolog (src/modules/job-manager/plugins/perilog.c);
//! * `[job-manager.housekeeping] command`: on each rank, FLUX_JOB_ID in decimal; its status is logged (src/modules/job-manager/housekeeping.c);
//! * R and the eventlog of a job: `flux job info ID KEY` (RFC 20, RFC 18, RFC 21).

use anyhow::{Result, ensure};
use perilog_tests::slurm::BY_GATE;
use perilog_tests::{Cluster, Node, Output, Running};

/// ƒuZZybuNNy.
const DECIMAL: &str = "6731191091817518";
const SIGNED: &str = "ƒuZZybuNNy";
const JOB: &str = "fuZZybuNNy";
const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"1-2","children":{"core":"0-3"}}],"starttime":0.0,"expiration":0.0,"nodelist":["n[0-1]"]}}"#;
const EVENTLOG: &str = "{\"timestamp\":1552593340.5,\"name\":\"submit\",\"context\":{\"userid\":64001,\"urgency\":16,\"flags\":0,\"version\":1}}\n\
    {\"timestamp\":1552593348.073045,\"name\":\"alloc\"}\n";
const FLUX: &str = r#"#!/bin/sh
# A stand-in for flux(1): it knows no job but one, and no rank but its own.
[ -n "$FLUX_URI" ] || { echo "flux: no broker" >&2; exit 1; }
case "$*" in
"getattr rank") cat /root/rank ;;
"job info fuZZybuNNy R") cat /root/R ;;
"job info fuZZybuNNy eventlog") cat /root/eventlog ;;
"resource drain --update "*) printf '%s\n' "$*" >>/root/drained ;;
*) echo "the stand-in knows no flux $*" >&2; exit 99 ;;
esac
"#;
/// Where docs/flux.md has the example, as it stands there.
const HOUSEKEEPING: (&str, &str) =
    ("/etc/flux/perilog/housekeeping", include_str!("../../docs/examples/flux/housekeeping"));
const CONTROLLER: &str = "[api]\ngroup = \"alice\"\n";
const AGENT: &str = "env-allow = [\"FLUX_JOB_ID\", \"FLUX_JOB_RANKS\", \"FLUX_JOB_USERID\"]\n";

fn cluster() -> Result<Cluster> {
    let body = format!("echo \"$PERILOG_ACTION $FLUX_JOB_ID $FLUX_JOB_RANKS\" >>/var/lib/ledger/flux\n{BY_GATE}");
    let mut builder = Cluster::builder(2).agent(AGENT).controller(CONTROLLER);
    for action in ["prolog", "epilog", "housekeeping"] {
        builder = builder.script(action, "10-gate", &body);
    }
    let cluster = builder.build()?;
    cluster.stay_down()?;
    for (rank, node) in cluster.bed().nodes().iter().enumerate() {
        node.write_script("/usr/local/bin/flux", FLUX)?;
        node.write_file("/root/rank", rank.to_string())?;
        node.write_script(HOUSEKEEPING.0, HOUSEKEEPING.1)?;
    }
    let broker = cluster.controller()?;
    // A stand-in that is not root may read it.
    broker.write_script("/usr/local/bin/flux", FLUX.replace("/root/", "/var/lib/flux/"))?;
    broker.write_file("/var/lib/flux/R", R)?;
    broker.write_file("/var/lib/flux/eventlog", EVENTLOG)?;
    cluster.boot()?;
    Ok(cluster)
}

/// What perilog.so runs on broker rank 0, as the broker's own user.
fn perilog_so(cluster: &Cluster, hook: &str) -> Result<Running> {
    let environment = [
        &format!("FLUX_JOB_ID={SIGNED}"),
        "FLUX_JOB_RANKS=1-2",
        "FLUX_JOB_USERID=64001",
        "FLUX_URI=local:///run/flux/local",
    ];
    // exec(2) all the way: the shell's process becomes the hook.
    let shell =
        ["sh", "-c", "echo $$ >/root/pid; exec setpriv --reuid=alice --regid=alice --init-groups env \"$@\"", "sh"];
    let command = [&shell[..], &environment, &["perilog", "hook", hook]].concat();
    cluster.controller()?.spawn(&command)
}

/// What housekeeping runs on each rank, through the IMP: as root.
fn housekeeping(node: &Node) -> Result<Output> {
    let environment = [
        &format!("FLUX_JOB_ID={DECIMAL}"),
        "FLUX_JOB_RANKS=1-2",
        "FLUX_JOB_USERID=64001",
        "FLUX_URI=local:///run/flux/local",
    ];
    node.run(&[&["env"], &environment[..], &[HOUSEKEEPING.0]].concat())
}

fn open(node: &Node, action: &str, status: u8) -> Result<()> {
    node.write_file(&format!("/run/gate-{action}"), status.to_string())
}

fn ends(cluster: &Cluster) -> Result<Vec<(String, u32, Option<i32>)>> {
    let ledger = cluster.ledger()?;
    let mut ends: Vec<_> = ledger
        .of_job(JOB)
        .into_iter()
        .map(|(key, run)| (key.action.clone(), key.rank, run.ended.map(|(_, status)| status)))
        .collect();
    ends.sort();
    Ok(ends)
}

#[test]
fn a_job_from_its_prolog_to_its_housekeeping_over_a_kill_of_the_controller() -> Result<()> {
    let cluster = cluster()?;
    let (n0, n1) = (cluster.node(0)?, cluster.node(1)?);
    let mut prolog = perilog_so(&cluster, "flux-prolog")?;
    cluster.wait_begun(JOB, &[1, 2])?;
    cluster.kill_controller()?;
    open(n0, "prolog", 0)?;
    cluster.wait_scripts_ended(JOB, &[1])?;
    cluster.start_controller()?;
    open(n1, "prolog", 0)?;
    ensure!(cluster.wait_end(&mut prolog)? == 0, "{}", prolog.output()?);
    ensure!(prolog.output()?.stderr.contains("waiting for it, at most 2m"), "{}", prolog.output()?);
    // Again, by a broker that has forgotten.
    let mut again = perilog_so(&cluster, "flux-prolog")?;
    ensure!(cluster.wait_end(&mut again)? == 0, "{}", again.output()?);
    ensure!(again.output()?.stdout.contains("attached"), "{}", again.output()?);
    open(n0, "epilog", 0)?;
    open(n1, "epilog", 0)?;
    let mut epilog = perilog_so(&cluster, "flux-epilog")?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    ensure!(epilog.output()?.stderr.contains(&format!("epilog of {JOB} ok on 2 ranks")), "{}", epilog.output()?);
    cluster.perilog(&["wait", JOB, "--for", "clean", "--timeout", "0s"])?.ok()?;
    // Flux takes the nodes back whatever housekeeping's status is: one that failed is drained first.
    open(n0, "housekeeping", 0)?;
    open(n1, "housekeeping", 5)?;
    let (good, bad) = (housekeeping(n0)?, housekeeping(n1)?);
    ensure!(good.code() == Some(0) && n0.try_read_file("/root/drained")?.is_none(), "{good}");
    let drained = n1.try_read_file("/root/drained")?.unwrap_or_default();
    ensure!(
        bad.code() == Some(5)
            && drained.starts_with("resource drain --update 2 housekeeping of fuZZybuNNy: failed (exit 5)"),
        "{drained:?} {bad}"
    );
    let all = ["epilog", "housekeeping", "prolog"]
        .map(|action| [(action.to_owned(), 1, Some(0)), (action.to_owned(), 2, Some(0))]);
    let mut all = all.concat();
    all[3].2 = Some(5);
    ensure!(ends(&cluster)? == all, "{:?}", ends(&cluster)?);
    let attempts: Vec<String> = cluster.job(JOB)?.attempts.iter().map(|attempt| attempt.attempt.to_string()).collect();
    ensure!(attempts == ["1552593348.073045"], "{attempts:?}");
    // The form that stock Flux gives each.
    let forms = n0.read_file("/var/lib/ledger/flux")?;
    ensure!(forms == format!("prolog {SIGNED} 1-2\nepilog {SIGNED} 1-2\nhousekeeping {DECIMAL} 1-2\n"), "{forms}");
    Ok(())
}

/// The controller dies twice under it; the second time all is over before it is back. The broker waits for it, and takes the nodes back when it ends.
#[test]
fn an_epilog_is_waited_for_over_kills_of_the_controller() -> Result<()> {
    let cluster = cluster()?;
    let (n0, n1) = (cluster.node(0)?, cluster.node(1)?);
    cluster.nodes().iter().try_for_each(|node| open(node, "prolog", 0))?;
    let mut prolog = perilog_so(&cluster, "flux-prolog")?;
    ensure!(cluster.wait_end(&mut prolog)? == 0, "{}", prolog.output()?);
    let mut epilog = perilog_so(&cluster, "flux-epilog")?;
    cluster.wait_action_begun(JOB, "epilog", &[1, 2])?;
    cluster.kill_controller()?;
    open(n0, "epilog", 0)?;
    cluster.start_controller()?;
    cluster.wait_told_ended(JOB, "epilog", 1)?;
    cluster.kill_controller()?;
    open(n1, "epilog", 0)?;
    cluster.wait_scripts_ended(JOB, &[2])?;
    cluster.start_controller()?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    ensure!(epilog.output()?.stderr.contains(&format!("epilog of {JOB} ok on 2 ranks")), "{}", epilog.output()?);
    // Again, by a broker that has forgotten, of a job that is over.
    let mut again = perilog_so(&cluster, "flux-epilog")?;
    ensure!(cluster.wait_end(&mut again)? == 0, "{}", again.output()?);
    let ends: Vec<_> = ends(&cluster)?.into_iter().map(|(action, rank, _)| (action, rank)).collect();
    let once = ["epilog", "prolog"].map(|action| [(action.to_owned(), 1), (action.to_owned(), 2)]).concat();
    ensure!(ends == once, "{ends:?}");
    Ok(())
}

#[test]
fn a_cancel_in_the_prolog_stops_its_scripts_and_drains_nobody() -> Result<()> {
    let cluster = cluster()?;
    let mut prolog = perilog_so(&cluster, "flux-prolog")?;
    cluster.wait_begun(JOB, &[1, 2])?;
    // As the job manager does on an exception: the process that it has started.
    cluster.controller()?.sh("kill -TERM $(cat /root/pid)")?;
    ensure!(cluster.wait_end(&mut prolog)? == 6, "{}", prolog.output()?);
    for node in cluster.nodes() {
        open(node, "epilog", 0)?;
    }
    let mut epilog = perilog_so(&cluster, "flux-epilog")?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    let drains = cluster.perilog(&["drain"])?.ok()?;
    ensure!(!drains.contains("n0") && !drains.contains("n1"), "{drains}");
    let ends = ends(&cluster)?;
    let cancelled = |end: &&(String, u32, Option<i32>)| end.0 == "prolog" && end.2 != Some(0);
    ensure!(ends.len() == 4 && ends.iter().filter(cancelled).count() == 2, "{ends:?}");
    Ok(())
}
