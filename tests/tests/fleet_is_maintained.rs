//! An administrator's regular work: the days until certificates expire, a daily copy of the store, the node that fails
//! most, and forgetting a node that is gone for good.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;

const SOON: Duration = Duration::from_secs(90);
const FIGURES: &str = "[metrics]\nlisten = \"127.0.0.1:5116\"\n";

#[test]
fn certificates_copies_failures_and_a_node_that_is_gone() -> Result<()> {
    let cluster =
        Cluster::builder(2).script("prolog", "10-odd", "exit \"$PERILOG_RANK\"").controller(FIGURES).boot()?;
    let controller = cluster.controller()?;
    let figure = |name: &str| -> Result<Option<f64>> {
        let page = controller.sh("curl -sf http://127.0.0.1:5116/metrics")?;
        let line = page.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.parse().context("a number")).transpose()
    };
    let now = || Ok::<f64, anyhow::Error>(controller.sh("date +%s")?.parse()?);

    let wide = cluster.perilog(&["nodes", "--wide"])?.ok()?;
    let (head, row) = wide.split_once('\n').context("a head")?;
    let at = head.find("CERT-DAYS").with_context(|| wide.clone())?;
    let days: u32 = row.get(at..at + 9).context("a row")?.trim().parse().with_context(|| wide.clone())?;
    ensure!(days > 0, "{wide}");
    let ends = figure("perilog_node_certificate_expiry_timestamp_seconds{by=\"hand\"}")?.context("a figure")?;
    ensure!((ends - now()?) / 86_400.0 - f64::from(days) < 2.0, "{ends}: {wide}");

    // The timer starts this unit every day.
    controller.systemctl(&["start", "perilog-backup.service"])?;
    // A copy's name is the second in which it was made: waits for the next second.
    controller.sh("of=$(date +%s); until [ $(date +%s) -gt $of ]; do sleep 0.05; done")?;
    controller.systemctl(&["start", "perilog-backup.service"])?;
    let copies = controller.sh("stat -c '%a %U' /var/lib/perilog-backup/*")?;
    ensure!(copies == "600 root\n600 root", "two copies for root alone: {copies}");
    let copied = figure("perilog_last_backup_timestamp_seconds")?.context("a figure")?;
    ensure!((0.0..3_600.0).contains(&(now()? - copied)), "{copied}");

    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    ensure!(run.code() == Some(1), "{run}");
    let worst = cluster.perilog(&["--quiet", "stats", "--by", "node"])?.ok()?;
    ensure!(worst.starts_with("prolog n1 1 1 ") && worst.contains("\nprolog n0 1 0 "), "{worst}");

    let forget = || cluster.perilog(&["node", "forget", "n1"]);
    let refused = forget()?;
    ensure!(refused.code() == Some(10) && refused.stderr.contains("n1 is connected"), "{refused}");
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    cluster.perilog(&["wait", "j", "--for", "clean"])?.ok()?;
    cluster.node(1)?.shutdown()?;
    cluster.bed().wait_until("n1 is offline", SOON, || Ok(!cluster.is_online("n1")?))?;
    forget()?.ok()?;
    ensure!(cluster.perilog(&["--quiet", "nodes"])?.ok()?.trim() == "n0", "it is listed");
    Ok(())
}
