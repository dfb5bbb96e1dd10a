//! Commands of an operator who is used to squeue, sacct and kubectl, against a scripted daemon: requests, output, exit
//! codes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use fake::{Call, CliOutput, Done, Error, Hold, More, Place, event, events, finish, serve};
use serde_json::{Value, json};

fn log() -> Value {
    events(&[
        json!({"sequence": 1, "timestamp": 1.0, "name": "attempt", "context": {"attempt": "0", "hosts": "n[0-1]"}}),
        event(2, "action-start", json!({"id": "x", "ranks": "0-1", "hosts": "n[0-1]"})),
        finish(3, "0-1", "n[0-1]", "ok", json!({})),
        event(4, "verdict", json!({"verdict": "ok", "status": 0, "ok": "0-1", "by_outcome": {}})),
    ])
}

/// Regression tests: `perilog drain "n[1-2]"` with n2 drained already said that it drained both. `perilog undrain
/// "n[1-2]"` with n2 in service was refused as a whole. `--reason` was refused, with the tip `--json`.
#[test]
fn drains_are_made_and_lifted_host_by_host() {
    let drained = |already: &str| json!({"tasks": 1, "already": already});
    let undrained = |already: &str, lifting: &str| json!({"tasks": 1, "already": already, "lifting": lifting});
    let drain = |host: &str, reason: &str| json!({"nodes": host, "reason": reason});
    let older = || json!({"tasks": 2});
    #[rustfmt::skip]
    let table: Vec<(&[&str], &'static str, Value, Value, &str)> = vec![
        (&["drain", "n[1-2]", "fan"], "Drain", drain("n[1-2]", "fan"), drained("n2"),
         "n1: drained\nn2: drained already; the first reason stays, and yours is recorded as a later one\n"),
        (&["drain", "n1", "--reason", "fan"], "Drain", drain("n1", "fan"), drained(""), "n1: drained\n"),
        (&["drain", "n[1-2]", "fan"], "Drain", drain("n[1-2]", "fan"), older(), "n[1-2]: drained\n"),
        (&["undrain", "n[1-3]"], "Undrain", json!({"nodes": "n[1-3]"}), undrained("n2", "n3"),
         "n1: drain lifted\nn2: not drained\nn3: undrained already, but the drain hook has not carried that out; to \
          undrain without the hook: perilog undrain n3 --forget\n"),
        (&["undrain", "n2"], "Undrain", json!({"nodes": "n2"}), undrained("n2", ""), "n2: not drained\n"),
    ];
    for (args, method, asked, reply, out) in table {
        let mut script = vec![vec![Call(method), Done(reply)]];
        script.extend((method == "Undrain").then(|| vec![Call("Ps"), Done(json!({"rows": []}))]));
        let (output, calls) = Place::new().ask(args, script);
        assert_eq!((output.code, output.out.as_str(), &calls[0]), (Some(0), out, &asked), "{args:?}: {}", output.err);
    }
    let output = CliOutput::of(Place::new().command(&["drain", "n3"]).output().unwrap());
    let text = "perilog: give the reason of the drain: perilog drain n3 \"REASON\"\n";
    assert_eq!((output.code, output.err.as_str()), (Some(2), text));
}

#[test]
fn jobs_asks_for_a_page_of_the_newest() {
    let reply = || vec![vec![Call("Jobs"), Done(json!({"jobs": [], "truncated": false}))]];
    let (output, asked) = Place::new().ask(&["jobs", "--failed", "-S", "2026-11-20T03:12:07Z", "-n", "5"], reply());
    assert_eq!(
        (output.code, output.out.starts_with("no action began or ended in that time")),
        (Some(0), true),
        "{}",
        output.err
    );
    assert_eq!(asked, [json!({"action": null, "since_ms": 1_795_144_327_000_u64, "failed": true, "limit": 5})]);
    // Pages become one list; the last says whether older actions match, too.
    let row = |job: &str| {
        json!({"job": job, "attempt": "0", "userid": null, "action": "prolog", "state": "ok", "began_ms": 1,
               "ended_ms": 2, "hosts": "n0", "bad": "", "result": null, "script": null, "line": null, "why": null})
    };
    let script = vec![vec![
        Call("Jobs"),
        More(json!({"jobs": [row("f2")]})),
        Done(json!({"jobs": [row("f1")], "truncated": true})),
    ]];
    let (output, _) = Place::new().ask(&["jobs", "-S", "infinity", "--json"], script);
    let all: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(all, json!({"jobs": [row("f2"), row("f1")], "truncated": true}), "{}", output.err);
    let (_, asked) = Place::new().ask(&["jobs", "epilog", "--since", "infinity"], reply());
    assert_eq!(asked, [json!({"action": "epilog", "since_ms": 0, "failed": false, "limit": 100})]);
}

