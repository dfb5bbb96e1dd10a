//! Tests of recovery: an operator restores a copy of the store, while the nodes have gone on since.

use std::fs;

use perilog_core::message::ToAgent;
use perilog_core::outcome::Outcome;
use serde_json::json;

use crate::agent::{Agent, hello};
use crate::bed::Bed;
use crate::python::{call, refused, replies};

/// Replaces the store by a copy that `Backup` gave.
fn restore_copy(bed: &Bed, copy: &[u8]) {
    let store = bed.store();
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", store.display()));
    }
    fs::write(store, copy).unwrap();
}

fn backup(bed: &Bed) -> Vec<u8> {
    use base64::Engine as _;
    let pieces = replies(bed, "Backup", json!({}), &["more"]);
    let data = pieces.iter().filter_map(|piece| piece["parameters"]["data"].as_str());
    data.flat_map(|data| base64::engine::general_purpose::STANDARD.decode(data).unwrap()).collect()
}

fn listed(phase: &str) -> serde_json::Value {
    json!({
        "source": {"name": "flux", "instance": "i1"},
        "attempts": [{"job": "f1", "attempt": "0", "userid": 1000, "ranks": "0", "hosts": "n0", "phase": phase,
                      "tolerate": "0"}],
        "drains": [{"host": "n7", "reason": "bad memory [perilog:4]"}],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_copy_waits_for_a_decision() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    let add = json!({"job": "f1", "nodes": "n0", "userid": 1000, "source": {"name": "flux", "instance": "i1"}});
    call(&bed, "JobAdd", add);
    let run = json!({"job": "f1", "action": "prolog"});
    let copy = backup(&bed);
    // Work after the copy was made.
    call(&bed, "Run", run.clone());
    let start = agent.accept().await;
    agent.finish(&start, Outcome::Ok).await;
    agent.acked(&start).await;
    controller.kill();
    restore_copy(&bed, &copy);

    let controller = bed.start();
    let view = call(&bed, "Recover", json!({}))["recovery"].clone();
    assert!(view["recovery"]["ended_ms"].is_null() && view["recovery"]["why"].is_string(), "{view}");
    assert_eq!(
        (&view["abandoned"][0]["job"], &view["abandoned"][0]["source"]),
        (&json!("f1"), &json!("flux")),
        "{view}"
    );
    let status = call(&bed, "Status", json!({}))["status"].clone();
    assert!(status["notes"][0].as_str().unwrap().contains("perilog ps --abandoned"), "{status}");

    let reported = call(&bed, "Sync", listed("preparing"));
    assert_eq!(
        (&reported["known"], &reported["added"], &reported["refused"]),
        (&json!(1), &json!(0), &json!([])),
        "{reported}"
    );
    let drains = call(&bed, "Drains", json!({}))["drains"].clone();
    assert_eq!(drains[0]["hosts"], "n7", "adopted from the resource manager");
    // The node's task answers the repeated request: no script runs twice.
    let mut agent = Agent::connect_with(&bed, &controller, hello("n0", Vec::new())).await;
    call(&bed, "Run", run);
    let again = match agent.next().await {
        ToAgent::Start(again) => again,
        other => panic!("{other:?}"),
    };
    assert_eq!(again.task, start.task);
    agent.finish(&again, Outcome::Ok).await;
    agent.acked(&again).await;
    let view = call(&bed, "Recover", json!({}))["recovery"].clone();
    assert_eq!(view["abandoned"], json!([]), "{view}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut bed = Bed::new();
    let _controller = bed.start();
    let mut unknown = listed("ended");
    unknown["attempts"][0]["later"] = json!(1);
    let (error, _) = refused(&bed, "Sync", unknown, &[]);
    assert_eq!(error, "org.varlink.service.InvalidParameter");
}

/// Overwrites the first page of an index of the store, whose controller was killed.
fn damage(bed: &Bed) {
    let store = bed.store();
    let page: i64 = {
        let db = rusqlite::Connection::open(&store).unwrap();
        db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        db.query_row("SELECT rootpage FROM sqlite_master WHERE name = 'events_in_order'", [], |row| row.get(0)).unwrap()
    };
    let mut bytes = fs::read(&store).unwrap();
    bytes[(page as usize - 1) * 4096..][..4096].fill(0x5a);
    fs::write(&store, bytes).unwrap();
    fs::write(format!("{}-wal", store.display()), "SQLite takes this log for empty").unwrap();
}

/// Checks that the controller has rebuilt the store, and is in recovery.
fn is_rebuilt(bed: &Bed) {
    let view = call(bed, "Recover", json!({}))["recovery"].clone();
    assert!(view["recovery"]["ended_ms"].is_null() && view["recovery"]["why"].is_string(), "{view}");
    assert_eq!(view["abandoned"][0]["job"], "f1", "{view}");
    let names = fs::read_dir(bed.store().parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().contains("-damaged-")).count(), 1);
}

/// If a disk has lost a page of an index, but no row, the controller rebuilds the store at its next start and begins a
/// generation, without an operator. After a clean end there is no log, so that the start reads no more than it needs.
#[test]
fn a_damaged_store_is_rebuilt_at_a_start_and_may_be_behind() {
    let mut bed = Bed::new();
    let controller = bed.start();
    call(&bed, "JobAdd", json!({"job": "f1", "nodes": "n0"}));
    // Readers have connections of their own.
    call(&bed, "Stats", json!({}));
    controller.signal(rustix::process::Signal::TERM);
    assert!(controller.terminated().success());
    let log = format!("{}-wal", bed.store().display());
    assert!(fs::metadata(&log).map_or(0, |log| log.len()) == 0, "a clean end leaves the log");

    let controller = bed.start();
    controller.kill();
    assert!(fs::exists(&log).unwrap());
    damage(&bed);
    // The host was cut off, and has booted.
    fs::write(format!("{}-lock", bed.store().display()), "another boot").unwrap();
    let controller = bed.start();
    is_rebuilt(&bed);
    controller.kill();
}

/// A kill of the controller damages nothing, so the next controller answers at once, and reads the whole store while it
/// works.
#[test]
fn damage_is_found_after_a_start_and_the_next_start_rebuilds_the_store() {
    let mut bed = Bed::new();
    let controller = bed.start();
    call(&bed, "JobAdd", json!({"job": "f1", "nodes": "n0"}));
    controller.kill();
    damage(&bed);
    let controller = bed.start();
    controller.log.wait_for("the store is damaged (");
    assert!(!controller.terminated().success(), "its service manager starts it again");
    let controller = bed.start();
    is_rebuilt(&bed);
    controller.kill();
}
