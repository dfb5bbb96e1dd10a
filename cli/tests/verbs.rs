//! Verbs without a test file of their own, against a scripted daemon: requests, output, exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use fake::{Call, CliOutput, Done, Error, Hold, More, Place, event, events, finish, serve, shown};
use serde_json::{Value, json};

fn log() -> Value {
    events(&[
        json!({"sequence": 1, "timestamp": 1.0, "name": "attempt", "context": {"attempt": "0", "hosts": "n[0-1]"}}),
        event(2, "action-start", json!({"id": "x", "ranks": "0-1", "hosts": "n[0-1]"})),
        finish(3, "0-1", "n[0-1]", "ok", json!({})),
        event(4, "verdict", json!({"verdict": "ok", "status": 0, "ok": "0-1", "by_outcome": {}})),
    ])
}

fn epilog(sequence: u64, name: &str, context: Value) -> Value {
    let mut event = event(sequence, name, context);
    event["context"]["action"] = json!("epilog");
    event
}

#[test]
fn wait_ends_when_every_action_of_the_attempt_has_its_verdict() {
    let place = Place::new();
    let past = vec![
        Call("Events"),
        More(log()),
        Done(events(&[epilog(5, "action-start", json!({"id": "y", "ranks": "0-1", "hosts": "n[0-1]"}))])),
        Call("Show"),
        Done(shown(None)),
        Call("Events"),
        More(events(&[epilog(
            6,
            "verdict",
            json!({"verdict": "timeout", "status": 0, "ok": "0", "by_outcome": {"timeout": "1"}}),
        )])),
        Hold,
    ];
    let (output, asked) = place.ask(&["wait", "f1"], vec![past]);
    assert_eq!(
        (output.out.as_str(), output.code),
        ("epilog of f1 timeout: 1 ok, 1 timeout (n1)\nprolog of f1 ok on 2 ranks\n", Some(3))
    );
    assert_eq!(
        asked,
        [
            json!({"job": "f1", "after": 0, "follow": false}),
            json!({"job": "f1"}),
            json!({"job": "f1", "after": 5, "follow": true})
        ]
    );
}

