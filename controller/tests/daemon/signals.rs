//! Tests of the command line and of signals.

use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::agent::{Agent, next_frame};
use crate::bed::Bed;
use crate::python::{Stream, call, run};

fn output(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[test]
fn a_wrong_configuration_is_pointed_at_and_nothing_is_started() {
    let mut bed = Bed::new();
    bed.extra = "start-grace = \"5x\"\nretension = 3\n".to_owned();
    bed.write_config();
    let file = bed.config_file().display().to_string();
    for act in [None, Some("--check-config"), Some("--print-config")] {
        let (code, text) = output(bed.command().args(act));
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(&format!("{file}:4:15: start-grace: malformed duration \"5x\"")), "{text}");
        assert!(text.contains(&format!("{file}:5:1: ")) && text.contains("did you mean `retention`?"), "{text}");
    }
    assert!(!bed.store().exists());
    assert_eq!(output(bed.command().arg("--frob")).0, Some(2));
    assert_eq!(
        output(bed.command().arg("--version")),
        (Some(0), format!("perilog-controller {}\n", env!("CARGO_PKG_VERSION")))
    );
    bed.extra.clear();
    bed.write_config();
    assert_eq!(output(bed.command().arg("--check-config")), (Some(0), format!("{file}: ok\n")));
    // Each value with where it is from: a default, a line of the file, a line of a drop-in.
    let drop_in = bed.dir.path().join("controller.d/site.toml");
    std::fs::create_dir(bed.dir.path().join("controller.d")).unwrap();
    std::fs::write(&drop_in, "# The site's.\nretention = \"3d\"\n").unwrap();
    let (code, printed) = output(bed.command().arg("--print-config"));
    assert_eq!(code, Some(0), "{printed}");
    for (assignment, origin) in [
        ("start-grace = \"60s\"", "default".to_owned()),
        ("cluster = \"test\"", format!("{file}:1")),
        ("retention = \"259200s\"", format!("{}:2", drop_in.display())),
    ] {
        let line = printed.lines().find(|line| line.starts_with(assignment));
        assert!(line.is_some_and(|line| line.ends_with(&format!("# {origin}"))), "{assignment} {origin}: {printed}");
    }
}

#[test]
fn an_obstacle_is_reported_and_the_status_is_1() {
    let mut bed = Bed::new();
    let _first = bed.start();
    let (code, text) = output(&mut bed.command());
    assert_eq!(code, Some(1));
    assert!(text.contains("in use") || text.contains("another controller is using this store"), "{text}");
    std::fs::remove_file(bed.dir.path().join("tls/controller.key")).unwrap();
    let (code, text) = output(&mut bed.command());
    assert!(code == Some(1) && text.contains("controller.key"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_in_good_order() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    let mut stream = Stream::open(&bed, "Events", json!({"job": "f1", "follow": true}), &["more"]);
    stream.events_until("action-start");
    agent.finish(&start, perilog_core::Outcome::Ok).await;
    agent.acked(&start).await;
    stream.events_until("verdict");
    controller.signal(Signal::TERM);
    controller.wait_notified("STOPPING=1");
    assert!(matches!(next_frame(&mut agent.link).await, Ok(None)), "a goodbye, not a cut");
    assert_eq!(stream.next()["parameters"]["code"], "unavailable");
    assert_eq!(controller.terminated().code(), Some(0));
    let _again = bed.start();
    assert_eq!(call(&bed, "Show", json!({"job": "f1"}))["job"]["attempts"][0]["actions"][0]["verdict"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reloads_settings_and_certificates_or_keeps_the_old() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let agent = Agent::connect(&bed, &controller, "n0").await;
    bed.extra = "start-grace = \"5x\"\n".to_owned();
    bed.write_config();
    controller.signal(Signal::HUP);
    let reported = controller.wait_notified("READY=1");
    assert!(reported.contains("the reload failed"), "{reported}");
    controller.log.wait_for("malformed duration");
    let notes = call(&bed, "Status", json!({}))["status"]["notes"].to_string();
    assert!(notes.contains("the reload failed") && notes.contains("malformed duration"), "{notes}");

    // A new authority: connected agents of the old one stay, new agents of the new one connect.
    bed.extra = "[action.prolog]\ntimeout = \"7s\"\n".to_owned();
    bed.authority = crate::authority::Authority::new(&bed.dir.path().join("tls"));
    bed.authority.controller();
    bed.write_config();
    controller.signal(Signal::HUP);
    controller.wait_notified("READY=1");
    let mut other = Agent::connect(&bed, &controller, "n1").await;
    call(&bed, "Run", run("f1", "n1"));
    assert_eq!(other.accept().await.timeout_ms, Some(7_000));
    let status = &call(&bed, "Status", json!({}))["status"];
    // The bed's second file names the port that the first left to the system.
    assert_eq!((&status["online"], &status["notes"]), (&json!(2), &json!(["restart needed for listen"])));
    drop(agent);
}