#[test]
fn the_newest_events_are_chosen() {
    let script = || vec![vec![Call("Events"), Done(log())]];
    let (output, _) = Place::new().ask(&["events", "f1", "-n", "2", "-q"], script());
    assert_eq!((output.code, output.out.as_str()), (Some(0), "finish\nverdict\n"));
    let (output, _) = Place::new().ask(&["events", "f1", "--since", "2000-01-01", "-q"], script());
    assert_eq!(output.out, "action-start\nfinish\nverdict\n");
    // Of all jobs, the controller chooses.
    let all = vec![vec![Call("EventsOfAll"), Done(json!({"events": [], "spot": "1-000000000000000a:2"}))]];
    let (output, asked) = Place::new().ask(&["events", "--all", "-S", "2026-11-20T03:12:07Z", "-n", "9"], all);
    let expect = json!({"after": null, "follow": false, "since_ms": 1_795_144_327_000_u64, "last": 9});
    assert_eq!((output.code, &asked[0]), (Some(0), &expect), "{}", output.err);
    // Regression test: bare `events` asked for JOB, and did not name --all.
    let output = CliOutput::of(Place::new().command(&["events"]).output().unwrap());
    assert_eq!((output.code, output.err.contains("perilog events --all")), (Some(2), true), "{}", output.err);
}

/// A list comes in pages; a verb prints all of it, and folds over pages.
#[test]
fn lists_in_pages_are_printed_whole() {
    let fixed = json!({"since_ms": 1, "reason": "fan", "by": 0, "confirmed": true, "lifted": false});
    let drain = |hosts: &str| {
        let mut row = fixed.clone();
        row["hosts"] = json!(hosts);
        row
    };
    let page = |hosts: &str| json!({"drains": [drain(hosts)]});
    let last = json!({"drains": [drain("n[2,20]")], "truncated": false});
    let script = || vec![vec![Call("Drains"), More(page("n[0-1,10]")), More(page("n11")), Done(last.clone())]];
    let (output, _) = Place::new().ask(&["drain", "--json"], script());
    assert_eq!(serde_json::from_str::<Value>(&output.out).unwrap(), page("n[0-2,10-11,20]"), "{}", output.err);
    let (output, _) = Place::new().ask(&["drain"], script());
    assert!(output.out.lines().count() == 2 && output.out.contains("n[0-2,10-11,20]"), "{}", output.out);
    let (output, _) = Place::new().ask(&["drain", "-q"], script());
    assert_eq!(output.out, "n0\nn1\nn2\nn10\nn11\nn20\n");

    let node = |host: &str| {
        json!({"host": host, "state": "online", "since_ms": 1, "machine": null, "boot": null, "boot_number": null,
               "version": null, "peer": null, "tasks": 0, "note": null, "held": false})
    };
    let page = |host: &str| json!({"nodes": [node(host)]});
    let script = || vec![vec![Call("Nodes"), More(page("n1")), Done(page("n0"))]];
    let (output, _) = Place::new().ask(&["nodes", "--json"], script());
    assert_eq!(serde_json::from_str::<Value>(&output.out).unwrap(), json!({"nodes": [node("n0"), node("n1")]}));
    let row = |job: &str| {
        json!({"job": job, "attempt": "0", "action": "prolog", "ranks": "0", "hosts": "n0", "state": "running",
               "why": "x", "age_ms": 1, "local": false})
    };
    let page = |job: &str, notes: &[&str]| json!({"rows": [row(job)], "notes": notes});
    let script = || vec![vec![Call("Ps"), More(page("f1", &["quiet"])), Done(page("f2", &[]))]];
    let (output, _) = Place::new().ask(&["ps", "--json"], script());
    let whole = json!({"rows": [row("f1"), row("f2")], "notes": ["quiet"]});
    assert_eq!(serde_json::from_str::<Value>(&output.out).unwrap(), whole);
}