#[test]
fn wait_has_its_forms() {
    let past = |follow: Vec<Value>| {
        let mut steps = vec![Call("Events"), Done(log()), Call("Show"), Done(shown(None)), Call("Events")];
        steps.extend((!follow.is_empty()).then(|| More(events(&follow))));
        steps.push(Hold);
        vec![steps]
    };
    let milestone = || epilog(7, "milestone", json!({"ranks": "0", "hosts": "n0", "name": "data-out"}));
    let of_rank = || event(7, "milestone", json!({"ranks": "0", "hosts": "n0", "name": "data-out"}));
    let of_job = |sequence: u64| {
        json!({"sequence": sequence, "timestamp": 1.0, "name": "milestone",
        "context": {"attempt": "0", "name": "data-out"}})
    };
    let release = |last: bool| {
        json!({"sequence": 8, "timestamp": 1.0, "name": "release",
        "context": {"attempt": "0", "ranks": "0", "final": last}})
    };
    let last_release = |sequence: u64| {
        json!({"sequence": sequence, "timestamp": 1.0, "name": "release",
        "context": {"attempt": "0", "ranks": "0", "final": true}})
    };
    let unreported = || {
        json!({"sequence": 10, "timestamp": 1.0, "name": "closed",
                           "context": {"attempt": "0", "ranks": "0-1", "final": true}})
    };
    let closed = || {
        json!({"sequence": 9, "timestamp": 1.0, "name": "attempt-closed",
                           "context": {"attempt": "0", "why": "a newer one"}})
    };
    let unclean = || {
        let finish =
            json!({"sequence": 7, "timestamp": 1.0, "name": "job-finish", "context": {"attempt": "0", "ranks": "0-1"}});
        let verdict =
            json!({"verdict": "cancelled", "status": 0, "ok": "0", "by_outcome": {"cancelled": "1"}, "hosts": "n1"});
        let begins = json!({"ranks": "0-1", "hosts": "n[0-1]"});
        vec![finish, epilog(8, "action-start", begins), epilog(9, "verdict", verdict), last_release(10)]
    };
    let full =
        || json!({"sequence": 9, "timestamp": 1.0, "name": "milestones-full", "context": {"attempt": "0", "most": 64}});
    #[rustfmt::skip]
    let table: Vec<(&[&str], Vec<Value>, i32, &str, &str)> = vec![
        (&["--action", "prolog"], vec![], 0, "prolog of f1 ok on 2 ranks\n", ""),
        (&["--for", "data-out:epilog"], vec![milestone()], 0, "data-out of f1\n", ""),
        // A rank's is not the job's.
        (&["--for", "data-out", "--timeout", "0s"], vec![of_rank()], 124, "",
         "perilog: f1 has not reached data-out yet; see: perilog ps\n"),
        (&["--for", "data-out"], vec![of_rank(), release(false), of_job(9)], 0, "data-out of f1\n", ""),
        (&["--for", "data-out"], vec![of_rank(), release(true)], 1, "f1: everything was released without data-out\n",
         ""),
        (&["--for", "data-out"], vec![of_rank(), closed()], 1,
         "f1: the attempt was closed (a newer one) without data-out\n", ""),
        (&["--for", "data-out"], vec![full()], 1, "f1: the attempt has reached its limit of milestones without \
                                                   data-out\n",
         ""),
        (&["--for", "data-out"], vec![of_rank(), full(), of_job(10)], 0, "data-out of f1\n", ""),
        (&["--for", "clean"], vec![of_job(7), release(false), release(true)], 0, "everything of f1 was released\n",
         ""),
        // Everything was released, and the epilog had been cancelled on a node.
        (&["--for", "clean"], unclean(), 0,
         "everything of f1 was released, but not all of it is clean: epilog of f1 cancelled: 1 ok, 1 cancelled (n1)\n",
         ""),
        // After-actions of a closed attempt still release its ranks.
        (&["--for", "clean"], vec![closed(), last_release(10)], 0, "everything of f1 was released\n", ""),
        // The store lost the release's epoch: the hook is notified nothing.
        (&["--for", "clean"], vec![closed(), unreported()], 0, "everything of f1 was released\n", ""),
        (&["--for", "shrink"], vec![closed(), last_release(10)], 1, "f1: everything was released without shrink\n",
         ""),
        (&["--for", "verdict:prolog"], vec![], 0, "verdict of f1\n", ""),
        (&["--for", "data-out:prolog"], vec![], 1, "f1: prolog ended (ok) without data-out\n", ""),
        (&["--action", "epilog"], vec![closed()], 1, "f1: the attempt was closed (a newer one) before epilog began\n",
         ""),
        (&["--action", "epilog", "--timeout", "0s"], vec![], 124, "",
         "perilog: epilog of f1 has not ended yet; see: perilog ps\n"),
        (&["--attempt", "3"], vec![], 9, "", "perilog: f1 has no attempt 3; it has: 0\n"),
    ];
    for (args, follow, code, out, err) in table {
        let place = Place::new();
        let (output, _) = place.ask(&[&["wait", "f1"], args].concat(), past(follow));
        assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(code), out, err), "{args:?}");
    }
}

/// Request C14 (docs/requests.md): a user who needs the job's results does not wait for its clean-up. `perilog wait
/// --for job-finish` and `--for data-out` end while the epilog still runs; `--for clean` does not.
#[test]
fn a_job_is_finished_and_its_data_out_while_its_clean_up_runs() {
    let of_job = |sequence: u64, name: &str, context: Value| -> Value {
        json!({"sequence": sequence, "timestamp": 1.0, "name": name, "context": context})
    };
    let running = || {
        let begins = epilog(6, "action-start", json!({"id": "y", "ranks": "0-1", "hosts": "n[0-1]"}));
        let finish = of_job(5, "job-finish", json!({"attempt": "0", "ranks": "0-1"}));
        vec![finish, begins, of_job(7, "milestone", json!({"attempt": "0", "name": "data-out"}))]
    };
    let cleaned = || {
        let release = of_job(8, "release", json!({"attempt": "0", "ranks": "0-1", "final": true}));
        [running(), vec![release]].concat()
    };
    for (awaited, log_now, code) in [
        ("job-finish", running(), 0),
        ("data-out", running(), 0),
        ("verdict:prolog", running(), 0),
        ("clean", running(), 124),
        ("verdict:epilog", running(), 124),
        ("clean", cleaned(), 0),
    ] {
        let past = vec![vec![
            Call("Events"),
            More(log()),
            Done(events(&log_now)),
            Call("Show"),
            Done(shown(None)),
            Call("Events"),
            Hold,
        ]];
        let (output, _) = Place::new().ask(&["wait", "f1", "--for", awaited, "--timeout", "0s"], past);
        assert_eq!(output.code, Some(code), "{awaited}: {} {}", output.out, output.err);
    }
}

