//! Choice of an attempt if the operator names none: the newest requested one. A node that reports a newer attempt, from
//! an old state or with a stolen key, has no influence.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use fake::{Call, CliOutput, Done, Error, Place, event, events, serve};
use serde_json::{Value, json};

/// Returns a log in which attempt 0 was requested and its prolog is done; a node reports attempt 7. `more`: further
/// events.
fn log(more: &[Value]) -> Value {
    let mut of_a_node =
        event(5, "action-start", json!({"id": "y", "ranks": "0-1", "hosts": "n[0-1]", "rebuilt": true}));
    of_a_node["context"]["attempt"] = json!("7");
    let mut all = vec![
        json!({"sequence": 1, "timestamp": 1.0, "name": "attempt", "context": {"attempt": "0", "hosts": "n[0-1]"}}),
        event(2, "action-start", json!({"id": "x", "ranks": "0-1", "hosts": "n[0-1]"})),
        event(4, "verdict", json!({"verdict": "ok", "status": 0, "ok": "0-1", "by_outcome": {}})),
        of_a_node,
    ];
    all.extend(more.iter().cloned());
    events(&all)
}

#[test]
fn wait_is_for_the_attempt_that_was_asked_for() {
    let past = || {
        vec![vec![Call("Events"), Done(log(&[])), Call("Show"), Done(fake::shown(None)), Call("Events"), fake::Hold]]
    };
    for (args, code, out) in [
        (&["wait", "f1", "--timeout", "0s"][..], 0, "prolog of f1 ok on 2 ranks\n"),
        (&["wait", "f1", "--timeout", "0s", "--attempt", "7"], 124, ""),
    ] {
        let (output, _) = Place::new().ask(args, past());
        assert_eq!((output.code, output.out.as_str()), (Some(code), out), "{args:?}: {}", output.err);
    }
}

#[test]
fn a_timeline_is_of_the_attempt_that_was_asked_for() {
    let action = |attempt: &str| {
        json!({"attempt": attempt, "open": true, "hosts": "n[0-1]",
               "actions": [{"id": "00000000-0000-5000-8000-000000000000", "name": "prolog",
            "ranks": "0-1", "began_ms": 1, "ended_ms": null, "timeout_ms": null, "verdict": null, "ok": "", "open": [],
            "ended": []}]})
    };
    let job = |attempts: Vec<Value>| json!({"job": {"job": "f1", "userid": null, "attempts": attempts}});
    let timeline = || vec![Call("Timeline"), Done(json!({"tasks": []}))];
    let (output, asked) = Place::new().ask(
        &["--json", "timeline", "f1"],
        vec![
            vec![Call("Show"), Done(job(vec![action("0"), action("7")]))],
            vec![Call("Events"), Done(log(&[]))],
            timeline(),
        ],
    );
    assert_eq!((output.code, asked.last().unwrap()["attempt"].as_str()), (Some(0), Some("0")), "{}", output.err);
    // A single attempt is chosen without reading the log.
    let (output, asked) = Place::new()
        .ask(&["--json", "timeline", "f1"], vec![vec![Call("Show"), Done(job(vec![action("3")]))], timeline()]);
    assert_eq!((output.code, asked.last().unwrap()["attempt"].as_str()), (Some(0), Some("3")), "{}", output.err);
}

/// Regression test: for a prolog that slurmctld ran again, the hook added the attempt that a node had reported. That
/// closed the running attempt. The hook must count only requested attempts.
#[test]
fn a_hook_counts_the_requested_attempts() {
    let finish =
        json!({"sequence": 6, "timestamp": 1.0, "name": "job-finish", "context": {"attempt": "0", "ranks": "0-1"}});
    for (more, attempt) in [(vec![], "0"), (vec![finish], "1")] {
        let place = Place::new();
        let refused = Error("io.perilog.Controller.Refused", json!({"code": "conflict", "text": "no"}));
        let steps = vec![Call("Events"), Done(log(&more)), Call("JobAdd"), refused];
        let daemon = serve(&place.socket(), vec![steps]);
        let mut hook = place.command(&["hook", "slurmctld-prolog"]);
        hook.env("SLURM_JOB_ID", "f1").env("SLURM_JOB_NODELIST", "n[0-1]").env_remove("SLURM_JOB_RESTART_COUNT");
        let output = CliOutput::of(hook.output().unwrap());
        let asked = daemon.asked();
        assert_eq!((output.code, asked[1]["attempt"].as_str()), (Some(10), Some(attempt)), "{}", output.err);
    }
}

/// A hook sends a parameter that an older agent does not know, and the agent refuses the call. The hook repeats the
/// call without such parameters. This happens during an upgrade: the hook's program is new before the agent restarts.
#[test]
fn a_hook_asks_an_older_agent_for_less() {
    let place = Place::new();
    let unknown =
        Error("org.varlink.service.InvalidParameter", json!({"parameter": "instance: unknown field `instance`"}));
    let ended = json!({"unit": "u.service", "attempt": "0", "outcome": {"outcome": "ok"}, "status": 0});
    let daemon = serve(&place.socket(), vec![vec![Call("Exec"), unknown], vec![Call("Exec"), Done(ended)]]);
    let mut hook = place.command(&["hook", "slurm-prolog", "--orphaned", "/bin/true"]);
    hook.env("SLURM_JOB_ID", "7").env("SLURM_JOB_START_TIME", "1700000000").env("SLURM_JOB_RESTART_COUNT", "0");
    hook.env("SLURM_NODELIST", "n0").env("SLURMD_NODENAME", "n0");
    let output = CliOutput::of(hook.output().unwrap());
    let asked = daemon.asked();
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert_eq!((&asked[0]["instance"], &asked[0]["orphaned"]), (&json!("1700000000"), &json!("/bin/true")));
    let starter = asked[0]["env"]["PERILOG_STARTER"].as_str().unwrap();
    assert!(starter.starts_with(&format!("{}:", std::process::id())), "{starter}");
    assert!(asked[1]["instance"].is_null() && asked[1]["orphaned"].is_null(), "{:?}", asked[1]);
    assert!(output.err.contains("older agent"), "{}", output.err);
}
