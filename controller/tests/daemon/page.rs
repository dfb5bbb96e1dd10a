//! Tests of the HTTP listener's page for people (`[metrics] page`): it is off by default, it refuses foreign host names
//! and methods that change something, and it shows the true state.

use perilog_core::ExitStatus;
use perilog_core::message::FromAgent;
use perilog_core::outcome::{Failure, Outcome};
use perilog_core::task::{Ended, Start, Step, Tail};
use serde_json::Value;

use crate::agent::Agent;
use crate::bed::{Bed, Controller};
use crate::metrics::{address, ask, get};
use crate::python::{call, run};

/// Makes a test bed, a directory with all that a controller needs, whose controller serves the page.
fn bed() -> Bed {
    let mut bed = Bed::new();
    bed.extra = "[metrics]\nlisten = \"127.0.0.1:0\"\npage = true\n".to_owned();
    bed
}

/// Requests a path with `localhost` as the name of the host, which the page accepts; returns head and body of the
/// answer.
fn get_as_localhost(controller: &Controller, path: &str) -> (String, String) {
    ask(address(controller), &format!("GET {path} HTTP/1.1\r\nHost: localhost:5116\r\nConnection: close\r\n\r\n"))
}

fn json(controller: &Controller, path: &str) -> Value {
    let (head, body) = get_as_localhost(controller, path);
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}\n{body}");
    serde_json::from_str(&body).unwrap()
}

const OF_THE_PAGE: [&str; 7] =
    ["/", "/page.css", "/page.js", "/icon.svg", "/status.json", "/job.json?job=f1", "/node.json?node=n0"];

#[test]
fn there_is_no_page_unless_it_is_asked_for() {
    let mut bed = Bed::new();
    bed.extra = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let controller = bed.start();
    let (head, body) = get(address(&controller), "/");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("[metrics] page is false"), "{head}\n{body}");
    for path in &OF_THE_PAGE[1..] {
        let (head, body) = get(address(&controller), path);
        assert!(head.starts_with("HTTP/1.1 404") && body.contains("[metrics] page is false"), "{path}: {head}\n{body}");
    }
    assert_eq!(get(address(&controller), "/healthz").1, "ok\n");
}

#[test]
fn every_answer_forbids_what_a_stranger_could_use() {
    let mut bed = bed();
    let controller = bed.start();
    for path in OF_THE_PAGE.into_iter().chain(["/metrics", "/healthz", "/nothing"]) {
        let head = get_as_localhost(&controller, path).0.to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.lines().any(|line| line == header), "{path}: no {header} in\n{head}");
        }
        assert!(!head.contains("access-control-allow"), "{path}: {head}");
    }
    let kinds = ["text/html; charset=utf-8", "text/css", "text/javascript", "image/svg+xml", "application/json"];
    for (path, kind) in OF_THE_PAGE.into_iter().zip(kinds) {
        let head = get_as_localhost(&controller, path).0.to_lowercase();
        assert!(head.contains(&format!("\r\ncontent-type: {kind}")), "{path}: {head}");
    }
}

/// The page has no inline script and no inline style: its content policy would refuse them.
#[test]
fn the_page_has_no_inline_script_and_asks_nobody_else() {
    let mut bed = bed();
    let controller = bed.start();
    let html = get_as_localhost(&controller, "/").1;
    assert!(html.contains("<script src=\"page.js\" defer></script>"), "{html}");
    assert_eq!(html.matches("<script").count(), 1, "{html}");
    for tag in html.split('<').filter_map(|tag| tag.split('>').next()) {
        let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
        let inline = tag.split_whitespace().any(|word| is_handler(word) || word.starts_with("style"));
        assert!(!inline && !tag.contains("javascript:") && !tag.contains("//"), "{tag}");
    }
    let script = get_as_localhost(&controller, "/page.js").1;
    for forbidden in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "http:", "https:"]
    {
        assert!(!script.contains(forbidden), "page.js has {forbidden}");
    }
    let style = get_as_localhost(&controller, "/page.css").1;
    assert!(!style.contains("url(") && !style.contains("@import"), "page.css loads something");
}

#[test]
fn who_asks_otherwise_than_by_get_changes_nothing() {
    let mut bed = bed();
    let controller = bed.start();
    for path in OF_THE_PAGE.into_iter().chain(["/metrics", "/healthz"]) {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            );
            let (head, _) = ask(address(&controller), &request);
            assert!(
                head.starts_with("HTTP/1.1 405") && head.to_lowercase().contains("allow: get, head"),
                "{path}: {head}"
            );
        }
    }
    let (head, body) = get_as_localhost(&controller, "/page.js");
    let length =
        |head: &str| head.to_lowercase().lines().find(|line| line.starts_with("content-length")).map(str::to_owned);
    let (same, none) =
        ask(address(&controller), "HEAD /page.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((length(&same), none.as_str()), (length(&head), ""));
    assert_eq!(length(&head), Some(format!("content-length: {}", body.len())));
}