/// docs/examples/external-action.py: the service repeats a request that is refused for now, and ends on any other
/// error.
#[test]
fn the_example_service_repeats_what_is_refused_for_now() {
    let place = Place::new();
    let refused = |code: &str| {
        let text = format!("it is {code}");
        vec![Call("ActionStart"), Error("io.perilog.Controller.Refused", json!({"code": code, "text": text}))]
    };
    let daemon = serve(&place.socket(), vec![refused("unavailable"), refused("unavailable"), refused("conflict")]);
    let service = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/external-action.py");
    let mut command = std::process::Command::new("python3");
    command.args([service, "f1", "stage", "60", "n0", "true"]).env("PERILOG_SOCKET", place.socket());
    let output = CliOutput::of(command.output().unwrap());
    let asked = daemon.asked();
    assert_eq!((output.code, output.err.as_str()), (Some(1), "ActionStart: it is conflict\n"));
    assert_eq!(asked, vec![json!({"job": "f1", "action": "stage", "lease": "60s", "targets": "n0"}); 3]);
}

#[test]
fn events_are_lines_for_people_and_rfc_18_for_programs() {
    let place = Place::new();
    let script = || vec![vec![Call("Events"), Done(log())]];
    let (output, asked) = place.ask(&["events", "f1", "--after", "3"], script());
    let last = "    4  2026-11-20T03:12:07.000Z  verdict       prolog        ok on 2 ranks";
    assert_eq!(output.out.lines().last(), Some(last));
    assert_eq!((output.code, asked[0]["after"].as_u64()), (Some(0), Some(3)));
    let (json, _) = Place::new().ask(&["events", "f1", "--json"], script());
    let first: Value = serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
    assert_eq!(first, log()["events"][0]);
    let (quiet, _) = Place::new().ask(&["events", "f1", "-q"], script());
    assert_eq!(quiet.out, "attempt\naction-start\nfinish\nverdict\n");
}

#[test]
fn what_may_be_alive_is_resolved_when_it_is_drained() {
    for (tasks, waiting, out) in [
        (
            3,
            1,
            "resolved 2 tasks of f1 as failed\n1 task of f1 will count as failed when the drain of the nodes is in \
             force; see: perilog ps\n",
        ),
        (1, 1, "1 task of f1 will count as failed when the drain of the nodes is in force; see: perilog ps\n"),
    ] {
        let args = &["resolve", "f1", "--ranks", "0-2", "--reason", "gone"];
        let script = vec![vec![Call("Resolve"), Done(json!({"tasks": tasks, "waiting": waiting}))]];
        let (output, _) = Place::new().ask(args, script);
        assert_eq!((output.code, output.out.as_str()), (Some(0), out));
    }
}

