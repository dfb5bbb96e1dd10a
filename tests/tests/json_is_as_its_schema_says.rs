//! The output of each verb with `--json` fits the installed JSON schema (`schema/perilog.schema.json`), for jobs that
//! went well and badly. The output has no member that the schema does not name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Node, Output};

const SCHEMA: &str = include_str!("../../schema/perilog.schema.json");
/// Python program: reads lines of JSON, and names each line that does not fit the schema's definition `$defs/NAME`,
/// where NAME is a verb. A member that the definition lacks does not fit.
const JUDGE: &str = include_str!("../../schema/tests/judge.py");
const SOON: Duration = Duration::from_secs(90);

/// Asserts that the output of a verb fits the schema.
fn ensure_fits(node: &Node, verb: &str, output: &Output) -> Result<()> {
    ensure!(output.code().is_some_and(|code| code < 2) && !output.stdout.is_empty(), "{verb}: {output}");
    node.write_file("/run/printed", &output.stdout)?;
    let judge = ["/usr/bin/python3", "/run/judge.py", "/run/schema.json", verb, "/run/printed"];
    let judged = node.run(&judge)?;
    ensure!(judged.success(), "{}: {judged}\n{}", output.what, output.stdout);
    Ok(())
}

#[test]
fn every_verb_prints_what_the_schema_has() -> Result<()> {
    let prolog = "perilog-report progress 'looking'; perilog-report user 'a word'; perilog-report milestone seen
perilog-report tolerable --check fan 'fan 2 is slow'; [ $PERILOG_RANK = 0 ] || exit 0; [ $PERILOG_JOB != bad ] || \
{ echo broken >&2; exit 7; }";
    let cluster = Cluster::builder(2)
        .controller("[action.epilog]\nrelease = \"0\"\n[enroll]\nlisten = \"[::]:5117\"\n")
        .script("prolog", "10-check", prolog)
        .script("epilog", "10-wait", "while [ ! -e /run/gate ]; do sleep 0.05; done; sleep infinity & exit 0")
        .boot()?;
    let (controller, node) = (cluster.controller()?, cluster.node(0)?);
    for node in [controller, node] {
        node.write_file("/run/judge.py", JUDGE)?;
        node.write_file("/run/schema.json", SCHEMA)?;
    }
    let judge = |verb: &str, arguments: &[&str]| {
        let output = cluster.perilog(&[&["--json"], arguments].concat())?;
        ensure_fits(controller, verb, &output).context(verb.to_owned())
    };

    judge(
        "job",
        &["job", "add", "good", "--nodes", "n[0-1]", "--tolerate", "100%", "--user", "1500", "--resource", "rabbit1"],
    )?;
    judge("run", &["run", "prolog", "--job", "good"])?;
    judge("run", &["run", "prolog", "--job", "bad", "--nodes", "n[0-1]"])?;
    for job in ["good", "bad"] {
        judge("show", &["show", job])?;
        judge("event", &["events", job])?;
        judge("failed", &["failed", job])?;
        judge("timeline", &["timeline", job])?;
        judge("logs", &["logs", job])?;
    }
    judge("event", &["events", "--all"])?;
    judge("event", &["events", "--all", "--since", "1h", "-n", "3"])?;
    judge("jobs", &["jobs"])?;
    judge("jobs", &["jobs", "--failed", "-n", "1"])?;
    judge("wait", &["wait", "good"])?;
    judge("nodes", &["nodes"])?;
    judge("why", &["why", "n0"])?;
    judge("drain", &["drain"])?;
    judge("drained-nodes", &["undrain", "n[0-1]"])?;
    judge("drained-nodes", &["drain", "n1", "a look inside"])?;
    judge("drain", &["drain"])?;
    judge("status", &["status"])?;
    judge("action", &["action", "start", "good", "copy", "--external", "--resources", "rabbit1", "--lease", "1h"])?;
    judge("ended", &["action", "renew", "good", "copy"])?;
    judge("ended", &["action", "report", "good", "copy", "ok", "--resources", "rabbit1"])?;
    judge("milestone", &["milestone", "good", "data-in"])?;
    judge("hand-over", &["job", "finish", "good"])?;
    judge("ps", &["ps", "--held"])?;
    let row = || Ok(cluster.perilog(&["ps"])?.ok()?.contains("10-wait"));
    cluster.bed().wait_until("the epilog runs", SOON, row)?;
    judge("ps", &["ps"])?;
    judge("why", &["why", "n0"])?;
    judge("show", &["show", "good"])?;
    cluster.open_gates()?;
    let lingers = || Ok(cluster.perilog(&["ps"])?.ok()?.contains("lingering"));
    cluster.bed().wait_until("a process is left", SOON, lingers)?;
    judge("ps", &["ps"])?;
    judge("why", &["why", "n0"])?;
    judge("tasks", &["kill", "good", "epilog", "--signal", "KILL"])?;
    let over = || Ok(cluster.perilog(&["ps"])?.ok()?.is_empty() || !cluster.perilog(&["ps"])?.ok()?.contains("good"));
    cluster.bed().wait_until("the epilog is over", SOON, over)?;
    judge("quiesce", &["quiesce", "--reason", "a look"])?;
    judge("status", &["status"])?;
    judge("resume", &["resume"])?;
    judge("stats", &["stats"])?;
    judge("skew", &["skew"])?;
    judge("export", &["export"])?;
    judge("backup", &["controller", "backup", "/root/copy.db"])?;
    judge("recover", &["controller", "recover"])?;
    judge("doctor", &["doctor"])?;
    judge("doctor", &["doctor", "--nodes", "n[0-1]"])?;
    judge("stats", &["stats", "--by", "node"])?;
    judge("tokens-made", &["token", "create", "n0"])?;
    judge("tokens", &["token", "list"])?;
    judge("tokens-taken", &["token", "revoke", "n0"])?;
    judge("certificates", &["ca", "show", "/etc/perilog/tls/cert.pem"])?;
    let (nodes, authority) = (["--role", "node", "n[0-1]"], ["--dir", "/root/ca2"]);
    judge("certificates", &[&["ca", "init"][..], &authority].concat())?;
    judge("certificates", &[&["ca", "issue"][..], &authority, &nodes, &["--out", "/root/issued"]].concat())?;
    judge("certificates", &[&["ca", "renew"][..], &authority, &["--all", "--out", "/root/renewed"]].concat())?;
    judge("revoked", &[&["ca", "revoke"][..], &authority, &["n0"]].concat())?;
    judge("issued", &[&["ca", "list"][..], &authority].concat())?;
    judge("init", &["init", "controller", "--dry-run", "--name", "ctl", "--ca", "/root/ca2", "--nodes", "n[0-9]"])?;
    // On a node.
    let tried = node.run(&["perilog", "--json", "try", "/etc/perilog/prolog.d"])?;
    ensure_fits(node, "try", &tried)?;
    let linted = node.run(&["perilog", "--json", "lint", "/etc/perilog/prolog.d"])?;
    ensure_fits(node, "doctor", &linted)
}
