//! docs/examples/rc1-drain-failed as the rc1 of a job that is a Flux instance: the real `perilog failed` beside a
//! stand-in for `flux` that records drain requests.

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, Output};

const EXAMPLE: &str = include_str!("../../docs/examples/rc1-drain-failed");
const PROLOG: &str = "[ \"$(uname -n)\" != n1 ] || perilog-report tolerable --check lustre 'not mounted'";
/// Stand-in for flux(1): the file /root/hosts has the instance's hosts, and the environment its rank and level. The
/// stand-in supports only the calls that the example makes.
const STAND_IN: &str = r#"#!/bin/sh
# A stand-in for flux(1).
case "$*" in
"getattr rank") echo "${STAND_IN_RANK:-0}" ;;
"getattr instance-level") echo "${STAND_IN_LEVEL:-1}" ;;
"hostlist --intersect instance -") grep -xF "$(cat)" /root/hosts || true ;;
"resource drain --update "*) printf '%s\n' "$*" >>/root/drained; [ ! -e /root/refuses ] ;;
*) echo "the stand-in knows no flux $*" >&2; exit 99 ;;
esac
"#;
const DRAINED: &str = "resource drain --update n1 failed a check in the prolog of f2mKAgF7 (perilog failed f2mKAgF7)";

/// Runs the example rc1 script with this environment; returns its output, and the drain requests that the stand-in
/// recorded.
fn rc1(cluster: &Cluster, environment: &[&str]) -> Result<(Output, String)> {
    let node = cluster.controller()?;
    node.sh("rm -f /root/drained")?;
    let output = node.run(&[&["env"], environment, &["/etc/flux/rc1.d/drain-failed"]].concat())?;
    Ok((output, node.try_read_file("/root/drained")?.unwrap_or_default()))
}

#[test]
fn the_instance_of_a_job_begins_with_its_failed_nodes_drained() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-lustre", PROLOG).boot()?;
    let node = cluster.controller()?;
    node.write_script("/etc/flux/rc1.d/drain-failed", EXAMPLE)?;
    node.write_script("/usr/local/bin/flux", STAND_IN)?;
    node.write_file("/root/hosts", "n0\nn1\n")?;
    for (job, tolerate) in [("f2mKAgF7", "1"), ("f2mKDv3R", "0")] {
        cluster.perilog(&["job", "add", job, "--nodes", "n[0-1]", "--tolerate", tolerate])?.ok()?;
    }
    cluster.perilog(&["run", "prolog", "--job", "f2mKAgF7"])?.ok()?;
    // environment -> exit status, drained, message
    let job = "FLUX_ENCLOSING_ID=f2mKAgF7";
    for (environment, status, drained, part) in [
        (&[job][..], 0, true, "drained n1"),
        (&["FLUX_ENCLOSING_ID=ƒ2mKAgF7"], 0, true, "drained n1"),
        (&[], 0, false, ""),
        (&[job, "STAND_IN_RANK=1"], 0, false, ""),
        (&[job, "STAND_IN_LEVEL=2"], 0, false, ""),
        (&["FLUX_ENCLOSING_ID=f2mKDv3R"], 0, false, ""),
        (&["FLUX_ENCLOSING_ID=f9"], 0, false, "has nothing of job f9"),
        (&[job, "PERILOG=/nowhere/perilog"], 0, false, "/nowhere/perilog is not here"),
        (
            &[job, "PERILOG=env PERILOG_SOCKET=/nowhere perilog", "PERILOG_PATIENCE=1"],
            1,
            false,
            "cannot find out which",
        ),
    ] {
        let (output, reported) = rc1(&cluster, environment)?;
        let expected = if drained { DRAINED } else { "" };
        ensure!(output.code() == Some(status) && reported.trim() == expected, "{environment:?}: {reported:?} {output}");
        ensure!(
            output.stderr.contains(part) && part.is_empty() == output.stderr.is_empty(),
            "{environment:?}: {output}"
        );
    }
    node.write_file("/root/refuses", "")?;
    let (output, _) = rc1(&cluster, &[job])?;
    ensure!(output.code() == Some(1) && output.stderr.contains("cannot drain n1"), "{output}");
    // A job that was shrunk is an instance without the node.
    node.write_file("/root/hosts", "n0\n")?;
    let (output, reported) = rc1(&cluster, &[job])?;
    ensure!(output.success() && reported.is_empty(), "{reported:?} {output}");
    Ok(())
}
