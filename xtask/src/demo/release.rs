//! `cargo xtask demo release`: an epilog hangs on one node of four. The other three are released as each ends, over two
//! kills of the controller; the fourth is held, drained when its limit is over, and settled manually.
//!
//! Between a script and its release lie an agent, a network, a controller and a hook. At the end, the demo compares the
//! ledgers at both ends: of the scripts on their nodes, and of the resource manager.

use anyhow::{Context, Result};
use perilog_tests::{Cluster, Layer, manager};

use super::narrator::{Narrator, SOON};
use super::stage::{self, R_FILE};
use crate::stages::say;

const JOB: &str = "f2mKAgF7";
/// Script body of the epilog: waits, as if for a file server, until the demo creates /run/gate on the node. Ignores
/// TERM, as a hung umount does.
const UMOUNT: &str = "trap '' TERM\nperilog-report progress 'unmounting /p/lustre1'\nwhile [ ! -e /run/gate ]; do \
                      sleep 0.02; done\nexit 0";
/// Lines of agent.toml with the epilog's time limit: the epilog of n1 hangs past this limit, and those of the other
/// three nodes end well before it even on a slow machine.
const AGENT: &str = "[action.epilog]\ntimeout = \"15s\"\n";
const CONTROLLER: &str = "[action.epilog]\nrelease = \"0\"\n";
const SCRIPTS: &[(&str, &[&str])] = &[("epilog", &["10-umount"])];

pub(super) fn play(layer: Layer) -> Result<bool> {
    let builder = Cluster::builder(4).layer(layer).script("epilog", "10-umount", UMOUNT);
    let cluster = stage::set(builder.agent(AGENT).controller(CONTROLLER), "")?;
    let narrator = Narrator::new(&cluster);
    begin(&narrator)?;
    first(&narrator)?;
    killed_between(&narrator)?;
    killed_while_telling(&narrator)?;
    stuck(&narrator)?;
    by_hand(&narrator)?;
    ledgers(&narrator)?;
    narrator.end(
        "Each node was given back once, with its own part of R, and none under a live script that was not \
         drained before",
    )
}

fn begin(narrator: &Narrator<'_>) -> Result<()> {
    narrator.tell(
        "A job is over. Its epilog has its nodes from the same moment on; its limit is 15 s, and each node \
         may go as it is done (release = \"0\")",
    )?;
    narrator.perilog(&["job", "add", JOB, "--R", R_FILE])?;
    narrator.perilog(&["job", "finish", JOB])?;
    narrator.cluster.wait_begun(JOB, &[4, 5, 6, 7])?;
    narrator.cluster.bed().wait_until("ps shows what runs", SOON, || {
        Ok(narrator.cluster.perilog(&["ps"])?.ok()?.contains("unmounting"))
    })?;
    narrator.perilog(&["ps"])?;
    let heard = narrator.cluster.heard()?;
    narrator.check(heard.releases.is_empty(), "nothing is given back", format!("{:?}", heard.releases))
}

fn first(narrator: &Narrator<'_>) -> Result<()> {
    narrator.tell("The epilog of n0 ends. n0 is given back at once, and nothing else")?;
    narrator.cluster.open_gate(0)?;
    released(narrator, 1, "4")
}

fn killed_between(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.tell(
        "Between two releases: kill -9 of the controller. n2 ends with nobody to tell; then another \
         controller comes up",
    )?;
    kill(narrator)?;
    cluster.open_gate(2)?;
    cluster.wait_scripts_ended(JOB, &[6])?;
    let told = cluster.heard()?.once(JOB).len();
    narrator.check(told == 1, "the epilog of n2 has ended by its ledger, and nobody is told", told)?;
    start(narrator)?;
    released(narrator, 2, "6")
}