#[test]
fn nodes_are_chosen_by_state() {
    let drained =
        |host: &str| json!({"host": host, "since_ms": 1, "reason": "fan", "by": 0, "confirmed": true, "lifted": false});
    let node = |host: &str, state: &str, drain: Value, held: bool| {
        json!({"host": host, "state": state, "since_ms": 1, "machine": null, "boot": null, "boot_number": null,
               "version": null, "peer": null, "tasks": 0, "note": null, "drain": drain, "held": held})
    };
    let nodes = || {
        let all = [
            node("n0", "online", Value::Null, false),
            node("n1", "online", drained("n1"), true),
            node("n10", "offline", Value::Null, false),
            node("n2", "online", Value::Null, true),
        ];
        vec![vec![Call("Nodes"), Done(json!({ "nodes": all }))]]
    };
    for (states, out) in [
        (&[][..], "n0\nn1\nn2\nn10\n"),
        (&["--state", "drained,offline"], "n1\nn10\n"),
        (&["-t", "held"], "n1\nn2\n"),
        (&["--state", "free"], "n0\n"),
        (&["--state", "lifting"], ""),
    ] {
        let (output, _) = Place::new().ask(&[&["nodes", "-q"][..], states].concat(), nodes());
        assert_eq!((output.code, output.out.as_str()), (Some(0), out), "{states:?}: {}", output.err);
    }
    let (output, _) = Place::new().ask(&["nodes", "--state", "lifting"], nodes());
    assert_eq!(output.out, "no node is in that state\n");
    let (output, _) = Place::new().ask(&["nodes", "--json", "--state", "free"], nodes());
    let value: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((value["nodes"].as_array().unwrap().len(), &value["nodes"][0]["host"]), (1, &json!("n0")));
}

/// The default signal of `perilog kill` is SIGTERM, as in every other program that sends signals.
#[test]
fn kill_sends_term_by_default() {
    let (output, asked) =
        Place::new().ask(&["kill", "f1", "epilog"], vec![vec![Call("Signal"), Done(json!({"tasks": 1}))]]);
    assert_eq!((output.code, asked[0]["signal"].as_str()), (Some(0), Some("TERM")), "{}", output.err);
}

/// Regression test: `perilog job add` added a job on hosts that had never connected, without a warning.
#[test]
fn a_job_on_unknown_hosts_is_warned_of() {
    for (meant, asks) in [("", ""), ("m0", "; did you mean m0?")] {
        let reply = json!({"job": "big", "attempt": "0", "hosts": "n0,m[0-1999]", "attached": false, "over": false,
                           "unknown": "m[0-1999]", "meant": meant});
        let (output, _) = Place::new()
            .ask(&["job", "add", "big", "--nodes", "n0,m[0-1999]"], vec![vec![Call("JobAdd"), Done(reply)]]);
        let err = "perilog: never connected to this controller: m[0-1999]; tasks of big wait until these hosts connect";
        assert_eq!((output.code, output.err), (Some(0), format!("{err}{asks}\n")));
    }
}

/// By the exit status, a script distinguishes a name that does not exist (9), wrong usage (2) and a request that the
/// controller refuses (10).
#[test]
fn what_is_not_found_is_no_wrong_usage() {
    let refused = |code: &str| {
        let error = Error("io.perilog.Controller.Refused", json!({"code": code, "text": "no"}));
        Place::new().ask(&["show", "f1"], vec![vec![Call("Show"), error]]).0.code
    };
    let codes = ["no-such-job", "no-such-node", "invalid", "conflict", "attempt-closed", "unavailable"].map(refused);
    assert_eq!(codes, [9, 9, 2, 10, 10, 10].map(Some));
    // A task of a job array in Slurm is named by its own JobId.
    let error = Error("io.perilog.Controller.Refused", json!({"code": "no-such-job", "text": "no job 12345_7"}));
    let (output, _) = Place::new().ask(&["show", "12345_7"], vec![vec![Call("Show"), error]]);
    assert!(output.code == Some(9) && output.err.contains("squeue -h -j 12345_7 -o %A"), "{}", output.err);
    let output = CliOutput::of(Place::new().command(&["sacct"]).output().unwrap());
    assert_eq!((output.code, output.err.contains("perilog jobs")), (Some(2), true), "{}", output.err);
}

/// `perilog logs --follow` shows each line once, and names a node that cannot be asked once.
#[test]
fn new_lines_of_output_are_followed() {
    let place = Place::new();
    let round = |text: &str| {
        let part = json!({"host": "n0", "text": text, "last": true});
        [Call("Logs"), More(part), Done(json!({"unreachable": "n1"}))]
    };
    let script: Vec<fake::Step> =
        round("a\n").into_iter().chain(round("a\nb\n")).chain(round("b\nc\n")).chain([Hold]).collect();
    let daemon = serve(&place.socket(), vec![script]);
    let mut child = place.spawn(&["logs", "f1", "-f", "-n", "2"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(fake::read_until(&mut lines, "c"), ["n0: a", "n0: b", "n0: c"]);
    child.kill().unwrap();
    let output = CliOutput::of(child.wait_with_output().unwrap());
    assert_eq!(output.err, "perilog: no answer from n1; this command asks again\n");
    let asked = daemon.asked();
    assert_eq!((&asked[0]["lines"], &asked[1]["lines"]), (&json!(1000), &json!(1000)));
}