#[test]
fn a_job_finishes_with_ranks_resources_or_both() {
    let part = |ranks: &str, resources: &[&str]| json!({"ranks": ranks, "resources": resources});
    let then = "To wait until everything is released: perilog wait f1 --for clean\n";
    #[rustfmt::skip]
    let table: Vec<(&[&str], Value, Value, Value, String)> = vec![
        (&[], json!(null), json!(null), part("0-3", &["rabbit1"]),
         format!("f1 no longer uses ranks 0-3 and rabbit1. {then}")),
        (&["--ranks", "n[0-1]"], json!("n[0-1]"), json!(null), part("0-1", &[]),
         format!("f1 no longer uses ranks 0-1. {then}")),
        (&["--resources", "rabbit1,rabbit2"], json!(null), json!(["rabbit1", "rabbit2"]),
         part("", &["rabbit1", "rabbit2"]),
         format!("f1 no longer uses rabbit1, rabbit2. {then}")),
        (&["--ranks", "0", "--resources", "rabbit1"], json!("0"), json!(["rabbit1"]), part("", &[]),
         "f1 was finished before; to see its remaining work: perilog show f1\n".to_owned()),
    ];
    for (args, targets, resources, reply, out) in table {
        let args = [&["job", "finish", "f1"][..], args].concat();
        let (output, asked) = Place::new().ask(&args, vec![vec![Call("JobFinish"), Done(reply)]]);
        let parameters = json!({"job": "f1", "attempt": null, "targets": targets, "resources": resources});
        assert_eq!((output.code, output.out, &asked[0]), (Some(0), out, &parameters), "{args:?}");
    }
}

/// `perilog failed` prints the failed ranks on standard output, as one line for scripts. Failed named resources are not
/// in that line, so it names them on standard error.
#[test]
fn failed_prints_ranks_and_names_resources_beside_them() {
    let rabbit = json!({"resource": "rabbit2", "action": "stage", "outcome": "failed", "result": "failed (reported)",
                        "message": "no space ".repeat(40), "checks": []});
    let failed = |resources: &[&Value]| json!({"ranks": "2", "hosts": "n2", "resources": resources, "checks": []});
    let beside = "perilog: named resources failed, too, and are not in this line: rabbit2: failed (reported) (perilog \
                  failed f1 --format json)\n";
    let (with, without) = (failed(&[&rabbit]), failed(&[]));
    // An older controller sends no named resources.
    let older = json!({"ranks": "2", "hosts": "n2", "checks": []});
    #[rustfmt::skip]
    let table: Vec<(&[&str], &Value, String, &str)> = vec![
        (&[], &with, "n2\n".to_owned(), beside),
        (&["--format", "idset"], &with, "2\n".to_owned(), beside),
        (&["--format", "json"], &with, format!("{with}\n"), ""),
        (&["--json"], &with, format!("{with}\n"), ""),
        (&["-q"], &with, "n2\n".to_owned(), ""),
        (&[], &without, "n2\n".to_owned(), ""),
        (&[], &older, "n2\n".to_owned(), ""),
    ];
    for (args, reply, out, err) in table {
        let args = [&["failed", "f1"][..], args].concat();
        let (output, _) = Place::new().ask(&args, vec![vec![Call("Failed"), Done(reply.clone())]]);
        assert_eq!((output.code, output.out, output.err.as_str()), (Some(0), out, err), "{args:?}");
    }
}

#[test]
fn quiet_is_asked_for_waited_for_and_lifted() {
    let open = |actions: u64, tasks: u64| Done(json!({"actions": actions, "tasks": tasks}));
    let asked = |n: usize| vec![Call("Quiesce"), open(n as u64, 4 * n as u64)];
    let quiet = "the controller is quiesced and begins nothing new until: perilog resume; ";
    let waits = "perilog: the controller is quiesced; waiting for 1 action over 4 tasks\n";
    let over = "perilog: work is still open (perilog ps); the controller stays quiesced until: perilog resume\n";
    #[rustfmt::skip]
    let table: Vec<(&[&str], Vec<Vec<fake::Step>>, i32, String, String)> = vec![
        (&[], vec![asked(0)], 0, format!("{quiet}nothing is open\n"), String::new()),
        (&[], vec![asked(1)], 0, format!("{quiet}still open, and not stopped: 1 action over 4 tasks (perilog ps)\n"),
         String::new()),
        (&["--wait"], vec![asked(0)], 0, format!("{quiet}nothing is open\n"), String::new()),
        (&["--wait"], vec![asked(1), asked(0)], 0, format!("{quiet}nothing is open\n"), waits.to_owned()),
        (&["--wait", "10ms"], vec![asked(1), vec![Call("Quiesce"), Hold]], 124, String::new(),
         format!("{waits}{over}")),
    ];
    for (args, script, code, out, err) in table {
        let (output, asked) = Place::new().ask(&[&["quiesce", "--reason", "new release"], args].concat(), script);
        assert_eq!(
            (output.code, output.out.as_str(), output.err.as_str()),
            (Some(code), out.as_str(), err.as_str()),
            "{args:?}"
        );
        assert_eq!(asked[0], json!({"reason": "new release", "wait": false}));
        assert!(asked.iter().skip(1).all(|asked| asked["wait"] == true));
    }
    for (was_quiet, out) in
        [(true, "the controller accepts new work again\n"), (false, "the controller was not quiesced\n")]
    {
        let script = vec![vec![Call("Resume"), Done(json!({ "was_quiet": was_quiet }))]];
        let (output, _) = Place::new().ask(&["resume"], script);
        assert_eq!((output.code, output.out.as_str()), (Some(0), out));
    }
}

