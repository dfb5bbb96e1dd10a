//! Tests of what an attacker with the key of a node, or of several, can do to the controller and to other nodes.

use std::fs;

use bytes::Bytes;
use perilog_core::message::{FromAgent, Held, HeldState, Phase};
use perilog_core::outcome::Outcome;
use perilog_core::task::Reboot;
use perilog_core::{ActionId, ActionName, Attempt, ClusterId, Epoch, JobId, Rank, TaskId};
use perilog_host::clock;
use perilog_proto::{MAX_PAGE, encode_from_agent};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent::{Agent, dial_again, hello, link, link_from};
use crate::bed::{Bed, Controller};
use crate::crowds::{ask, peak_mib, rss_mib};

/// Number of sessions that the attacker opens one after the other, and does not close.
const SESSIONS: usize = 150;

fn held(n: usize, state: HeldState) -> Held {
    let (job, action) = (JobId::new(&format!("x{n}")).unwrap(), ActionName::new("prolog").unwrap());
    let id = ActionId::of(ClusterId::from_name("any"), &job, Attempt::FIRST, &action);
    Held {
        task: TaskId { action: id, rank: Rank(0) },
        job,
        attempt: Attempt::FIRST,
        action,
        limit_ms: None,
        commit: None,
        userid: None,
        local: false,
        state,
    }
}

/// Returns the first sixteen pages of a Hello whose last page never comes. `state`: the state of each task in the
/// pages.
fn pages(host: &str, state: &HeldState) -> Vec<Bytes> {
    let page = |page: usize| {
        let tasks = (page * MAX_PAGE..(page + 1) * MAX_PAGE).map(|n| held(n, state.clone())).collect();
        let mut hello = hello(host, tasks);
        hello.more = true;
        encode_from_agent(&FromAgent::Hello(hello))
    };
    (0..16).map(page).collect()
}

/// Returns the first sixteen pages of a Hello whose last page never comes. Each task in the pages has 1,500 bytes of
/// text.
fn large(host: &str) -> Vec<Bytes> {
    let outcome = Outcome::Refused { why: "x".repeat(1_500) };
    pages(host, &HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None })
}

struct Sizes {
    rss_mib: u64,
    store_kib: u64,
}

fn sizes(bed: &Bed, controller: &Controller) -> Sizes {
    let files = fs::read_dir(bed.store().parent().unwrap()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    Sizes { rss_mib: rss_mib(controller.pid()), store_kib: bytes / 1024 }
}

/// Regression test: an attacker that sent 2,260 bytes over five sessions made the controller use 713 MB. Each Hello of
/// invented jobs used 150 MiB of memory and 25 MiB of disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_hellos_make_nothing_grow_and_nobody_wait() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut other = Agent::connect(&bed, &controller, "n0").await;
    let before = sizes(&bed, &controller);
    let (large, many) = (large("n1"), pages("n1", &HeldState::Ended));
    let mut open = Vec::new();
    let mut longest = 0;
    for n in 0..SESSIONS {
        let mut attacker = link(&bed, &controller, "n1").await;
        // Sends until the controller closes the session.
        for page in if n % 2 == 0 { &large } else { &many } {
            if attacker.writer.send(page.clone()).await.is_err() {
                break;
            }
        }
        open.push(attacker);
        let began_ms = clock::mono_ms();
        ask(&bed.socket(), "Status", json!({}));
        longest = longest.max(clock::mono_ms() - began_ms);
    }
    let after = sizes(&bed, &controller);
    println!(
        "{SESSIONS} sessions: RSS {} -> {} MiB, store {} -> {} KiB, `status` waited {longest} ms at most",
        before.rss_mib, after.rss_mib, before.store_kib, after.store_kib
    );
    assert!(after.rss_mib < before.rss_mib + 128, "{} MiB, then {} MiB", before.rss_mib, after.rss_mib);
    assert!(after.store_kib < before.store_kib + 1024, "{} KiB, then {}", before.store_kib, after.store_kib);
    // The controller admits the node itself beside all of them, and other nodes are undisturbed.
    let mut own = Agent::connect(&bed, &controller, "n1").await;
    ask(&bed.socket(), "Run", json!({"action": "prolog", "job": "f1", "nodes": "n[0-1]"}));
    own.run(Outcome::Ok).await;
    other.run(Outcome::Ok).await;
}

/// Regression test: only two peers with the same certificate may send their Hello at a time, and an attacker with three
/// addresses kept the true agent out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_of_many_addresses_keeps_no_node_from_greeting() {
    let mut bed = Bed::new();
    let controller = bed.start();
    drop(Agent::connect(&bed, &controller, "n1").await);
    // The agent is between its preamble and its Hello while the attacker dials from eight addresses, twice from each.
    let own = link(&bed, &controller, "n1").await;
    let mut attackers = Vec::new();
    for n in 0..16 {
        attackers.push(link_from([127, 0, 0, 2 + n % 8].into(), &bed, &controller, "n1").await);
    }
    let mut hello = hello("n1", vec![]);
    hello.link = 2;
    Agent::greet(own, hello).await;
}

/// Number of addresses from which the attacker connects.
const ADDRESSES: u8 = 8;

