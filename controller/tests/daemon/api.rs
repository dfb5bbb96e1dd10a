//! Tests of the API `io.perilog.Controller`, mostly called from plain Python.

use perilog_core::message::{Ask, FromAgent, ToAgent};
use perilog_core::outcome::{Failure, Outcome};
use perilog_core::task::{Ended, Tail};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bed::Bed;
use crate::python::{Stream, call, refused, replies, run};

/// Message with which a test fails that needs root and does not run as root. The test fails, because a skipped test has
/// not passed.
const NOBODY_ELSE: &str = "only root can play another user: run this test as root, as `cargo xtask test` does";

#[test]
fn what_is_malformed_is_refused_with_its_position() {
    let mut bed = Bed::new();
    let _controller = bed.start();
    let invalid = "org.varlink.service.InvalidParameter";
    let ours = "io.perilog.Controller.Refused";
    let with = |key: &str, value: Value| {
        let mut parameters = run("f1", "n0");
        parameters[key] = value;
        parameters
    };
    #[rustfmt::skip]
    let table = [
        ("Run", json!({}), invalid, "job"),
        ("Run", with("job", json!(7)), invalid, "job"),
        ("Run", with("env", json!({"A": 1})), invalid, "env.A"),
        ("Run", with("userid", json!(-1)), invalid, "userid"),
        ("Run", with("frob", json!(1)), invalid, "frob"),
        ("Run", with("job", json!("a/b")), ours, r#"malformed job id "a/b" at character 2"#),
        ("Run", with("nodes", json!("n[3-1]")), ours, r#"malformed hostlist "n[3-1]" at character 5"#),
        ("Run", with("targets", json!("1,,2")), ours, r#"malformed idset "1,,2" at character 3"#),
        ("Run", with("action", json!("Prolog")), ours, r#"malformed action name "Prolog" at character 1"#),
        ("Run", with("attempt", json!("1x")), ours, r#"malformed attempt "1x" at character 2"#),
        ("Run", with("timeout", json!("5x")), ours, r#"malformed duration "5x" at character 2"#),
        ("Run", with("timeout", json!("0")), ours, "expected a duration above zero"),
        ("Run", with("env", json!({"A-B": ""})), ours, r#"malformed environment name "A-B" at character 2"#),
        ("Run", with("env", json!({"A": "\0"})), ours, "holds a NUL byte"),
        ("Run", with("env", json!({"A": "x".repeat(70_000)})), ours, "70001 bytes of environment, at most 65536"),
        ("Ps", json!({"older_than": "soon"}), ours, "malformed duration"),
        ("Show", json!({"job": ""}), ours, r#"malformed job id "" at character 1"#),
        ("Nodes", json!({"nodes": "n["}), ours, "malformed hostlist"),
        ("Why", json!({"node": "-n"}), ours, "malformed host name"),
        ("Signal", json!({"job": "f1", "signal": "FROB"}), ours, r#"unknown signal "FROB""#),
        ("Cancel", json!({"job": "f1", "why": "x".repeat(2000)}), ours, "the limit is 1024"),
        ("Resolve", json!({"job": "f1", "ok": true}), invalid, "reason"),
        ("Events", json!({"job": "f 1"}), ours, r#"malformed job id "f 1" at character 2"#),
        ("Logs", json!({"job": "f1", "targets": "1-"}), ours, "malformed idset"),
        ("OutboxApplied", json!({"through": -3}), invalid, "through"),
        ("Cancel", json!({"job": "f1", "resources": ["rabbit1"]}), invalid, "unknown field `resources`"),
        ("Signal", json!({"job": "f1", "signal": "TERM", "frob": 1}), invalid, "unknown field `frob`"),
        ("Logs", json!({"job": "f1", "resources": ["rabbit1"]}), invalid, "unknown field `resources`"),
        ("Resolve", json!({"job": "f1", "ok": true, "reason": "x", "resources": ["a/b"]}), ours, "resource name"),
        ("JobAdd", json!({"job": "f1", "nodes": "n0", "frob": 1}), invalid, "unknown field `frob`"),
        ("ActionStart", json!({"job": "f1", "action": "x", "lease": "1m", "env": {}}), invalid, "unknown field `env`"),
    ];
    for (method, parameters, error, part) in table {
        let (name, reported) = refused(&bed, method, parameters.clone(), &["more"]);
        assert_eq!(name, error, "{method} {parameters}");
        if error == ours {
            assert_eq!(reported["code"], "invalid");
        }
        let text = reported.to_string().replace("\\\"", "\"");
        assert!(text.contains(part), "{method}: {text}");
    }
    for (method, parameters, code) in [
        ("Show", json!({"job": "f1"}), "no-such-job"),
        ("Events", json!({"job": "f1"}), "no-such-job"),
        ("Why", json!({"node": "n0"}), "no-such-node"),
        ("Cancel", json!({"job": "f1"}), "no-such-job"),
        ("Run", json!({"job": "f1", "action": "prolog"}), "no-such-job"),
    ] {
        assert_eq!(refused(&bed, method, parameters, &[]).1["code"], code, "{method}");
    }
    assert_eq!(refused(&bed, "Logs", json!({"job": "f1"}), &[]).0, "org.varlink.service.ExpectedMore");
}

#[test]
fn every_method_of_the_interface_is_served() {
    let mut bed = Bed::new();
    let _controller = bed.start();
    let described =
        call(&bed, "org.varlink.service.GetInterfaceDescription", json!({"interface": "io.perilog.Controller"}));
    let text = described["description"].as_str().unwrap();
    let methods: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("method ")?.split('(').next()).collect();
    assert!(methods.len() >= 13, "{methods:?}");
    for method in methods {
        // Any error but "no such method" will do.
        let reply = replies(&bed, method, json!({}), &[]).pop().unwrap();
        assert!(!reply["error"].as_str().unwrap_or_default().contains("MethodNot"), "{method}: {reply}");
    }
    assert_eq!(refused(&bed, "Frob", json!({}), &[]).0, "org.varlink.service.MethodNotFound");
}

/// Regression test: the controller remembered each client that had waited for quiescence and hung up, and refused the
/// 65th client.
#[test]
fn who_waits_for_quiet_and_hangs_up_is_forgotten() {
    let mut bed = Bed::new();
    let _controller = bed.start();
    // A controller with a new store gives its nodes time to come; until then the action is open.
    call(&bed, "Run", run("f1", "n0"));
    let notes_contain = |text: &str| {
        let notes = call(&bed, "Status", json!({}))["status"]["notes"].to_string();
        notes.contains(text)
    };
    let until = |text: &str, expected: bool| {
        // Each question comes from a new client: only a hang outlasts so many clients.
        assert!((0..1_000).any(|_| notes_contain(text) == expected), "the notes never said {text:?}: {expected}");
    };
    let wait = || Stream::open(&bed, "Quiesce", json!({"wait": true}), &[]);
    let (first, second) = (wait(), wait());
    until("; 2 clients wait until nothing is open", true);
    drop(first);
    until("; 1 client waits until nothing is open", true);
    drop(second);
    until("until nothing is open", false);
    assert!(notes_contain("nothing new begins until: perilog resume"), "it stays quiet");
}

#[test]
fn others_may_read_and_not_change() {
    assert!(rustix::process::geteuid().is_root(), "{NOBODY_ELSE}");
    let mut bed = Bed::new();
    std::fs::set_permissions(bed.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _controller = bed.start();
    let other = &["uid=65534"];
    for (method, parameters) in [("Ps", json!({})), ("Status", json!({})), ("Nodes", json!({}))] {
        assert_eq!(replies(&bed, method, parameters, other)[0].get("error"), None, "{method}");
    }
    for (method, parameters) in [
        ("Run", run("f1", "n0")),
        ("Cancel", json!({"job": "f1"})),
        ("Resolve", json!({"job": "f1", "ok": true, "reason": "x"})),
        ("Signal", json!({"job": "f1", "signal": "TERM"})),
        ("Logs", json!({"job": "f1"})),
        ("Recover", json!({"take_over": true})),
        ("Outbox", json!({})),
        ("OutboxApplied", json!({"through": 1})),
    ] {
        let (error, reported) = refused(&bed, method, parameters, other);
        assert_eq!(error, "io.perilog.Controller.PermissionDenied", "{method}");
        assert!(reported["text"].as_str().unwrap().starts_with(&format!("uid 65534 may not call {method}")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_only_the_last_line_of_a_failed_script() {
    assert!(rustix::process::geteuid().is_root(), "{NOBODY_ELSE}");
    let mut bed = Bed::new();
    std::fs::set_permissions(bed.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    let mut ended = Ended::bare(Outcome::Failed { why: Failure::Exit(3) }, 1_552_593_349_000);
    ended.tails = vec![Tail { script: "10-mount".to_owned(), text: "password=SESAME\nno such device".to_owned() }];
    ended.forensics = Some("SESAME on the stack".to_owned());
    agent.send(&FromAgent::Finished { task: start.task, ended: Box::new(ended) }).await;
    agent.acked(&start).await;
    for (method, parameters) in
        [("Show", json!({"job": "f1"})), ("Why", json!({"node": "n0"})), ("Events", json!({"job": "f1"}))]
    {
        let ours = call(&bed, method, parameters.clone()).to_string();
        let theirs = replies(&bed, method, parameters, &["uid=65534"])[0].to_string();
        assert!(theirs.contains("\"failed\"") && !theirs.contains("SESAME"), "{method}: {theirs}");
        assert!(method == "Events" || ours.contains("SESAME"), "{method}: {ours}");
    }
    // A last line of output is no secret, whatever the script prints (docs/security.md).
    for (method, parameters) in [("Events", json!({"job": "f1"})), ("Drains", json!({}))] {
        let theirs = replies(&bed, method, parameters, &["uid=65534"])[0].to_string();
        assert!(theirs.contains("no such device") && !theirs.contains("SESAME"), "{method}: {theirs}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_every_event_once_whenever_they_come() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    let actions: Vec<String> = (0..40).map(|n| format!("step-{n}")).collect();
    let mut streams = Vec::new();
    for (n, action) in actions.iter().enumerate() {
        call(&bed, "Run", json!({"job": "f1", "action": action, "nodes": "n0"}));
        if n % 8 == 0 {
            // In the middle of what happens, from the begin and from somewhere else.
            for after in [0, n] {
                let parameters = json!({"job": "f1", "after": after, "follow": true});
                streams.push((after as u64, Stream::open(&bed, "Events", parameters, &["more"])));
            }
        }
        agent.run(Outcome::Ok).await;
    }
    // attempt, then action-start, finish and verdict of each.
    let last = 1 + 3 * actions.len() as u64;
    let whole = replies(&bed, "Events", json!({"job": "f1"}), &["more"]);
    let whole: Vec<u64> = whole.iter().flat_map(sequences).collect();
    assert_eq!(whole, (1..=last).collect::<Vec<_>>());
    for (after, mut stream) in streams {
        let mut seen = after;
        while seen < last {
            for sequence in sequences(&stream.next()) {
                assert_eq!(sequence, seen + 1, "a gap, or one twice");
                seen = sequence;
            }
        }
    }
}

fn sequences(reply: &Value) -> Vec<u64> {
    reply["parameters"]["events"].as_array().unwrap().iter().map(|event| event["sequence"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stalls_is_alone_with_it() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", json!({"job": "f1", "action": "first", "nodes": "n0"}));
    agent.run(Outcome::Ok).await;
    let follow = json!({"job": "f1", "follow": true});
    let mut stalled = Stream::open(&bed, "Events", follow.clone(), &["more", "stall"]);
    assert_eq!(stalled.line(), "stalled");
    let mut reading = Stream::open(&bed, "Events", follow, &["more"]);
    reading.events_until("verdict");
    // More than a queue and a socket's buffer hold.
    let mut client = perilog_host::varlink::Client::connect(&bed.socket()).unwrap();
    let mut call =
        |method: &str, parameters| client.call(&format!("io.perilog.Controller.{method}"), parameters).unwrap();
    for n in 0..600 {
        let action = format!("step-{n}");
        call("Run", json!({"job": "f1", "action": action, "nodes": "n0"}));
        call("Cancel", json!({"job": "f1", "action": action, "why": "x".repeat(1000)}));
        reading.events_until("cancel");
    }
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outbox_delivers_at_least_once_until_it_is_applied() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    let mut outbox = Stream::open(&bed, "Outbox", json!({"follow": true}), &["more"]);
    let mut sequences = Vec::new();
    for job in ["f1", "f2"] {
        call(&bed, "Run", run(job, "n0"));
        agent.run(Outcome::Ok).await;
        let reply = outbox.next();
        let entry = &reply["parameters"]["entries"][0];
        sequences.extend(entry["sequence"].as_u64());
        assert_eq!(
            (&entry["job"], &entry["epoch"], &entry["body"]["verdict"]),
            (&json!(job), &json!(1), &json!("ok")),
            "{reply}"
        );
    }
    let entries = || call(&bed, "Outbox", json!({}))["entries"].as_array().unwrap().len();
    assert_eq!(entries(), 2);
    assert!(sequences[0] < sequences[1], "{sequences:?}");
    call(&bed, "OutboxApplied", json!({"through": sequences[0]}));
    assert_eq!(entries(), 1);
    assert_eq!(call(&bed, "Outbox", json!({"after": sequences[1]}))["entries"], json!([]));
    controller.kill();
    let again = bed.start();
    assert_eq!(call(&bed, "Outbox", json!({}))["entries"], json!([]), "its node has not said Hello");
    let _agent = Agent::connect(&bed, &again, "n0").await;
    assert_eq!(call(&bed, "Outbox", json!({}))["entries"][0]["job"], "f2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_come_from_the_nodes_as_they_answer() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agents = [Agent::connect(&bed, &controller, "n0").await, Agent::connect(&bed, &controller, "n1").await];
    call(&bed, "Run", run("f1", "n[0-1]"));
    for agent in &mut agents {
        agent.run(Outcome::Ok).await;
    }
    let [mut here, gone] = agents;
    let mut both = Stream::open(&bed, "Logs", json!({"job": "f1", "lines": 5}), &["more"]);
    let mut questions = Vec::new();
    let mut gone = gone;
    for agent in [&mut here, &mut gone] {
        match agent.next().await {
            ToAgent::Ask { question, ask: Ask::Logs { job, lines, rank, .. } } => {
                assert_eq!((job.as_str(), lines, rank), ("f1", 5, None));
                questions.push(question);
            }
            other => panic!("{other:?}"),
        }
    }
    for (text, last) in [("one\n", false), ("two\n", true)] {
        here.send(&FromAgent::Answer { question: questions[0], text: text.to_owned(), last }).await;
        let part = both.next();
        assert_eq!(part["parameters"], json!({"host": "n0", "text": text, "last": last}));
    }
    drop(gone);
    // Connected at the question and gone before its answer: counts as unreachable.
    assert_eq!(both.next()["parameters"], json!({"unreachable": "n1"}));
    assert_eq!(call(&bed, "Nodes", json!({"nodes": "n1"}))["nodes"][0]["state"], "offline");
    let last = replies(&bed, "Logs", json!({"job": "f1", "targets": "1"}), &["more"]).pop().unwrap();
    assert_eq!(last["parameters"], json!({"unreachable": "n1"}));
}
