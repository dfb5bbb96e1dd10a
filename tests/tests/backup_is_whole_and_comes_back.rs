//! An operator copies the store while the controller and a script run. A controller started on the copy abandons the
//! job until a request for it arrives again; no script runs twice. The store's content can be exported as lines: from
//! the running controller, from the controller's store, and from the copy.

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster};

const COPY: &str = "/root/copy/controller.db";

#[test]
fn while_a_script_runs() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let controller = cluster.controller()?;
    controller.sh("mkdir -m 700 /root/copy")?;
    let output = cluster.perilog(&["controller", "backup", COPY])?.ok()?;
    ensure!(output.contains(COPY) && output.contains(" bytes"), "{output}");
    ensure!(controller.sh("ls -A /root/copy")?.trim() == "controller.db", "one file, and nothing beside it");
    ensure!(controller.sh(&format!("stat -c %a {COPY}"))?.trim() == "600");
    ensure!(controller.sh("ls /var/lib/perilog")?.lines().all(|name| !name.ends_with("backup")), "left behind");

    // All three ways can export; only the running controller and the controller's store have later events.
    let of_copy = cluster.perilog(&["export", "--store", COPY])?.ok()?;
    ensure!(of_copy.starts_with("{\"") && of_copy.contains("\"kind\":\"job\""), "{of_copy}");
    ensure!(of_copy.contains("\"accepted\":\"0\"") && !of_copy.contains("\"name\":\"verdict\""), "{of_copy}");
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    cluster.wait_verdicts("j")?;
    let outcome = cluster.outcome("j", "prolog", 0)?;
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let asked = cluster.perilog(&["export", "j"])?.ok()?;
    ensure!(asked.contains("\"name\":\"verdict\""), "{asked}");
    let read = cluster.perilog(&["export", "j", "--store", "/var/lib/perilog/controller.db"])?.ok()?;
    ensure!(lines(&asked) == lines(&read), "{asked}\n{read}");
    ensure!(lines(&cluster.perilog(&["export", "--until", "1h"])?.ok()?).is_empty());
    ensure!(lines(&cluster.perilog(&["export", "--since", "1h"])?.ok()?) == lines(&asked));
    ensure!(cluster.perilog(&["export", "none"])?.code() != Some(0));

    let output = cluster.perilog(&["controller", "restore", COPY])?.ok()?;
    ensure!(output.contains("perilog ps --abandoned"), "{output}");
    cluster.wait_online()?;
    let listed = cluster.perilog(&["ps", "--abandoned"])?.ok()?;
    ensure!(listed.contains("perilog job finish j --attempt 0"), "{listed}");
    cluster.perilog(&["run", "prolog", "--job", "j"])?;
    cluster.wait_verdicts("j")?;
    ensure!(cluster.perilog(&["ps", "--abandoned"])?.ok()?.contains("nothing is abandoned"));
    ensure!(cluster.outcome("j", "prolog", 0)? == outcome);
    cluster.assert_true("j", &["prolog"])
}
