//! Tests of the trace that `--log trace` writes: it is played again without the store, and has no secrets.

use perilog_core::controller::overview::MAX_VERDICTS;
use perilog_core::controller::trace::{Replayed, replay};
use perilog_core::outcome::Outcome;
use serde_json::json;

use crate::agent::Agent;
use crate::bed::{Bed, Controller};
use crate::python::{call, refused, replies};

fn start(bed: &mut Bed) -> Controller {
    bed.write_config();
    let mut command = bed.command();
    command.args(["--log", "trace"]);
    bed.start_with(command)
}

/// Returns the result of a replay of the log, with its text.
fn replayed(log: &str) -> (Replayed, String) {
    let mut text = String::new();
    let done = replay(log.lines(), &mut |line| text += &format!("{line}\n"));
    (done.unwrap(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_of_the_daemon_is_played_again() {
    let mut bed = Bed::new();
    let controller = start(&mut bed);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "JobAdd", json!({"job": "f1", "nodes": "n[0-1]", "tolerate": "1"}));
    let env = json!({"TOKEN": "geheim"});
    call(&bed, "Run", json!({"job": "f1", "action": "prolog", "targets": "0", "timeout": "1.5m", "env": env}));
    agent.run(Outcome::Ok).await;
    call(&bed, "Drain", json!({"nodes": "n7", "reason": "a test", "force": true}));
    call(&bed, "JobFinish", json!({"job": "f1"}));
    call(&bed, "Resolve", json!({"job": "f1", "targets": "1", "ok": true, "reason": "no such node"}));
    agent.run(Outcome::Ok).await;
    // The newest verdicts stay in memory: other jobs have them.
    call(&bed, "JobAdd", json!({"job": "f3", "nodes": "n7", "resources": ["rabbit1"]}));
    for number in 0..MAX_VERDICTS {
        let about = json!({"job": "f3", "action": format!("stage{number}")});
        let with = |name: &str, value: serde_json::Value| {
            let mut parameters = about.clone();
            parameters[name] = value;
            parameters
        };
        let mut start = with("lease", json!("1m"));
        start["resources"] = json!(["rabbit1"]);
        call(&bed, "ActionStart", start);
        call(&bed, "ActionReport", with("outcome", json!("ok")));
    }
    for method in ["Ps", "Nodes", "Drains", "Recover"] {
        replies(&bed, method, json!({}), &["more"]);
    }
    let first = controller.log.clone();
    assert!(controller.log.text().lines().any(|line| line.contains("{\"trace\":") && line.contains(" job=\"f1\"")));
    controller.kill();
    // The job is over: this controller reads it from the store when it is shown.
    let controller = start(&mut bed);
    call(&bed, "Show", json!({"job": "f1"}));
    refused(&bed, "Show", json!({"job": "f2"}), &[]);
    call(&bed, "Status", json!({}));
    let log = format!("{}\n{}", first.text(), controller.log.text());
    drop(controller);

    let (done, text) = replayed(&log);
    assert_eq!((done.skipped, done.differences), (0, 0), "{text}");
    assert!(done.inputs > 12 && done.compared > 30, "{done:?}");
    assert!(text.contains("fetched the rows of 1 jobs"), "{text}");
    assert!(!log.contains("geheim") && log.contains("xxxxxx"), "{log}");
    // An input that was not so.
    let altered = log.replace("\"no such node\"", "\"another text\"");
    let inputs = altered.lines().map(|line| if line.contains("\"input\"") { line.to_owned() } else { restored(line) });
    let (done, text) = replayed(&inputs.collect::<Vec<_>>().join("\n"));
    assert!(done.differences > 0 && text.contains("DIFFERS"), "{text}");
}

fn restored(line: &str) -> String {
    line.replace("\"another text\"", "\"no such node\"")
}

#[test]
fn a_controller_that_is_not_asked_for_a_trace_writes_none() {
    let mut bed = Bed::new();
    let controller = bed.start();
    call(&bed, "Status", json!({}));
    assert_eq!(controller.log.count("{\"trace\":"), 0);
    let output = bed.command().args(["--log", "inof"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && printed.contains("log level `inof`: expected error, warn"), "{printed}");
}