#[test]
fn help_of_a_verb_is_asked_for_in_either_order() {
    let place = Place::new();
    let help = |args: &[&str]| CliOutput::of(place.command(args).output().unwrap());
    for (one, other) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "run"], &["run", "--help"]),
        (&["help", "job", "add"], &["job", "add", "--help"]),
    ] {
        let (one, other) = (help(one), help(other));
        assert_eq!((one.code, &one.out), (Some(0), &other.out));
    }
    assert_eq!(help(&["help", "rnu"]).code, Some(2));
}

#[test]
fn a_milestone_is_reported_by_an_operator() {
    #[rustfmt::skip]
    let table: Vec<(&[&str], Value, Value, &str)> = vec![
        (&[], json!(null), json!({"ranks": "0-3", "reached": true}),
         "f1: data-out is reached on ranks 0-3; the job has reached it\n"),
        (&["--ranks", "n1"], json!("n1"), json!({"ranks": "1", "reached": false}),
         "f1: data-out is reached on rank 1; other ranks of the job have not reached it yet\n"),
        (&["--ranks", "1"], json!("1"), json!({"ranks": "", "reached": false}),
         "f1: those ranks had reached data-out before; other ranks of the job have not reached it yet\n"),
    ];
    for (args, targets, reply, out) in table {
        let args = [&["milestone", "f1", "data-out"], args].concat();
        let (output, asked) = Place::new().ask(&args, vec![vec![Call("Milestone"), Done(reply)]]);
        assert_eq!((output.code, output.out.as_str()), (Some(0), out), "{args:?}");
        assert_eq!(asked[0], json!({"job": "f1", "name": "data-out", "targets": targets, "attempt": null}));
    }
}