/// The page refuses requests by a name that a stranger has pointed at this host (DNS rebinding). So a foreign web page
/// cannot read jobs or nodes through a visitor's browser.
#[test]
fn a_name_that_a_stranger_has_given_is_refused() {
    let mut bed = bed();
    let controller = bed.start();
    let by = |path: &str, host: &str| {
        ask(address(&controller), &format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n"))
    };
    for path in OF_THE_PAGE {
        for host in
            ["Host: evil.example\r\n", "Host: evil.example:5116\r\n", "Host: localhost\r\nHost: evil.example\r\n", ""]
        {
            let (head, body) = by(path, host);
            let refused = head.starts_with("HTTP/1.1 421") || head.starts_with("HTTP/1.1 400");
            assert!(refused && !body.contains("groups"), "{path} by {host:?}: {head}\n{body}");
        }
        for host in ["Host: 127.0.0.1:5116\r\n", "Host: [::1]\r\n", "Host: LocalHost:99\r\n"] {
            let (head, _) = by(path, host);
            assert!(!head.starts_with("HTTP/1.1 421"), "{path} by {host:?}: {head}");
        }
    }
    assert!(by("/", "Host: evil.example\r\n").1.contains("use its address, or one of localhost"));
    // They name no job and no node, and Prometheus may know this host by any name.
    for path in ["/metrics", "/healthz"] {
        assert!(by(path, "Host: evil.example\r\n").0.starts_with("HTTP/1.1 200"), "{path}");
    }
}

/// On two hosts people and nodes find the controller by a name that is the name of neither host.
#[test]
fn a_name_of_the_certificate_is_answered_also_after_a_reload() {
    let mut bed = bed();
    bed.authority.controller_as("ctl.site.example");
    let controller = bed.start();
    let status = |controller: &Controller, host: &str| {
        let request = format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(address(controller), &request)
    };
    assert!(status(&controller, "CTL.site.example:5116").0.starts_with("HTTP/1.1 200"));
    for stranger in ["other", "site.example", "ctl2.site.example"] {
        let (head, body) = status(&controller, stranger);
        assert!(head.starts_with("HTTP/1.1 421") && body.contains(", ctl.site.example"), "{stranger}: {head}\n{body}");
    }
    bed.authority.controller_as("ctl2.site.example");
    controller.signal(rustix::process::Signal::HUP);
    controller.wait_notified("READY=1");
    assert!(status(&controller, "ctl2.site.example").0.starts_with("HTTP/1.1 200"));
    assert!(status(&controller, "ctl.site.example").0.starts_with("HTTP/1.1 421"), "the name of the old certificate");
}

#[test]
fn what_is_no_name_of_a_job_or_node_is_refused() {
    let mut bed = bed();
    let controller = bed.start();
    for (path, status) in [
        ("/job.json", "400"),
        ("/job.json?", "400"),
        ("/job.json?job=", "400"),
        ("/job.json?node=n0", "400"),
        ("/job.json?job=%2e%2e", "400"),
        ("/job.json?job=f1&job=f2", "400"),
        ("/job.json?job=none", "404"),
        ("/node.json?node=-rf", "400"),
        ("/node.json?node=none", "404"),
        ("/../etc/passwd", "404"),
        ("/page.js/", "404"),
    ] {
        let (head, body) = get_as_localhost(&controller, path);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {head}\n{body}");
        let is_json = serde_json::from_str::<Value>(&body).is_ok_and(|body| body["error"].is_string());
        assert_eq!(is_json, path.contains(".json"), "{path}: {body}");
    }
    let long = format!("/job.json?job={}", "x".repeat(100_000));
    let (head, _) = get_as_localhost(&controller, &long);
    assert!(head.starts_with("HTTP/1.1 4"), "{head}");
}

/// Returns the Finished message of a task whose script has HTML markup in its name and in its output.
fn hostile(start: &Start) -> FromAgent {
    let script = "</script><script>alert(1)</script>\"'&\u{202e}";
    let step = Step {
        script: script.to_owned(),
        digest: "aa".to_owned(),
        attempt: 1,
        began_ms: 1_552_593_348_000,
        elapsed_ms: 5,
        status: Some(ExitStatus::Exit(7)),
        tolerable: false,
        timed_out: false,
    };
    let ended = Ended {
        steps: vec![step],
        tails: vec![Tail { script: script.to_owned(), text: "secret\n<img src=x onerror=alert(2)>\n".to_owned() }],
        ..Ended::bare(Outcome::Failed { why: Failure::Exit(7) }, 1_552_593_349_000)
    };
    FromAgent::Finished { task: start.task, ended: Box::new(ended) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_gets_what_nodes_and_jobs_do_and_no_output() {
    let mut bed = bed();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    let _idle = Agent::connect(&bed, &controller, "n1").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    let status = json(&controller, "/status.json");
    assert_eq!(status["cluster"], "test");
    let groups: Vec<String> = status["groups"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(
        groups,
        [
            r#"{"action":"prolog","count":1,"held":true,"hosts":"n0","state":"busy"}"#,
            r#"{"count":1,"hosts":"n1","state":"free"}"#
        ]
    );
    assert_eq!((&status["open"][0]["job"], &status["status"]["nodes"]), (&"f1".into(), &2.into()));

    agent.send(&hostile(&start)).await;
    agent.acked(&start).await;
    let job = json(&controller, "/job.json?job=f1");
    let action = &job["attempts"][0]["actions"][0];
    assert_eq!((&job["job"], &action["verdict"], &action["bad"]), (&"f1".into(), &"failed".into(), &1.into()));
    assert_eq!(action["faults"][0]["line"], "<img src=x onerror=alert(2)>");
    let node = json(&controller, "/node.json?node=n0");
    assert_eq!(node["failed"][0]["job"], "f1");
    for seen in [json(&controller, "/status.json"), job, node] {
        assert!(!seen.to_string().contains("secret"), "{seen}");
    }
}
