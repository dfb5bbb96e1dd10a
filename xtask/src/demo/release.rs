//! `cargo xtask demo release`: an epilog hangs on one node of four. The other three are released as each ends, over two
//! kills of the controller; the fourth is held, drained when its limit is over, and settled manually.
//!
//! Between a script and its release lie an agent, a network, a controller and a hook. At the end, the demo compares the
//! ledgers at both ends: of the scripts on their nodes, and of the resource manager.

use anyhow::{Context, Result};
use perilog_tests::{Cluster, Layer, manager};

use super::narrator::{Narrator, SOON};
use super::stage::{self, R_FILE};
use crate::stages::print_line;

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
    killed_while_notifying(&narrator)?;
    stuck(&narrator)?;
    resolve_and_release(&narrator)?;
    ledgers(&narrator)?;
    narrator.end(
        "Each node was released once, with its own part of R, and none under a live script that was not drained before",
    )
}

fn begin(narrator: &Narrator<'_>) -> Result<()> {
    narrator.announce(
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
    let received = narrator.cluster.received()?;
    narrator.check(received.releases.is_empty(), "nothing is released", format!("{:?}", received.releases))
}

fn first(narrator: &Narrator<'_>) -> Result<()> {
    narrator.announce("The epilog of n0 ends. n0 is released at once, and nothing else")?;
    narrator.cluster.open_gate(0)?;
    released(narrator, 1, "4")
}

fn killed_between(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.announce(
        "Between two releases: kill -9 of the controller. n2 ends with no controller to report to;  then another \
         controller comes up",
    )?;
    kill(narrator)?;
    cluster.open_gate(2)?;
    cluster.wait_scripts_ended(JOB, &[6])?;
    let reported = cluster.received()?.once(JOB).len();
    narrator.check(reported == 1, "the epilog of n2 has ended by its ledger, and no notice is sent", reported)?;
    start(narrator)?;
    released(narrator, 2, "6")
}

fn killed_while_notifying(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.announce(
        "Worse: the resource manager has carried out the release of n3, and the controller dies before it learns that",
    )?;
    cluster.controller()?.write_file(manager::HOLD, "")?;
    cluster.open_gate(3)?;
    cluster.bed().wait_until(
        "the hook has been notified of \
                              n3",
        SOON,
        || Ok(cluster.received()?.once(JOB).len() == 3),
    )?;
    kill(narrator)?;
    cluster.controller()?.sh(&format!("rm {}", manager::HOLD))?;
    start(narrator)?;
    cluster.bed().wait_until("the hook is notified of n3 again", SOON, || Ok(cluster.received()?.again(JOB) > 0))?;
    released(narrator, 3, "7")?;
    let received = cluster.received()?;
    let sequences: Vec<u64> = received.releases.iter().map(|release| release.sequence).collect();
    narrator.check(
        received.again(JOB) == 1,
        &format!("it was reported twice, under the same sequence: {sequences:?}"),
        format!("{sequences:?}"),
    )
}

fn stuck(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator
        .announce("n1 hangs. It is held; past its limit its script is asked to end once, goes on, and n1 is drained")?;
    cluster.bed().wait_until("n1 is drained", SOON, || Ok(cluster.received()?.drained("n1").is_some()))?;
    narrator.perilog(&["ps"])?;
    narrator.perilog(&["why", "n1"])?;
    let drains = narrator.perilog(&["drain"])?;
    narrator.check(
        drains.stdout.contains("10-umount is past its limit of 15s"),
        "the drain says which script, and its limit",
        &drains,
    )?;
    let received = cluster.received()?;
    let others: Vec<&str> = ["n0", "n2", "n3"].into_iter().filter(|host| received.drained(host).is_some()).collect();
    narrator.check(others.is_empty(), "no other node is drained", others.join(", "))?;
    narrator.check(
        received.once(JOB).len() == 3,
        "n1 is not released: a script lives on it",
        format!("{:?}", received.once(JOB)),
    )
}

fn resolve_and_release(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    narrator.announce(
        "An operator has a look, and takes the word: the job is over, n1 stays drained until it is repaired",
    )?;
    let resolve = ["resolve", JOB, "epilog", "--ranks", "n1", "--reason", "lustre1 is down, node goes to repair"];
    narrator.perilog(&resolve)?;
    released(narrator, 4, "5")?;
    narrator.announce(
        "Later the file server answers, and the script ends. What it says is kept as late, and changes \
         nothing; n1 works again",
    )?;
    cluster.open_gate(1)?;
    cluster.wait_scripts_ended(JOB, &[5])?;
    cluster.bed().wait_until("the late result is reported", SOON, || {
        Ok(cluster.perilog(&["events", JOB])?.ok()?.contains("late"))
    })?;
    narrator.perilog(&["events", JOB])?;
    narrator.perilog(&["undrain", "n1"])?;
    cluster.bed().wait_until("n1 is undrained", SOON, || Ok(cluster.received()?.drained("n1").is_none()))?;
    let ps = narrator.perilog(&["ps"])?;
    narrator.check(!ps.stdout.contains(JOB), "nothing of the job waits", &ps)
}

/// Compares the ledgers that the scripts wrote on the nodes with the ledger of notices that the resource manager got.
/// Shows both and counts checks on them, such as that each node was released after its own script's end.
fn ledgers(narrator: &Narrator<'_>) -> Result<()> {
    let cluster = narrator.cluster;
    let (handed, received, ledger) = (stage::HANDED, cluster.received()?, cluster.ledger()?);
    narrator.announce("The ledgers: what the scripts wrote on their nodes, and what the resource manager got")?;
    let runs = ledger.of_job(JOB);
    let begin = runs.first().context("no script has run")?.1.started;
    print_line("   node  rank  epilog ended    released  sequence      notified  epoch  fragment of R")?;
    let mut ends = Vec::new();
    for (key, run) in &runs {
        let (ended, code) = run.ended.context("a script has no end")?;
        let release =
            *received.once(JOB).iter().find(|release| release.ranks.contains(key.rank)).context("a node is missing")?;
        let reported: Vec<String> =
            notices_of(&received, release.sequence).map(|release| release.epoch.to_string()).collect();
        let fragment = release.fragment()?;
        let on_rank = fragment.get(&key.rank).context("a fragment without its rank")?;
        let children: Vec<String> = on_rank.children.iter().map(|(kind, ids)| format!("{kind} {ids}")).collect();
        print_line(&format!(
            "   {:<4}  {:<4}  {:>10.2} s  {:>8.2} s  {:<16}  {:<4}  {:<5}  {}: {}",
            run.node,
            key.rank,
            ended - begin,
            release.at - begin,
            release.sequence,
            reported.len(),
            reported.join(", "),
            on_rank.host,
            [children, on_rank.properties.clone()].concat().join(", ")
        ))?;
        ends.push((run.node.as_str(), ended, release.at, code));
    }
    let stuck = ends.iter().find(|(node, ..)| *node == "n1").map_or(0.0, |(_, ended, ..)| *ended);
    let done = ends.iter().filter(|(node, ..)| *node != "n1");
    let in_time =
        done.clone().count() == 3 && done.clone().all(|(_, ended, reported, _)| ended <= reported && *reported < stuck);
    narrator.check(
        in_time,
        "n0, n2, n3 were released after their own script's end, and did not wait for n1's",
        format!("{ends:?}"),
    )?;
    let drained =
        received.drains.iter().find(|drain| drain.hosts.to_string() == "n1").map_or(f64::MAX, |drain| drain.at);
    let after_drain =
        received.once(JOB).last().is_some_and(|release| release.ranks.contains(5) && drained <= release.at);
    narrator.check(after_drain, "n1 was released last, after its drain", format!("{:?}", received.drains))?;
    let faults = received.faults(JOB, &handed);
    narrator.check(
        faults.is_empty(),
        "every telling is in order; each release is once after (job, attempt, sequence); the last says final",
        faults.join("; "),
    )?;
    narrator.check(
        received.complete(JOB, &handed)?,
        "the fragments are disjoint, and their union is R",
        format!("{:?}", received.once(JOB)),
    )?;
    let comparison = cluster.compare(JOB, SCRIPTS)?;
    print_line(&format!("   {}", comparison.to_string().lines().last().unwrap_or_default().trim()))?;
    narrator.check(comparison.holds(), "what the controller tells of the four epilogs is what they wrote", &comparison)
}

fn notices_of(received: &manager::Received, sequence: u64) -> impl Iterator<Item = &manager::Release> {
    received.releases.iter().filter(move |release| release.sequence == sequence)
}

/// Waits until the resource manager was notified of `number` releases of the job, and checks that the newest one is of
/// the ranks `ranks`, such as `4`.
fn released(narrator: &Narrator<'_>, number: usize, ranks: &str) -> Result<()> {
    let cluster = narrator.cluster;
    let what = format!("release {number} is sent");
    cluster.bed().wait_until(&what, SOON, || Ok(cluster.received()?.once(JOB).len() >= number))?;
    if number == 1 {
        narrator.show(cluster.controller()?, &["tail", "-n", "1", manager::NOTICES])?;
    }
    let received = cluster.received()?;
    let once = received.once(JOB);
    let (reported, faults) = (once.last().context("a release")?, received.faults(JOB, &stage::HANDED));
    let what = format!(
        "the resource manager has rank {ranks} ({}) with its part of R, by sequence {}",
        reported.hosts, reported.sequence
    );
    let right = once.len() == number
        && reported.ranks.to_string() == ranks
        && reported.last == (number == 4)
        && faults.is_empty();
    narrator.check(right, &what, format!("{reported:?} {}", faults.join("; ")))
}

fn kill(narrator: &Narrator<'_>) -> Result<()> {
    print_line("   [ctl]# systemctl kill --kill-whom=main --signal=KILL perilog-controller")?;
    narrator.cluster.kill_controller()?;
    narrator.show(narrator.cluster.controller()?, &["systemctl", "is-active", "perilog-controller"]).map(drop)
}

fn start(narrator: &Narrator<'_>) -> Result<()> {
    print_line("   [ctl]# systemctl start perilog-controller")?;
    narrator.cluster.start_controller()?;
    narrator.cluster.wait_online()
}