#[test]
fn changes_ask_for_the_named_tasks_and_show_how_many() {
    #[rustfmt::skip]
    let table: Vec<(&[&str], &'static str, Value, u64, i32, &str)> = vec![
        (&["cancel", "f1"], "Cancel",
         json!({"job": "f1", "attempt": null, "action": null, "targets": null, "why": null}), 4, 0,
         "asked 4 tasks of f1 to stop; to wait for the end: perilog wait f1\n"),
        (&["cancel", "f1", "prolog", "--ranks", "n[0-1]", "--reason", "wrong", "--attempt", "2"], "Cancel",
         json!({"job": "f1", "attempt": "2", "action": "prolog", "targets": "n[0-1]", "why": "wrong"}), 0, 0,
         "nothing to cancel: no unfinished task of f1 matches\n"),
        (&["kill", "f1", "prolog", "--ranks", "3", "-s", "SIGUSR1"], "Signal",
         json!({"job": "f1", "attempt": null, "action": "prolog", "targets": "3", "signal": "USR1"}), 1, 0,
         "requested SIGUSR1 for 1 task of f1; see the effect: perilog ps\n"),
        (&["kill", "f1", "-s", "9"], "Signal",
         json!({"job": "f1", "attempt": null, "action": null, "targets": null, "signal": "KILL"}), 0, 1,
         "no signal sent: no matching task of f1 runs on a connected node; see: perilog ps\n"),
        (&["job", "forget", "f1", "--attempt", "7", "--releases", "--reason", "no hook"], "JobForget",
         json!({"job": "f1", "attempt": "7", "releases": true, "reason": "no hook"}), 1, 0,
         "dropped the pending releases of f1; the release hook is not notified of them\n"),
        (&["job", "forget", "f1", "--releases", "--reason", "no hook"], "JobForget",
         json!({"job": "f1", "attempt": null, "releases": true, "reason": "no hook"}), 2, 0,
         "dropped the pending releases of f1; the release hook is not notified of them\n"),
        (&["resolve", "f1", "prolog", "--ranks", "3", "--reason", "node is gone", "--ok"], "Resolve",
         json!({"job": "f1", "attempt": null, "action": "prolog", "targets": "3", "reason": "node is gone",
                "ok": true}), 1, 0,
         "resolved 1 task of f1 as ok\n"),
        (&["resolve", "f1", "--resources", "rabbit1,rabbit2", "--reason", "the rabbit is gone"], "Resolve",
         json!({"job": "f1", "attempt": null, "action": null, "targets": null, "resources": ["rabbit1", "rabbit2"],
             "reason": "the rabbit is gone", "ok": false}), 2, 0, "resolved 2 tasks of f1 as failed\n"),
        (&["resolve", "f1", "stage", "--ranks", "0", "--resources", "rabbit1", "--reason", "gone"], "Resolve",
         json!({"job": "f1", "attempt": null, "action": "stage", "targets": "0", "resources": ["rabbit1"],
                "reason": "gone", "ok": false}),
         2, 0, "resolved 2 tasks of f1 as failed\n"),
    ];
    for (args, method, parameters, tasks, code, out) in table {
        let (output, asked) = Place::new().ask(args, vec![vec![Call(method), Done(json!({"tasks": tasks}))]]);
        assert_eq!((output.code, output.out.as_str(), &asked[0]), (Some(code), out, &parameters), "{args:?}");
    }
    for args in [
        &["resolve", "f1", "--ranks", "3"][..],
        &["resolve", "f1", "--reason", "x"],
        &["resolve", "f1", "--ranks", "3", "--reason", " "],
    ] {
        let output = CliOutput::of(Place::new().command(args).output().unwrap());
        assert_eq!(output.code, Some(2), "{args:?}");
    }
}

#[test]
fn logs_name_the_nodes_that_could_not_be_asked() {
    let script = || {
        vec![vec![
            Call("Logs"),
            More(json!({"host": "n0", "text": "mounting\nmou"})),
            More(json!({"host": "n1", "text": "ready\n", "last": true})),
            More(json!({"host": "n0", "text": "nted\n", "last": true})),
            Done(json!({"unreachable": "n[2-3]"})),
        ]]
    };
    let (output, asked) = Place::new().ask(&["logs", "f1", "--rank", "n[0-3]", "-n", "20"], script());
    assert_eq!(output.out, "n0: mounting\nn0: mounted\nn1: ready\n");
    assert_eq!(
        (output.code, output.err.as_str()),
        (Some(4), "perilog: no answer from n[2-3]; to read the output on the node itself: journalctl PERILOG_JOB=f1\n")
    );
    assert_eq!(asked[0], json!({"job": "f1", "targets": "n[0-3]", "action": null, "attempt": null, "lines": 20}));
    assert_eq!(Place::new().ask(&["logs", "f1", "-q"], script()).0.out, "mounting\nmounted\nready\n");
}

