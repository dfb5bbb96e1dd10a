//! perilog's hooks, as a stock Flux runs them. Debian has no Flux: a stand-in for perilog.so and for the job manager's
//! housekeeping calls the hooks, with a stand-in for flux(1) beside. The behaviour of flux-core 0.88, by the source:
//!
//! * `[job-manager.prolog|epilog] command` with `per-rank = false`: runs once, on broker rank 0, in the broker's
//!   environment and FLUX_URI. The variables are FLUX_JOB_ID (F58 with the sign), FLUX_JOB_RANKS (RFC 22) and
//!   FLUX_JOB_USERID. A cancel of the job in the prolog sends SIGTERM (src/modules/job-manager/plugins/perilog.c);
//! * `[job-manager.housekeeping] command`: runs on each rank, with FLUX_JOB_ID in decimal; Flux logs the status
//!   (src/modules/job-manager/housekeeping.c);
//! * R and the eventlog of a job: `flux job info ID KEY` (RFC 20, RFC 18, RFC 21);
//! * `flux resource drain --update` keeps the reason of a node that is already drained; only the owner of the instance
//!   may drain (flux-resource(1)).

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::slurm::BY_GATE;
use perilog_tests::{Cluster, Node, Output, Running};

/// Id of the test's job in decimal.
const DECIMAL: &str = "6731191091817518";
/// Id of the test's job in F58, with the sign ƒ.
const SIGNED: &str = "ƒuZZybuNNy";
/// Id of the test's job as perilog writes it.
const JOB: &str = "fuZZybuNNy";
const R: &str = concat!(
    r#"{"version":1,"execution":{"R_lite":[{"rank":"1-2","children":{"core":"0-3"}}],"starttime":0.0,"#,
    r#""expiration":0.0,"nodelist":["n[0-1]"]}}"#,
);
const EVENTLOG: &str = "{\"timestamp\":1552593340.5,\"name\":\"submit\",\
                        \"context\":{\"userid\":64001,\"urgency\":16,\"flags\":0,\"version\":1}}\n";
const FLUX: &str = r#"#!/bin/sh
# A stand-in for flux(1): it knows no job but one, and no rank but its own. The job's alloc is late in its eventlog.
[ -n "$FLUX_URI" ] || { echo "flux: no broker" >&2; exit 1; }
case "$*" in
"getattr rank") cat /root/rank ;;
"job info fuZZybuNNy R") cat /root/R ;;
"job info fuZZybuNNy eventlog")
    cat /root/eventlog
    [ ! -e /tmp/alloc ] || echo '{"timestamp":1552593348.073045,"name":"alloc"}' ;;
"job wait-event --quiet --timeout=30s fuZZybuNNy alloc") : >/tmp/alloc ;;
"resource drain --update "*) printf '%s\n' "$*" >>/root/drained ;;
*) echo "the stand-in knows no flux $*" >&2; exit 99 ;;
esac
"#;
/// Housekeeping example of docs/flux.md: its installed path, and its text.
const HOUSEKEEPING: (&str, &str) =
    ("/usr/libexec/perilog/flux/housekeeping", include_str!("../../docs/examples/flux/housekeeping"));
/// Drain command of docs/flux.md: its installed path, and its text.
const DRAIN: (&str, &str) = ("/usr/libexec/perilog/flux/drain", include_str!("../../docs/examples/flux/drain"));
/// Drop-in that runs the controller as a user that Flux allows to drain: its installed path, and its text.
const AS_FLUX: (&str, &str) = (
    "/etc/systemd/system/perilog-controller.service.d/flux.conf",
    include_str!("../../docs/examples/flux/controller-as-flux.conf"),
);
const RESOURCE: &str = r#"#!/bin/sh
# A stand-in for flux(1) that drains: a file for each host, with the reason in it.
[ "$(id -un)" = flux ] || { echo "ERROR: Request requires owner credentials" >&2; exit 1; }
cd /var/lib/flux || exit
case "$*" in
"resource drain --update n"*) [ -e "$4" ] || printf '%s\n' "$5" >"$4" ;;
"resource drain --no-header --include=n"*" --format={nodelist} {reason}")
    host=${4#--include=}
    [ ! -e "$host" ] || echo "$host $(cat "$host")"
    ;;
"resource undrain --force n"*) rm "$4" ;;
*) echo "the stand-in knows no flux $*" >&2; exit 99 ;;
esac
"#;
const SOON: Duration = Duration::from_secs(60);
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
    // The stand-in reads its files there, where it needs no root.
    broker.write_script("/usr/local/bin/flux", FLUX.replace("/root/", "/var/lib/flux/"))?;
    broker.write_file("/var/lib/flux/R", R)?;
    broker.write_file("/var/lib/flux/eventlog", EVENTLOG)?;
    cluster.boot()?;
    Ok(cluster)
}

