//! An epilog hangs on one node of four: the other three go back at once, each with its own part of R, over a kill -9 of the controller between
//! two releases; the fourth is held, drained when its limit is over, and settled by hand. The hook hears of every release, and of none twice
//! with another sequence.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_core::ResourceSet;
use perilog_tests::{AT_GATE, Cluster};
use serde::Deserialize;

const SOON: Duration = Duration::from_secs(90);
const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"10-13","children":{"core":"0-3"}}],"starttime":0.0,"expiration":0.0,"nodelist":["n[0-3]"]},"scheduling":{"writer":"test"}}"#;
/// Fails every other time, as a resource manager that is busy would, and never hears of less than everything.
const HOOK: &str = "#!/bin/sh\nline=$(cat)\nif [ -e /var/lib/perilog/busy ]; then rm /var/lib/perilog/busy; echo busy >&2; exit 1; fi\ntouch /var/lib/perilog/busy\necho \"$line\" >>/var/lib/perilog/hook\n";
const CONTROLLER: &str = "[action.epilog]\nrelease = \"0\"\n[release]\ncommand = [\"/usr/local/libexec/hook\"]\n[drain]\ncommand = [\"/usr/local/libexec/hook\"]\n";

#[derive(Debug, Deserialize)]
struct Release {
    sequence: u64,
    ranks: String,
    #[serde(rename = "final")]
    last: bool,
    #[serde(rename = "R")]
    r: ResourceSet,
}

/// What the hook has carried out so far: each release once, in the order of their sequence; and the drains.
fn heard(cluster: &Cluster) -> Result<(Vec<Release>, Vec<String>)> {
    let text = cluster.controller()?.sh("cat /var/lib/perilog/hook 2>/dev/null || true")?;
    let (mut releases, mut drains) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if value["event"] == "release" {
            let release: Release = serde_json::from_value(value)?;
            let ranks = release.ranks.clone();
            if let Some(before) = releases.insert(release.sequence, release) {
                ensure!(before.ranks == ranks, "sequence {} was two releases", before.sequence);
            }
        } else {
            drains.push(format!(
                "{} {}",
                value["event"].as_str().unwrap_or_default(),
                value["hosts"].as_str().unwrap_or_default()
            ));
        }
    }
    Ok((releases.into_values().collect(), drains))
}

#[test]
fn three_go_back_at_once_and_the_fourth_when_it_was_settled_by_hand() -> Result<()> {
    let deaf = format!("trap '' TERM\n{AT_GATE}");
    let agent = "[action.epilog]\ntimeout = \"2s\"\n";
    let cluster = Cluster::builder(4).script("epilog", "10-gate", &deaf).agent(agent).controller(CONTROLLER).build()?;
    cluster.stay_down()?;
    cluster.controller()?.write_script("/usr/local/libexec/hook", HOOK)?;
    cluster.controller()?.write_file("/root/R.json", R)?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "j", "--R", "/root/R.json"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    cluster.wait_begun("j", &[10, 11, 12, 13])?;
    let wait_released = |count: usize| {
        cluster.bed().wait_until(&format!("{count} releases are told"), SOON, || Ok(heard(&cluster)?.0.len() >= count))
    };
    cluster.open_gate(0)?;
    wait_released(1)?;
    cluster.kill_controller()?;
    cluster.open_gate(2)?;
    cluster.open_gate(3)?;
    cluster.wait_scripts_ended("j", &[12, 13])?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    wait_released(3)?;
    cluster.bed().wait_until("n1 is drained", SOON, || Ok(heard(&cluster)?.1.contains(&"drain n1".to_owned())))?;
    let shown = cluster.perilog(&["drain"])?.ok()?;
    ensure!(shown.contains("10-gate is past its limit"), "{shown}");
    let held = cluster.perilog(&["ps"])?.ok()?;
    ensure!(held.contains("overdue") && held.contains("n1"), "{held}");
    cluster.perilog(&["resolve", "j", "epilog", "--ranks", "n1", "--reason", "power-cycled"])?.ok()?;
    wait_released(4)?;
    let (releases, _) = heard(&cluster)?;
    let ranks: Vec<&str> = releases.iter().map(|release| release.ranks.as_str()).collect();
    ensure!(ranks.len() == 4 && ranks[0] == "10" && ranks[3] == "11", "{ranks:?}");
    ensure!(releases.iter().map(|release| release.last).eq([false, false, false, true]), "{releases:?}");
    let mut all = ResourceSet::default();
    for release in &releases {
        ensure!(all.ranks().is_disjoint(release.r.ranks()), "{} twice", release.ranks);
        all = all.union(&release.r)?;
    }
    ensure!(all == ResourceSet::from_json(R)?, "{}", all.to_json());
    cluster.open_gate(1)?;
    Ok(())
}