#[test]
fn why_is_a_chain_down_to_the_next_command() {
    let since_ms = perilog_host::clock::wall_ms() - 7_385_000;
    let why = json!({"why": {
        "node": {"host": "n3", "state": "online", "since_ms": since_ms, "machine": "m", "boot": "b", "boot_number": 2,
                 "version": "0.1.0",
                 "peer": "10.0.0.3:40000", "tasks": 1, "note": null},
        "open": [{"job": "f1", "attempt": "0", "action": "prolog", "rank": 3,
                  "unit": "perilog-task-prolog-f1-3-0123456789ab.service",
                  "state": "overdue", "phase": {"phase": "overdue", "script": "10-mount.sh", "limit_ms": 600_000,
                                                 "doing": "4711 D mount in rpc_wait"}, "age_ms": 720_000,
                  "why": "10-mount.sh is past its limit of 10m", "ended": null,
                  "next": ["perilog logs f1 --rank 3", "perilog cancel f1 prolog --ranks 3"]}],
        "failed": [{"job": "f0", "attempt": "1", "action": "epilog", "rank": 0, "unit": "u.service", "state": "ended",
                    "phase": null,
                    "age_ms": 3_600_000, "why": "", "next": ["perilog logs f0 --rank 0"],
                    "ended": {"outcome": {"outcome": "failed", "why": {"exit": 7}}, "ended_ms": 1,
                              "tails": [{"script": "10-x.sh", "text": "device busy\n"}]}}],
    }});
    let (output, _) = Place::new().ask(&["why", "n3"], vec![vec![Call("Why"), Done(why.clone())]]);
    assert_eq!(
        output.out,
        "n3  online  for 2h03m, boot #2, perilog 0.1.0, from 10.0.0.3:40000\n\
         \n\
         \u{20} prolog of f1, rank 3: overdue 12m\n\
         \u{20}   script  10-mount.sh, limit 10m\n\
         \u{20}   doing   4711 D mount in rpc_wait\n\
         \u{20}   why     10-mount.sh is past its limit of 10m\n\
         \u{20}   unit    perilog-task-prolog-f1-3-0123456789ab.service\n\
         \u{20}   next    perilog logs f1 --rank 3\n\
         \u{20}   or      perilog cancel f1 prolog --ranks 3\n\
         \n\
         earlier failures, newest first:\n\
         \n\
         \u{20} epilog of f0, rank 0, attempt 1: failed (exit 7) 1h ago\n\
         \u{20}   last line  \"device busy\"\n\
         \u{20}   unit       u.service\n\
         \u{20}   next       perilog logs f0 --rank 0\n\
         \u{20}     | device busy\n"
    );
    let (json, _) = Place::new().ask(&["why", "n3", "--json"], vec![vec![Call("Why"), Done(why.clone())]]);
    assert_eq!(serde_json::from_str::<Value>(&json.out).unwrap(), why);
}

#[test]
fn a_member_that_is_new_passes_through_json() {
    let status = json!({"status": {"version": "9", "cluster": "c", "epoch": 1, "nodes": 0, "online": 0, "jobs": 0,
        "actions_open": 0,
        "tasks_open": 0, "outbox": 0, "notes": [], "brand_new": 7}});
    let (output, _) = Place::new().ask(&["status", "--json"], vec![vec![Call("Status"), Done(status.clone())]]);
    assert_eq!((serde_json::from_str::<Value>(&output.out).unwrap(), output.code), (status, Some(0)));
}

#[test]
fn ps_asks_for_what_is_held_where_that_is_wanted() {
    for (args, held) in [(&["ps"][..], false), (&["ps", "--held"], true)] {
        let (output, asked) = Place::new().ask(args, vec![vec![Call("Ps"), Done(json!({"rows": []}))]]);
        assert_eq!((output.code, &asked[0]), (Some(0), &json!({"older_than": null, "held": held})), "{args:?}");
    }
}

#[test]
fn a_reader_without_permission_is_refused_with_the_reason() {
    let denied = Error("org.varlink.service.PermissionDenied", json!({}));
    let (output, _) = Place::new().ask(&["ps"], vec![vec![Call("Ps"), denied]]);
    assert_eq!(output.code, Some(8));
    assert_eq!(
        output.err,
        "perilog: not permitted: only root and the group that the controller's configuration names may do that\n"
    );
    let (output, _) = Place::new().ask(&["ps"], vec![vec![Call("Ps"), Done(json!({"rows": [{"odd": 1}]}))]]);
    assert_eq!((output.code, output.err.contains("cannot read")), (Some(8), true), "{}", output.err);
}

