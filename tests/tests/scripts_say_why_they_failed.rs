//! The reason of a drain is what a script said last: the end of a long line, without the progress before it and without
//! colours. A script of another user than root may say it through `/dev/stderr`.

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;

/// Boots a node for each script, runs its prolog, and returns the reasons of the drains. A failed script leaves no
/// failed unit: systemd counts its node as running, and not as degraded.
fn reasons(users: &str, scripts: &[&str]) -> Result<Vec<String>> {
    let choose = scripts
        .iter()
        .enumerate()
        .map(|(rank, body)| format!("if [ \"$PERILOG_RANK\" = {rank} ]; then\n{body}\nfi\n"))
        .collect::<String>();
    let cluster = Cluster::builder(scripts.len()).script("prolog", "10-check", &choose).build()?;
    for rank in 0..scripts.len() {
        cluster.node(rank)?.write_file("/etc/perilog/agent.d/user.toml", format!("[action.prolog]\n{users}"))?;
    }
    cluster.stay_down()?;
    cluster.boot()?;
    let nodes = format!("n[0-{}]", scripts.len() - 1);
    let ran = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", &nodes])?;
    ensure!(ran.code() == Some(1), "{ran}");
    for rank in 0..scripts.len() {
        let state = cluster.node(rank)?.run(&["systemctl", "is-system-running"])?;
        ensure!(state.stdout.trim() == "running", "n{rank} after a failed script: {state}");
    }
    let views = cluster.node_views()?;
    let reason = |rank: usize| {
        let view = views.iter().find(|view| view.host == *format!("n{rank}"));
        Some(view?.drain.as_ref()?.reason.clone())
    };
    (0..scripts.len()).map(|rank| reason(rank).with_context(|| format!("n{rank} is not drained"))).collect()
}

#[test]
fn the_end_of_the_last_line_is_the_reason() -> Result<()> {
    let scripts = [
        "i=0; while [ $i -lt 20000 ]; do printf 'Scrubbing %d%%  \\r' $((i / 200)); i=$((i + 1)); done\n\
         printf 'write error at block 1234'; exit 6",
        "printf '{'; i=0; while [ $i -lt 900 ]; do printf '\"check\":%d,' $i; i=$((i + 1)); done\n\
         echo '\"cause\":\"no such device\"}'; exit 6",
        "printf '\\033[1;31mERROR \\033[0mGPU 3 is gone\\033[K\\n' >&2; exit 6",
    ];
    let found = reasons("", &scripts)?;
    let tail = " (job j attempt 0)";
    for (reason, end) in found.iter().zip([
        ": write error at block 1234",
        "\"check\":899,\"cause\":\"no such device\"}",
        ": ERROR GPU 3 is gone",
    ]) {
        ensure!(reason.starts_with("prolog 10-check: failed (exit 6)"), "{reason}");
        ensure!(reason.ends_with(&format!("{end}{tail}")), "{end:?} is not the end of {reason}");
        ensure!(reason.chars().count() <= 200 && !reason.contains("[0m"), "{reason}");
    }
    Ok(())
}

/// Regression test: the pipes were root's, and a script of another user got "Permission denied".
#[test]
fn a_script_of_another_user_writes_to_its_stderr_by_name() -> Result<()> {
    let scripts = [
        "echo 'GPU 3 is gone' >/dev/stderr || exit 5; exit 6",
        "echo 'GPU 3 is gone' >/dev/stdout || exit 5; exit 6",
        "echo 'GPU 3 is gone' | tee /dev/stderr >/dev/null || exit 5; exit 6",
    ];
    for reason in reasons("user = \"nobody\"\n", &scripts)? {
        ensure!(reason.contains("failed (exit 6)") && reason.contains(": GPU 3 is gone (job"), "{reason}");
    }
    Ok(())
}

/// Regression test: the reason said "after 26ms". One cause on four nodes was four lines of each list.
#[test]
fn one_cause_on_many_nodes_is_one_line() -> Result<()> {
    let waits = "[ \"$PERILOG_RANK\" = 0 ] || while [ ! -e /run/gate ]; do sleep 0.02; done\n\
                 echo '/p/lustre1 is not mounted'; exit 6";
    let cluster = Cluster::builder(3).script("prolog", "10-check", waits).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-2]"])?;
    cluster.wait_shown_ended("j", "prolog", 0)?;
    cluster.wait_begun("j", &[1, 2])?;
    cluster.open_gates()?;
    ensure!(cluster.wait_end(&mut run)? == 1);
    let reason = "prolog 10-check: failed (exit 6): /p/lustre1 is not mounted (job j attempt 0)";
    let drained = cluster.perilog(&["drain"])?.ok()?;
    ensure!(drained.lines().filter(|line| line.contains("10-check")).count() == 1, "{drained}");
    for view in cluster.node_views()? {
        let found = view.drain.map(|drain| drain.reason);
        ensure!(found.as_deref() == Some(reason), "{}: {found:?}", view.host);
    }
    Ok(())
}
