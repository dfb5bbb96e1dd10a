//! `perilog run` against a scripted controller.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use std::io::{BufRead, BufReader, Read};

use fake::{Call, CliOutput, Done, Error, Hold, More, Place, event, events, finish, read_until, running, serve};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const RUN: &[&str] = &["run", "prolog", "--job", "f1", "--nodes", "n[0-3]"];

fn verdict(sequence: u64) -> serde_json::Value {
    event(sequence, "verdict", json!({"verdict": "failed", "status": 7, "ok": "0-2", "by_outcome": {"failed": "3"}}))
}

fn one_failed() -> Vec<fake::Step> {
    vec![
        Call("Run"),
        Done(running(false, 4)),
        Call("Events"),
        More(events(&[
            event(5, "action-start", json!({"id": "x", "ranks": "0-3", "hosts": "n[0-3]"})),
            finish(7, "0-2", "n[0-2]", "ok", json!({"elapsed_ms": {"min": 800, "median": 1000, "max": 1200}})),
        ])),
        More(events(&[
            finish(8, "3", "n3", "failed (exit 7)", json!({"status": 7, "message": "mount: no such device"})),
            // An event of another action, not to be shown.
            json!({"sequence": 9, "timestamp": 1.0, "name": "finish",
                   "context": {"action": "epilog", "attempt": "0", "ranks": "0",
                   "hosts": "n0", "outcome": "ok", "result": "ok"}}),
            verdict(10),
        ])),
        Hold,
    ]
}

#[test]
fn results_are_lines_and_the_verdict_is_the_exit_code() {
    let (output, asked) = Place::new().ask(RUN, vec![one_failed()]);
    assert_eq!(
        output.out,
        "n[0-2]: ok  800ms-1.2s\n\
         n3: failed (exit 7): \"mount: no such device\"\n\
         prolog of f1 failed: 3 ok, 1 failed (n3)\n\
         see: perilog logs f1 --rank 3 --action prolog\n"
    );
    assert_eq!((output.code, output.err.as_str()), (Some(1), ""));
    assert_eq!((&asked[0]["nodes"], &asked[0]["known"]), (&json!("n[0-3]"), &json!(true)));
    assert_eq!(asked[1], json!({"job": "f1", "after": 4, "follow": true}));
}

#[test]
fn propagate_json_and_quiet() {
    let with = |flag: &str| Place::new().ask(&[RUN, &[flag]].concat(), vec![one_failed()]).0;
    assert_eq!(with("--propagate").code, Some(7));
    let quiet = with("--quiet");
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (Some(1), "", ""));
    let json = with("--json");
    let lines: Vec<serde_json::Value> = json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], running(false, 4));
    let names: Vec<&str> = lines[1..].iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["action-start", "finish", "finish", "verdict"]);
    assert_eq!(lines[4]["sequence"], 10);
}

#[test]
fn what_is_given_is_what_is_asked() {
    let place = Place::new();
    let args = [
        "--ranks",
        "n[1-2]",
        "--attempt",
        "1.50",
        "--user",
        "1000",
        "--env",
        "A=b=c",
        "--timeout",
        "1.5m",
        "--force",
        "-q",
    ];
    let refused = Error("io.perilog.Controller.Refused", json!({"code": "conflict", "text": "it exists over ranks 0"}));
    let (output, asked) = place.ask(&[RUN, &args].concat(), vec![vec![Call("Run"), refused]]);
    assert_eq!((output.code, output.err.as_str()), (Some(10), "perilog: it exists over ranks 0\n"));
    assert_eq!(
        asked[0],
        json!({"job": "f1", "attempt": "1.5", "action": "prolog", "nodes": "n[0-3]", "targets": "n[1-2]",
               "userid": 1000,
               "env": {"A": "b=c"}, "timeout": "90s"})
    );
}