#[test]
fn a_trial_survives_an_agent_restart_and_exits_with_its_status() {
    let place = Place::new();
    let unit = "perilog-task-prolog-try-0-0123456789ab.service";
    let running = json!({"unit": unit,
                         "phase": {"phase": "running", "script": "10-a.sh", "index": 1, "of": 2, "progress": null}});
    let ended = json!({"unit": unit, "status": 7,
                       "ended": {"outcome": {"outcome": "failed", "why": {"exit": 7}}, "ended_ms": 5,
                                 "elapsed_ms": 40}});
    let daemon = vec![
        vec![Call("Exec"), More(json!({"unit": unit, "attached": false})), More(running.clone())],
        vec![Call("Exec"), More(json!({"unit": unit, "attached": true})), More(running), Done(ended)],
    ];
    let dir = place.dir().canonicalize().unwrap();
    let daemon = serve(&place.socket(), daemon);
    let output = CliOutput::of(
        place.command(&["try", dir.to_str().unwrap(), "--env", "A=1", "--color", "never"]).output().unwrap(),
    );
    assert_eq!(output.code, Some(7), "{}", output.err);
    assert_eq!(output.out, format!("{unit}\n1 of 2  10-a.sh\nfailed (exit 7) after 40ms\n"));
    let asked = daemon.asked();
    assert_eq!(asked[0], asked[1], "the same key attaches");
    assert_eq!((&asked[0]["directories"], &asked[0]["action"]), (&json!([dir]), &json!("prolog")));
    let missing = CliOutput::of(place.command(&["try", "/no/such/directory"]).output().unwrap());
    assert_eq!(missing.code, Some(8));
}

#[test]
fn a_dismantled_node_is_forgotten_or_the_refusal_says_why() {
    let place = Place::new();
    let (output, asked) =
        place.ask(&["node", "forget", "n[4-5]"], vec![vec![Call("NodeForget"), Done(json!({"tasks": 2}))]]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "forgot n[4-5]\n"));
    assert_eq!(asked, [json!({"nodes": "n[4-5]"})]);
    let refusal = json!({"code": "conflict", "text": "n4 is connected: stop its agent first"});
    let script = vec![vec![Call("NodeForget"), Error("io.perilog.Controller.Refused", refusal)]];
    let (output, _) = place.ask(&["node", "forget", "n4"], script);
    assert_eq!((output.code, output.err.as_str()), (Some(10), "perilog: n4 is connected: stop its agent first\n"));
}

#[test]
fn copies_are_kept_by_number_and_each_is_reported() {
    let place = Place::new();
    let dir = place.dir().join("copies");
    std::fs::create_dir(&dir).unwrap();
    for day in 1..=3 {
        std::fs::write(dir.join(format!("controller-2020010{day}T000000Z.db")), "old").unwrap();
    }
    let take = || vec![Call("Backup"), More(json!({"data": "AAEC"})), Done(json!({"size": 3}))];
    let line = ["--json", "controller", "backup", "--into", dir.to_str().unwrap(), "--keep", "2"];
    let (output, asked) = place.ask(&line, vec![take(), vec![Call("BackupKept"), Done(json!({}))]]);
    assert_eq!((output.code, asked.len()), (Some(0), 2), "{}", output.err);
    let reported: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(std::fs::read(reported["file"].as_str().unwrap()).unwrap(), [0, 1, 2]);
    assert_eq!(reported["removed"].as_array().unwrap().len(), 2);
    assert!(dir.join("controller-20200103T000000Z.db").exists());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);

    // A copy that is not whole removes no older one, and is not reported.
    let (output, asked) = place.ask(&line, vec![vec![Call("Backup"), Done(json!({"size": 9}))]]);
    assert_eq!((output.code, asked.len(), std::fs::read_dir(&dir).unwrap().count()), (Some(8), 1, 2), "{}", output.err);
    // A controller without that figure.
    let file = dir.join("manual.db");
    let unknown =
        vec![Call("BackupKept"), Error("org.varlink.service.MethodNotFound", json!({"method": "BackupKept"}))];
    let (output, _) = place.ask(&["controller", "backup", file.to_str().unwrap()], vec![take(), unknown]);
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""));
}