/// Runs a hook on broker rank 0 as Flux's plugin perilog.so does, as the broker's own user. Leaves the hook running.
fn perilog_so(cluster: &Cluster, hook: &str) -> Result<Running> {
    let environment = [
        &format!("FLUX_JOB_ID={SIGNED}"),
        "FLUX_JOB_RANKS=1-2",
        "FLUX_JOB_USERID=64001",
        "FLUX_URI=local:///run/flux/local",
    ];
    // Every step is an exec(2): the shell's process becomes the hook.
    let shell =
        ["sh", "-c", "echo $$ >/root/pid; exec setpriv --reuid=alice --regid=alice --init-groups env \"$@\"", "sh"];
    let command = [&shell[..], &environment, &["perilog", "hook", hook]].concat();
    cluster.controller()?.spawn(&command)
}

/// Runs the housekeeping command on a node as Flux's IMP does on each rank: as root.
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
fn a_job_outlives_a_kill_of_the_controller() -> Result<()> {
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
    ensure!(prolog.output()?.stderr.contains("this hook waits for the controller, at most 2m"), "{}", prolog.output()?);
    // A broker that has forgotten the prolog runs the hook again.
    let mut again = perilog_so(&cluster, "flux-prolog")?;
    ensure!(cluster.wait_end(&mut again)? == 0, "{}", again.output()?);
    ensure!(again.output()?.stdout.contains("attached"), "{}", again.output()?);
    open(n0, "epilog", 0)?;
    open(n1, "epilog", 0)?;
    let mut epilog = perilog_so(&cluster, "flux-epilog")?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    ensure!(epilog.output()?.stderr.contains(&format!("epilog of {JOB} ok on 2 ranks")), "{}", epilog.output()?);
    cluster.perilog(&["wait", JOB, "--for", "clean", "--timeout", "0s"])?.ok()?;
    // Flux takes the nodes back at any status of housekeeping, so the hook first drains a failed node.
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
    // Each hook gets the form that stock Flux gives.
    let forms = n0.read_file("/var/lib/ledger/flux")?;
    ensure!(forms == format!("prolog {SIGNED} 1-2\nepilog {SIGNED} 1-2\nhousekeeping {DECIMAL} 1-2\n"), "{forms}");
    Ok(())
}

/// The controller dies twice during the epilog; the second time the epilog ends before the controller is back. The
/// broker waits for the hook, and takes the nodes back when the hook ends.
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
    cluster.wait_shown_ended(JOB, "epilog", 1)?;
    cluster.kill_controller()?;
    open(n1, "epilog", 0)?;
    cluster.wait_scripts_ended(JOB, &[2])?;
    cluster.start_controller()?;
    ensure!(cluster.wait_end(&mut epilog)? == 0, "{}", epilog.output()?);
    ensure!(epilog.output()?.stderr.contains(&format!("epilog of {JOB} ok on 2 ranks")), "{}", epilog.output()?);
    // A broker that has forgotten the job runs the hook again after the job's end.
    let mut again = perilog_so(&cluster, "flux-epilog")?;
    ensure!(cluster.wait_end(&mut again)? == 0, "{}", again.output()?);
    ensure!(again.output()?.stderr.contains(&format!("{JOB} was over already")), "{}", again.output()?);
    // An old attempt's prolog does not count for a job that begins now.
    let mut late = perilog_so(&cluster, "flux-prolog")?;
    ensure!(cluster.wait_end(&mut late)? == 10, "{}", late.output()?);
    ensure!(late.output()?.stderr.contains("is over and holds nothing"), "{}", late.output()?);
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
    // On an exception, the job manager signals the process that it has started itself.
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