/// A node's agent connects for the first time, while an attacker with the node's certificate dials from eight
/// addresses. The attacker dials again as soon as one of its sessions ends. The agent gets its turn in time all the
/// same, and is welcomed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_of_many_addresses_delays_a_first_greeting_by_turns() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut attackers = JoinSet::new();
    let (reported, mut ended) = mpsc::channel(usize::from(ADDRESSES));
    for n in 0..ADDRESSES {
        let address = [127, 0, 0, 2 + n].into();
        attackers.spawn(dial_again(address, &bed, &controller, "n1", reported.clone()).await);
    }
    // The turns of four addresses are over, so the others wait.
    for _ in 0..4 {
        ended.recv().await.unwrap();
    }
    let began_ms = clock::mono_ms();
    let own = link(&bed, &controller, "n1").await;
    Agent::greet(own, hello("n1", vec![])).await;
    println!("the agent greeted after {} ms", clock::mono_ms() - began_ms);
    attackers.abort_all();
}

/// Number of nodes whose keys an attacker has stolen. The attacker connects with all keys at once, each time with a
/// Hello that never ends.
const ATTACKERS: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_hellos_of_many_certificates_take_bounded_memory() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut other = Agent::connect(&bed, &controller, "n0").await;
    let before = sizes(&bed, &controller);
    let mut sending = JoinSet::new();
    for n in 0..ATTACKERS {
        let host = format!("t{n}");
        let mut attacker = link(&bed, &controller, &host).await;
        sending.spawn(async move {
            for page in large(&host) {
                if attacker.writer.send(page).await.is_err() {
                    break;
                }
            }
            // The controller ends the session at the limit of a Hello.
            while let Ok(Some(_)) = attacker.reader.next().await {}
        });
    }
    sending.join_all().await;
    let peak = peak_mib(controller.pid());
    println!("{ATTACKERS} certificates: RSS {} MiB, at most {peak} MiB", before.rss_mib);
    assert!(peak < before.rss_mib + 288, "{} MiB, then {peak} MiB", before.rss_mib);
    ask(&bed.socket(), "Run", json!({"action": "prolog", "job": "f1", "nodes": "n0"}));
    other.run(Outcome::Ok).await;
}

/// Regression test: one task could report any number of overdue scripts with invented names, and the controller wrote
/// 40 MiB of events a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_reports_of_a_task_do_not_fill_the_disk() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut attacker = Agent::connect(&bed, &controller, "n1").await;
    ask(&bed.socket(), "Run", json!({"action": "prolog", "job": "f1", "nodes": "n1"}));
    let start = attacker.accept().await;
    let before = sizes(&bed, &controller);
    for n in 0..20_000u32 {
        let changed = |phase| FromAgent::PhaseChanged { task: start.task, phase, age_ms: 0 };
        let script = || format!("{n}-{}", "x".repeat(200));
        let report = match n % 3 {
            0 => changed(Phase::Overdue { script: script(), limit_ms: 1, doing: String::new() }),
            1 => changed(Phase::Lingering { processes: Vec::new() }),
            _ => FromAgent::Milestone { task: start.task, name: format!("m{n}") },
        };
        attacker.send(&report).await;
    }
    attacker.run_ended(&start, Outcome::Ok).await;
    let after = sizes(&bed, &controller);
    println!(
        "20,000 words of one task: RSS {} -> {} MiB, store {} -> {} KiB",
        before.rss_mib, after.rss_mib, before.store_kib, after.store_kib
    );
    assert!(after.rss_mib < before.rss_mib + 32, "{} MiB, then {} MiB", before.rss_mib, after.rss_mib);
    // The write-ahead log itself may take 4 MiB before it is laid into the store.
    assert!(after.store_kib < before.store_kib + 5 * 1024, "{} KiB, then {}", before.store_kib, after.store_kib);
}

/// More journal lines than the controller writes about one host within a time window of the log limit, including the
/// lines that count the omitted ones.
const LINES: usize = 40;

/// The journal has a bounded number of lines about an attacker, whatever the attacker sends and however often it
/// connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_does_not_fill_the_journal() {
    let mut bed = Bed::new();
    let controller = bed.start();
    for link in 1..=60 {
        let mut hello = hello("n1", vec![]);
        hello.link = link;
        Agent::connect_with(&bed, &controller, hello).await;
    }
    let mut hello = hello("n1", vec![]);
    hello.link = 61;
    let mut attacker = Agent::connect_with(&bed, &controller, hello).await;
    for n in 0..500 {
        attacker.send(&FromAgent::EpochRefused { seen: Epoch { number: 1_000 + n, nonce: 0 } }).await;
    }
    ask(&bed.socket(), "Run", json!({"action": "prolog", "job": "f1", "nodes": "n1"}));
    attacker.run(Outcome::Ok).await;
    drop(Agent::connect(&bed, &controller, "n2").await);
    controller.log.wait_for("n2: offline");
    let text = controller.log.text();
    let about: Vec<&str> = text.lines().filter(|line| line.contains("n1: ")).collect();
    assert!(about.len() < LINES, "{} lines: {about:#?}", about.len());
}
