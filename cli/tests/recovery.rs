//! `perilog run`, `perilog wait` and `perilog controller recover` when the controller's store was restored.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use fake::{Call, Done, Error, Hold, More, Place, Step, event, events, finish, running, shown};
use serde_json::{Value, json};

const ATTACHED: &[&str] = &["run", "prolog", "--job", "f1"];

fn of_attempt(sequence: u64, timestamp: f64, name: &str) -> Value {
    json!({"sequence": sequence, "timestamp": timestamp, "name": name,
           "context": {"attempt": "0", "why": "the store is a copy"}})
}

fn verdict(sequence: u64) -> Value {
    event(sequence, "verdict", json!({"verdict": "ok", "status": 0, "ok": "0-3", "by_outcome": {}}))
}

fn refused(code: &str) -> Step {
    Error("io.perilog.Controller.Refused", json!({"code": code, "text": "no job f1"}))
}

/// After a restore the log is shorter than the part that `perilog run` has read. `run` must read it again from the
/// start of the action, because new events get sequence numbers that it has passed already.
#[test]
fn an_older_log_is_read_from_its_start() {
    let before = vec![
        Call("Run"),
        Done(running(false, 4)),
        Call("Events"),
        More(events(&[finish(57, "0-1", "n[0-1]", "ok", json!({}))])),
    ];
    let after = vec![
        Call("Show"),
        Done(shown(None)),
        Call("Run"),
        Done(running(true, 4)),
        Call("Events"),
        Done(events(&[])),
        Call("Events"),
        More(events(&[finish(7, "0-3", "n[0-3]", "ok", json!({})), verdict(8)])),
        Hold,
    ];
    let (output, asked) = Place::new().ask(ATTACHED, vec![before, after]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "n[0-1]: ok\nn[2-3]: ok\nprolog of f1 ok on 4 ranks\n"));
    assert_eq!((&asked[4]["after"], &asked[5]["after"]), (&json!(56), &json!(4)));
}

#[test]
fn a_run_of_a_lost_job_asks_until_the_job_is_back() {
    let daemon = vec![
        vec![Call("Run"), Done(running(false, 4)), Call("Events")],
        vec![Call("Show"), refused("no-such-job")],
        vec![
            Call("Show"),
            Done(shown(None)),
            Call("Run"),
            Done(running(false, 0)),
            Call("Events"),
            More(events(&[verdict(3)])),
            Hold,
        ],
    ];
    let (output, _) = Place::new().ask(ATTACHED, daemon);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let lines: Vec<&str> = output.err.lines().collect();
    assert!(lines[1].contains("no longer has f1") && lines[1].contains("job add"), "{lines:?}");
    assert_eq!(lines[2], "perilog: f1 is there again");
    assert!(lines[3].contains("asked for it again"), "{lines:?}");
}

/// `perilog run` repeats its request when its attempt is abandoned, so that the controller takes the attempt up again.
#[test]
fn a_run_asks_again_when_its_attempt_is_abandoned() {
    let why = "the controller has just started, and first waits for its nodes";
    let mut reply = running(true, 4);
    reply["waits"] = json!(why);
    let daemon = vec![
        vec![Call("Run"), Done(reply), Call("Events"), More(events(&[of_attempt(5, 1.0, "attempt-abandoned")]))],
        vec![
            Call("Show"),
            Done(shown(None)),
            Call("Run"),
            Done(running(true, 4)),
            Call("Events"),
            Done(events(&[of_attempt(5, 1.0, "attempt-abandoned")])),
            Call("Events"),
            More(events(&[of_attempt(6, 1.0, "attempt-taken-up"), verdict(7)])),
            Hold,
        ],
    ];
    let (output, asked) = Place::new().ask(ATTACHED, daemon);
    assert_eq!(
        (output.code, output.out.as_str(), output.err.as_str()),
        (
            Some(0),
            "prolog of f1 exists already (attempt 0); this command attached to it\nattempt 0 is abandoned until a \
             hook, an edge or a user asks for it (the store is a copy); see perilog ps --abandoned\nattempt 0 was \
             asked for again\nprolog of f1 ok on 4 ranks\n",
            &*format!("perilog: f1: {why}\n")
        )
    );
    assert_eq!(asked.last().unwrap()["after"], 5);
}

/// After a restore, `perilog wait` does not count an event that only the lost epoch has recorded.
#[test]
fn a_wait_says_what_it_waits_for_and_reads_the_log_of_the_copy() {
    let begun = event(2, "action-start", json!({"id": "x", "ranks": "0-3", "hosts": "n[0-3]"}));
    let daemon = vec![
        vec![
            Call("Events"),
            Done(events(&[begun.clone(), of_attempt(3, 1.0, "milestone")])),
            Call("Show"),
            Done(shown(None)),
            Call("Events"),
        ],
        vec![Call("Events"), refused("no-such-job")],
        vec![
            Call("Events"),
            Done(events(&[of_attempt(3, 2.0, "attempt-abandoned")])),
            Call("Events"),
            Done(events(&[begun, of_attempt(3, 2.0, "attempt-abandoned")])),
            Call("Show"),
            Done(shown(Some("job f1 needs confirmation"))),
            Call("Events"),
            More(events(&[of_attempt(4, 2.0, "attempt-taken-up"), verdict(5)])),
            Hold,
        ],
    ];
    let (output, asked) = Place::new().ask(&["wait", "f1"], daemon);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "prolog of f1 ok on 4 ranks\n"), "{}", output.err);
    let lines: Vec<&str> = output.err.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "perilog: f1 is there again",
            "perilog: the controller's store was restored; this command reads the log of f1 from its start",
            "perilog: f1: job f1 needs confirmation",
            "perilog: f1: attempt 0 was asked for again",
        ]
    );
    assert!(output.err.contains("no longer has f1"), "{}", output.err);
    assert_eq!(asked[5]["after"], 0);
}

#[test]
fn what_a_host_reported_is_forgotten_by_one_command() {
    let daemon = vec![vec![Call("NodeForget"), Done(json!({"tasks": 400}))]];
    let (output, asked) = Place::new().ask(&["node", "forget", "n1", "--reports"], daemon);
    assert_eq!((output.code, &asked[0]), (Some(0), &json!({"nodes": "n1", "reports": true})), "{}", output.err);
    assert!(output.out.starts_with("forgot 400 tasks that the store does not know\n"), "{}", output.out);
}