#[test]
fn perilog_drains_in_flux_and_leaves_other_drains_alone() -> Result<()> {
    let fails = "[ \"$(uname -n)\" != n0 ] || { echo 'no license' >&2; exit 3; }";
    let hook = format!("[drain]\ncommand = [\"{}\"]\n", DRAIN.0);
    let cluster = Cluster::builder(2).script("prolog", "10-check", fails).controller(&hook).boot()?;
    let broker = cluster.controller()?;
    broker.write_script(DRAIN.0, DRAIN.1)?;
    broker.write_script("/usr/local/bin/flux", RESOURCE)?;
    broker
        .sh("groupadd --system flux && useradd --system --gid flux flux && install -d -o flux -g flux /var/lib/flux")?;
    let drained = |host: &str| -> Result<String> {
        Ok(broker.try_read_file(&format!("/var/lib/flux/{host}"))?.unwrap_or_default())
    };
    let wait = |what: &str, met: &dyn Fn() -> Result<bool>| cluster.bed().wait_until(what, SOON, met);

    // Under the controller's own user, Flux refuses to drain, and `ps` shows the refusal.
    cluster.perilog(&["drain", "n1", "new firmware"])?;
    wait("ps shows why", &|| {
        Ok(cluster.perilog(&["ps"])?.ok()?.contains("flux resource: ERROR: Request requires owner credentials"))
    })?;
    broker.write_file(AS_FLUX.0, AS_FLUX.1)?;
    // The stand-in keeps its state in files, where a broker keeps it in memory: the unit may write there.
    let room = "/etc/systemd/system/perilog-controller.service.d/stand-in.conf";
    broker.write_file(room, "[Service]\nReadWritePaths=/var/lib/flux\n")?;
    broker.systemctl(&["daemon-reload"])?;
    // Regression test: the unit's filter of system calls kept the group from the socket, and everybody could connect.
    broker.write_file("/etc/perilog/controller.d/group.toml", "[api]\ngroup = \"flux\"\n")?;
    broker.systemctl(&["restart", "perilog-controller"])?;
    cluster.wait_online()?;
    assert_eq!(broker.sh("stat -Lc '%a %G' /run/perilog/controller.sock")?.trim(), "660 flux");
    wait("n1 is drained in Flux", &|| Ok(drained("n1")? == "perilog: new firmware\n"))?;
    cluster.perilog(&["undrain", "n1"])?.ok()?;
    wait("n1 is not drained in Flux", &|| Ok(drained("n1")?.is_empty()))?;

    broker.write_file("/var/lib/flux/n1", "bad DIMM\n")?;
    broker.sh("chown flux:flux /var/lib/flux/n1")?;
    let shows = |text: &str| -> Result<bool> { Ok(cluster.perilog(&["drain"])?.ok()?.contains(text)) };
    cluster.perilog(&["drain", "n1", "new firmware"])?.ok()?;
    wait("the drain of n1 is in force", &|| shows(" drained "))?;
    cluster.perilog(&["undrain", "n1"])?.ok()?;
    wait("the drain of n1 is lifted", &|| shows("no node is drained"))?;
    ensure!(drained("n1")? == "bad DIMM\n", "another's drain was lifted: {:?}", drained("n1")?);

    let run = cluster.perilog(&["run", "prolog", "--job", "f1", "--nodes", "n[0-1]"])?;
    ensure!(run.code() == Some(1), "{run}");
    wait("n0 is drained in Flux", &|| Ok(drained("n0")?.starts_with("perilog: prolog 10-check: failed (exit 3)")))?;
    ensure!(drained("n0")?.contains("no license"), "{}", drained("n0")?);
    Ok(())
}