fn killed_while_telling(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.tell(
        "Worse: the resource manager has carried out the release of n3, and the controller dies before it hears that",
    )?;
    cluster.controller()?.write_file(manager::HOLD, "")?;
    cluster.open_gate(3)?;
    cluster.bed().wait_until("the hook has been told of n3", SOON, || Ok(cluster.heard()?.once(JOB).len() == 3))?;
    kill(narrator)?;
    cluster.controller()?.sh(&format!("rm {}", manager::HOLD))?;
    start(narrator)?;
    cluster.bed().wait_until("the hook is told of n3 again", SOON, || Ok(cluster.heard()?.again(JOB) > 0))?;
    released(narrator, 3, "7")?;
    let heard = cluster.heard()?;
    let tellings: Vec<u64> = heard.releases.iter().map(|release| release.sequence).collect();
    narrator.check(
        heard.again(JOB) == 1,
        &format!("it was told twice, under the same sequence: {tellings:?}"),
        format!("{tellings:?}"),
    )
}

fn stuck(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator
        .tell("n1 hangs. It is held; past its limit its script is asked to end once, goes on, and n1 is drained")?;
    cluster.bed().wait_until("n1 is drained", SOON, || Ok(cluster.heard()?.drained("n1").is_some()))?;
    narrator.perilog(&["ps"])?;
    narrator.perilog(&["why", "n1"])?;
    let drains = narrator.perilog(&["drain"])?;
    narrator.check(
        drains.stdout.contains("10-umount is past its limit of 15s"),
        "the drain says which script, and its limit",
        &drains,
    )?;
    let heard = cluster.heard()?;
    let others: Vec<&str> = ["n0", "n2", "n3"].into_iter().filter(|host| heard.drained(host).is_some()).collect();
    narrator.check(others.is_empty(), "nobody else is drained", others.join(", "))?;
    narrator.check(
        heard.once(JOB).len() == 3,
        "n1 is not given back: a script lives on it",
        format!("{:?}", heard.once(JOB)),
    )
}

fn by_hand(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator
        .tell("An operator has a look, and takes the word: the job is over, n1 stays drained until it is repaired")?;
    let resolve = ["resolve", JOB, "epilog", "--ranks", "n1", "--reason", "lustre1 is down, node goes to repair"];
    narrator.perilog(&resolve)?;
    released(narrator, 4, "5")?;
    narrator.tell(
        "Later the file server answers, and the script ends. What it says is kept as late, and changes \
         nothing; n1 works again",
    )?;
    cluster.open_gate(1)?;
    cluster.wait_scripts_ended(JOB, &[5])?;
    cluster.bed().wait_until("the late result is told", SOON, || {
        Ok(cluster.perilog(&["events", JOB])?.ok()?.contains("late"))
    })?;
    narrator.perilog(&["events", JOB])?;
    narrator.perilog(&["undrain", "n1"])?;
    cluster.bed().wait_until("n1 is undrained", SOON, || Ok(cluster.heard()?.drained("n1").is_none()))?;
    let ps = narrator.perilog(&["ps"])?;
    narrator.check(!ps.stdout.contains(JOB), "nothing of the job waits any more", &ps)
}