#[test]
fn a_controller_away_in_the_middle_is_waited_for_silently() {
    let place = Place::new();
    let before = serve(
        &place.socket(),
        vec![vec![
            Call("Run"),
            Done(running(false, 4)),
            Call("Events"),
            More(events(&[finish(6, "0-1", "n[0-1]", "ok", json!({}))])),
        ]],
    );
    let mut child = place.spawn(RUN);
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    let seen = read_until(&mut err, "the controller is away");
    assert_eq!(seen.len(), 1, "{seen:?}");
    before.asked();

    // The controller is back: first it still starts up, then it drops a connection at once, then it stays.
    let after = serve(
        &place.socket(),
        vec![
            vec![
                Call("Run"),
                Error("io.perilog.Controller.Refused", json!({"code": "unavailable", "text": "not yet"})),
            ],
            vec![Call("Run")],
            vec![
                Call("Run"),
                Done(running(true, 4)),
                Call("Events"),
                Done(events(&[finish(6, "0-1", "n[0-1]", "ok", json!({}))])),
                Call("Events"),
                More(events(&[
                    finish(8, "2", "n2", "ok", json!({})),
                    finish(9, "3", "n3", "lost (the node rebooted)", json!({})),
                    event(
                        10,
                        "verdict",
                        json!({"verdict": "lost", "status": 0, "ok": "0-2", "by_outcome": {"lost": "3"}}),
                    ),
                ])),
                Hold,
            ],
        ],
    );
    let output = CliOutput::of(child.wait_with_output().unwrap());
    assert_eq!(
        output.out,
        "n[0-1]: ok\nn2: ok\nn3: lost (the node rebooted)\nprolog of f1 lost: 3 ok, 1 lost (n3)\n\
         see: perilog nodes n3\n"
    );
    assert_eq!(output.code, Some(4));
    let rest: Vec<String> = err.map(Result::unwrap).collect();
    assert_eq!(rest, ["perilog: the controller is back"]);
    let asked = after.asked();
    assert_eq!(asked[2]["attempt"], "0", "the attempt was learned");
    // A restored store may not know a node on which the action runs.
    assert_eq!(asked[2].get("known"), None);
    assert_eq!((&asked[3]["after"], &asked[4]["after"]), (&json!(5), &json!(6)), "from the last event that was seen");
}

#[test]
fn an_older_controller_is_asked_without_what_it_does_not_take() {
    let unknown = Error("org.varlink.service.InvalidParameter", json!({"parameter": "unknown field `known`"}));
    let mut steps = vec![Call("Run"), unknown];
    steps.append(&mut one_failed());
    let (output, asked) = Place::new().ask(RUN, vec![steps]);
    assert_eq!((output.code, output.err.as_str()), (Some(1), ""));
    assert_eq!((&asked[0]["known"], asked[1].get("known")), (&json!(true), None));
}

/// `perilog run` repeats its request after a crash of the controller. A controller killed right after its commit has
/// begun the action, but has replied to no client.
#[test]
fn a_controller_lost_in_the_first_call_is_asked_again() {
    let (output, asked) = Place::new().ask(RUN, vec![vec![Call("Run")], one_failed()]);
    assert_eq!((output.code, asked.len()), (Some(1), 3), "{}", output.err);
    assert_eq!(asked[0], asked[1]);
    assert!(output.err.contains("the controller is away"), "{}", output.err);
}

#[test]
fn a_controller_that_lost_its_store_begins_its_log_anew() {
    let place = Place::new();
    let daemon = vec![
        vec![
            Call("Run"),
            Done(running(false, 40)),
            Call("Events"),
            More(events(&[finish(57, "0-1", "n[0-1]", "ok", json!({}))])),
        ],
        vec![
            Call("Run"),
            Done(running(true, 0)),
            Call("Events"),
            More(events(&[
                finish(2, "0-3", "n[0-3]", "ok", json!({})),
                event(3, "verdict", json!({"verdict": "ok", "status": 0, "ok": "0-3", "by_outcome": {}})),
            ])),
            Hold,
        ],
    ];
    let (output, asked) = place.ask(RUN, daemon);
    assert_eq!(output.out, "n[0-1]: ok\nn[2-3]: ok\nprolog of f1 ok on 4 ranks\n");
    assert_eq!((output.code, &asked[3]["after"]), (Some(0), &json!(0)));
}

