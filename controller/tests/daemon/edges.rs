//! Tests of an edge: it follows all attempts of its source over one connection, and may not call methods that are
//! only for administrators.

use perilog_core::outcome::Outcome;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bed::Bed;
use crate::python::{Stream, call, refused, replies};

fn source() -> Value {
    json!({"name": "flux", "instance": "i1"})
}

/// Reads replies until one has an attempt of this job for which `is` is true; returns the attempt.
fn until(stream: &mut Stream, job: &str, is: impl Fn(&Value) -> bool) -> Value {
    loop {
        let reply = stream.next();
        let attempts = reply["parameters"]["attempts"].as_array().unwrap_or_else(|| panic!("{reply}")).clone();
        if let Some(found) = attempts.into_iter().find(|of| of["job"] == job && is(of)) {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_follows_its_source() {
    let mut bed = Bed::new();
    bed.extra = "edge = { drains = true }\n".to_owned();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "JobAdd", json!({"job": "f1", "nodes": "n0", "userid": 1000, "source": source()}));
    let mut feed = Stream::open(&bed, "Attempts", json!({"source": source(), "follow": true}), &["more"]);
    let first = feed.next()["parameters"].clone();
    assert_eq!((&first["attempts"][0]["job"], &first["current"]), (&json!("f1"), &json!(false)), "{first}");
    let last = feed.next()["parameters"].clone();
    assert_eq!((&last["drains"], &last["current"]), (&json!([]), &json!(true)), "{last}");

    // Jobs of another source are left out: the next reply is about this one.
    call(&bed, "JobAdd", json!({"job": "x", "nodes": "n0", "source": {"name": "flux", "instance": "i2"}}));
    call(&bed, "Run", json!({"job": "f1", "action": "prolog"}));
    agent.run(Outcome::Failed { why: perilog_core::outcome::Failure::Exit(3) }).await;
    let failed = until(&mut feed, "f1", |of| of["actions"][0]["verdict"].is_string());
    let prolog = &failed["actions"][0];
    assert_eq!(
        (&prolog["verdict"], &prolog["bad"], &prolog["bad_hosts"]),
        (&json!("failed"), &json!("0"), &json!("n0"))
    );

    // The node is released when the edge confirms the drain.
    call(&bed, "JobFinish", json!({"job": "f1"}));
    agent.run(Outcome::Ok).await;
    let drains = call(&bed, "Drains", json!({}))["drains"].clone();
    assert_eq!(drains[0]["confirmed"], false, "{drains}");
    let reported = json!({"host": "n0", "notice_id": drains[0]["notice_id"], "lifted": false});
    let failed = json!({"host": "n0", "notice_id": drains[0]["notice_id"], "lifted": false, "failed": "no such node"});
    call(&bed, "DrainDone", failed);
    let rows = call(&bed, "Ps", json!({"held": true}))["rows"].to_string();
    assert!(rows.contains("no such node"), "{rows}");
    call(&bed, "DrainDone", reported);
    let over = until(&mut feed, "f1", |of| of["complete"] == true);
    assert_eq!(over["released"], "0");

    // Closed attempts are reported only to a follower that names the job.
    let named = |jobs: Value| {
        let asked = json!({"source": source(), "jobs": jobs});
        let replies = replies(&bed, "Attempts", asked, &["more"]);
        replies.iter().flat_map(|reply| reply["parameters"]["attempts"].as_array().unwrap().clone()).count()
    };
    assert_eq!((named(json!([])), named(json!(["f1"])), named(json!(["x"]))), (0, 1, 0));
    controller.kill();
}

#[test]
fn an_edge_takes_no_more_than_its_part() {
    assert!(rustix::process::geteuid().is_root(), "only root can play a member of a group: run this test as root");
    let mut bed = Bed::new();
    // The group of nobody: 65534 in each distribution, with different names.
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let name = groups.lines().find_map(|line| line.split(":x:65534:").next().filter(|name| *name != line)).unwrap();
    bed.extra = format!("edge = {{ group = {name:?} }}\n");
    let _controller = bed.start();
    let as_edge = ["uid=65534"];
    let add = json!({"job": "f1", "attempt": "0", "nodes": "n0", "source": source()});
    let added = replies(&bed, "JobAdd", add, &as_edge);
    assert_eq!(added[0]["parameters"]["attached"], false, "{added:?}");
    for (method, parameters) in
        [("TokenMake", json!({"nodes": "n0"})), ("Recover", json!({"take_over": true})), ("Quiesce", json!({}))]
    {
        let (error, reported) = refused(&bed, method, parameters, &as_edge);
        assert_eq!(error, "io.perilog.Controller.PermissionDenied", "{method}: {reported}");
    }
    // The job of a hook is not the edge's.
    call(&bed, "JobAdd", json!({"job": "f2", "nodes": "n1"}));
    for job in ["f1", "f2"] {
        let finish = json!({"job": job, "attempt": "0"});
        let reply = replies(&bed, "JobFinish", finish, &as_edge)[0].clone();
        let code = &reply["parameters"]["code"];
        assert_eq!(code, &if job == "f1" { Value::Null } else { json!("conflict") }, "{reply}");
    }
}