/// Compares the ledgers that the scripts wrote on the nodes with the ledger of notices that the resource manager got.
/// Shows both and counts checks on them, such as that each node was released after its own script's end.
fn ledgers(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    let (handed, heard, ledger) = (stage::HANDED, cluster.heard()?, cluster.ledger()?);
    narrator.tell("The ledgers: what the scripts wrote on their nodes, and what the resource manager was told")?;
    let runs = ledger.of_job(JOB);
    let begin = runs.first().context("no script has run")?.1.started;
    say("   node  rank  epilog ended  given back  sequence          told  epoch  fragment of R")?;
    let mut ends = Vec::new();
    for (key, run) in &runs {
        let (ended, code) = run.ended.context("a script has no end")?;
        let release =
            *heard.once(JOB).iter().find(|release| release.ranks.contains(key.rank)).context("a node is missing")?;
        let told: Vec<String> = tellings(&heard, release.sequence).map(|release| release.epoch.to_string()).collect();
        let fragment = release.fragment()?;
        let on_rank = fragment.get(&key.rank).context("a fragment without its rank")?;
        let children: Vec<String> = on_rank.children.iter().map(|(kind, ids)| format!("{kind} {ids}")).collect();
        say(&format!(
            "   {:<4}  {:<4}  {:>10.2} s  {:>8.2} s  {:<16}  {:<4}  {:<5}  {}: {}",
            run.node,
            key.rank,
            ended - begin,
            release.at - begin,
            release.sequence,
            told.len(),
            told.join(", "),
            on_rank.host,
            [children, on_rank.properties.clone()].concat().join(", ")
        ))?;
        ends.push((run.node.as_str(), ended, release.at, code));
    }
    let stuck = ends.iter().find(|(node, ..)| *node == "n1").map_or(0.0, |(_, ended, ..)| *ended);
    let done = ends.iter().filter(|(node, ..)| *node != "n1");
    let in_time = done.clone().count() == 3 && done.clone().all(|(_, ended, told, _)| ended <= told && *told < stuck);
    narrator.check(
        in_time,
        "n0, n2, n3 were given back after their own script's end, and did not wait for n1's",
        format!("{ends:?}"),
    )?;
    let drained = heard.drains.iter().find(|drain| drain.hosts.to_string() == "n1").map_or(f64::MAX, |drain| drain.at);
    let after_drain = heard.once(JOB).last().is_some_and(|release| release.ranks.contains(5) && drained <= release.at);
    narrator.check(after_drain, "n1 was given back last, after its drain", format!("{:?}", heard.drains))?;
    let faults = heard.faults(JOB, &handed);
    narrator.check(
        faults.is_empty(),
        "every telling is in order; each release is once after (job, attempt, sequence); the last says final",
        faults.join("; "),
    )?;
    narrator.check(
        heard.complete(JOB, &handed)?,
        "the fragments are disjoint, and their union is R",
        format!("{:?}", heard.once(JOB)),
    )?;
    let comparison = cluster.compare(JOB, SCRIPTS)?;
    say(&format!("   {}", comparison.to_string().lines().last().unwrap_or_default().trim()))?;
    narrator.check(comparison.holds(), "what the controller tells of the four epilogs is what they wrote", &comparison)
}

fn tellings(heard: &manager::Heard, sequence: u64) -> impl Iterator<Item = &manager::Release> {
    heard.releases.iter().filter(move |release| release.sequence == sequence)
}

/// Waits until the resource manager was told of `number` releases of the job, and checks that the newest one is of the
/// ranks `ranks`, such as `4`.
fn released(narrator: &Narrator<'_>, number: usize, ranks: &str) -> Result<()> {
    let cluster = narrator.cluster;
    let what = format!("release {number} is told");
    cluster.bed().wait_until(&what, SOON, || Ok(cluster.heard()?.once(JOB).len() >= number))?;
    if number == 1 {
        narrator.show(cluster.controller()?, &["tail", "-n", "1", manager::TOLD])?;
    }
    let heard = cluster.heard()?;
    let once = heard.once(JOB);
    let (told, faults) = (once.last().context("a release")?, heard.faults(JOB, &stage::HANDED));
    let what = format!(
        "the resource manager has rank {ranks} ({}) with its part of R, by sequence {}",
        told.hosts, told.sequence
    );
    let right =
        once.len() == number && told.ranks.to_string() == ranks && told.last == (number == 4) && faults.is_empty();
    narrator.check(right, &what, format!("{told:?} {}", faults.join("; ")))
}

fn kill(narrator: &Narrator<'_>) -> Result<()> {
    say("   [ctl]# systemctl kill --kill-whom=main --signal=KILL perilog-controller")?;
    narrator.cluster.kill_controller()?;
    narrator.show(narrator.cluster.controller()?, &["systemctl", "is-active", "perilog-controller"]).map(drop)
}

fn start(narrator: &Narrator<'_>) -> Result<()> {
    say("   [ctl]# systemctl start perilog-controller")?;
    narrator.cluster.start_controller()?;
    narrator.cluster.wait_online()
}