#[test]
fn the_log_has_the_verdict_of_an_attempt_closed_meanwhile() {
    let place = Place::new();
    let closed = Error(
        "io.perilog.Controller.Refused",
        json!({"code": "attempt-closed", "text": "attempt 0 of job f1 is closed"}),
    );
    let daemon = vec![
        vec![Call("Run"), Done(running(false, 4)), Call("Events")],
        vec![Call("Run"), closed, Call("Events"), More(events(&[verdict(9)])), Hold],
    ];
    let (output, _) = place.ask(RUN, daemon);
    assert_eq!(output.code, Some(1));
    assert!(output.err.ends_with("perilog: the controller is back\n"), "{}", output.err);
}

#[test]
fn ctrl_c_detaches_and_says_how_to_go_on() {
    let place = Place::new();
    let daemon = serve(
        &place.socket(),
        vec![vec![
            Call("Run"),
            Done(running(false, 4)),
            Call("Events"),
            More(events(&[event(
                5,
                "overdue",
                json!({"ranks": "3", "hosts": "n3", "script": "10-mount.sh", "limit_ms": 1000}),
            )])),
            Hold,
        ]],
    );
    let mut child = place.spawn(RUN);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = read_until(&mut out, "overdue");
    assert_eq!(seen, ["n3: overdue: 10-mount.sh is past its limit of 1s, and keeps running"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = CliOutput::of(child.wait_with_output().unwrap());
    assert_eq!(output.code, Some(130));
    assert_eq!(
        output.err,
        "perilog: detached; prolog of f1 continues\n\
         \u{20} wait for it:  perilog wait f1 --action prolog --attempt 0\n\
         \u{20} cancel it:    perilog cancel f1 prolog --attempt 0\n"
    );
    assert_eq!(daemon.asked().len(), 2, "nothing was cancelled");
}

#[test]
fn without_a_controller_it_says_so_at_once() {
    let place = Place::new();
    let output = CliOutput::of(place.command(RUN).output().unwrap());
    assert_eq!(output.code, Some(7));
    assert_eq!(
        output.err,
        format!(
            "perilog: no controller at {} (No such file or directory (os error 2)); see whether perilog-controller \
             runs: systemctl status perilog-controller\n",
            place.socket().display()
        )
    );
}

#[test]
fn what_is_malformed_is_pointed_at_and_nobody_is_asked() {
    let place = Place::new();
    for (args, place_of) in [
        (vec!["run", "prolog", "--job", "f1", "--nodes", "n[3-1]"], "    n[3-1]\n        ^"),
        (vec!["run", "prolog", "--job", "f/1", "--nodes", "n0"], "    f/1\n     ^"),
        (vec!["run", "Prolog", "--job", "f1"], "    Prolog\n    ^"),
        (vec!["run", "prolog", "--job", "f1", "--timeout", "5x"], "    5x\n     ^"),
        (vec!["run", "prolog", "--job", "f1", "--env", "A-B=1"], "    A-B=1\n     ^"),
        (vec!["cancel", "f1", "--ranks", "0,2-"], "    0,2-\n        ^"),
        (vec!["nodes", "n0,,n[1"], "    n0,,n[1\n           ^"),
    ] {
        let output = CliOutput::of(place.command(&args).output().unwrap());
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.err);
        assert!(output.err.contains(place_of), "{args:?}: {}", output.err);
    }
}

#[test]
fn a_reader_that_went_away_ends_it_quietly_and_not_as_success() {
    let place = Place::new();
    let daemon = serve(&place.socket(), vec![one_failed()]);
    let mut child = place.spawn(RUN);
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(141), ""));
    daemon.asked();
}
