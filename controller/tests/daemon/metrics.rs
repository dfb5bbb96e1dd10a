//! Figures for Prometheus: off by default, correct when on, and accepted by Prometheus' own tools, the alert rules and
//! the dashboard.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perilog_core::ExitStatus;
use perilog_core::message::FromAgent;
use perilog_core::outcome::Outcome;
use perilog_core::task::{Ended, Start, Step};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bed::{Bed, Controller, LIMIT};
use crate::python::{call, run};

pub(crate) fn address(controller: &Controller) -> SocketAddr {
    let line = controller.log.wait_for("metrics for Prometheus");
    line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Sends an HTTP request, and returns head and body of the answer.
pub(crate) fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

pub(crate) fn get(address: SocketAddr, path: &str) -> (String, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: perilog\r\nConnection: close\r\n\r\n"))
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {series} in\n{page}")).rsplit(' ').next().unwrap().parse().unwrap()
}

fn finished(start: &Start, script: &str, elapsed_ms: u64) -> FromAgent {
    let step = Step {
        script: script.to_owned(),
        digest: "aa".to_owned(),
        attempt: 1,
        began_ms: 1_552_593_348_000,
        elapsed_ms,
        status: Some(ExitStatus::Exit(0)),
        tolerable: false,
        timed_out: false,
    };
    let mut ended = Ended::bare(Outcome::Ok, 1_552_593_349_000);
    (ended.began_ms, ended.elapsed_ms, ended.steps) = (Some(1_552_593_348_000), Some(elapsed_ms), vec![step]);
    FromAgent::Finished { task: start.task, ended: Box::new(ended) }
}

/// Runs promtool, of Debian's package `prometheus`, on `input`; returns its output.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool, of the package prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {printed}");
    printed
}

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/monitoring")
}

/// Returns the metrics page of a controller that has done some work.
async fn page() -> String {
    let mut bed = Bed::new();
    bed.extra = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let controller = bed.start();
    let address = address(&controller);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    agent.send(&finished(&start, "10-mount.sh", 420)).await;
    agent.acked(&start).await;
    // Reported again, as after a cut: it is no second task.
    agent.send(&finished(&start, "10-mount.sh", 420)).await;
    agent.acked(&start).await;
    call(&bed, "BackupKept", json!({}));
    let (head, page) = get(address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let nodes = call(&bed, "Nodes", json!({}));
    let until_ms = nodes["nodes"][0]["certificate_until_ms"].as_u64().unwrap();
    let ends = value(&page, "perilog_node_certificate_expiry_timestamp_seconds{by=\"hand\"}");
    assert_eq!(ends, (until_ms / 1_000) as f64, "{nodes}");
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_are_what_happened_and_promtool_likes_them() {
    let page = page().await;
    for (series, expect) in [
        ("perilog_controller_answers", 1.0),
        ("perilog_nodes{state=\"online\"}", 1.0),
        ("perilog_nodes{state=\"offline\"}", 0.0),
        ("perilog_hosts_drained", 0.0),
        // A job that ran and is not finished holds the node.
        ("perilog_hosts_held", 1.0),
        ("perilog_tasks_empty_total{action=\"prolog\"}", 0.0),
        ("perilog_agent_connects_total", 1.0),
        ("perilog_tasks_in_flight", 0.0),
        ("perilog_tasks_ended_total{action=\"prolog\",outcome=\"ok\"}", 1.0),
        ("perilog_task_duration_seconds_count{action=\"prolog\"}", 1.0),
        ("perilog_script_duration_seconds_sum{action=\"prolog\",script=\"10-mount.sh\"}", 0.42),
        ("perilog_script_failures_total{action=\"prolog\",script=\"10-mount.sh\"}", 0.0),
        ("perilog_store_full", 0.0),
        ("perilog_node_certificates_expiring{by=\"hand\"}", 0.0),
        ("perilog_node_certificates_expiring{by=\"enrolment\"}", 0.0),
    ] {
        assert_eq!(value(&page, series), expect, "{series}");
    }
    assert!(value(&page, "perilog_commit_duration_seconds_count") >= 3.0);
    // 2020: a clock that is wrong by years would be seen elsewhere.
    assert!(value(&page, "perilog_last_backup_timestamp_seconds") > 1_577_836_800.0);
    let printed = promtool(&["check", "metrics"], &page);
    assert_eq!(printed, "", "promtool has something to say");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_request_gets_the_reason_and_nothing_else_happens() {
    let mut bed = Bed::new();
    bed.extra = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let controller = bed.start();
    let address = address(&controller);
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned(), "405"),
        ("GET /secret HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "404"),
        ("no http at all\r\n\r\n".to_owned(), "400"),
        (format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(200_000)), "431"),
    ] {
        let (head, _) = ask(address, &request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {head}");
    }
    assert!(get(address, "/metrics").1.contains("perilog_controller_answers 1"));
}

#[test]
fn nobody_listens_unless_it_is_asked_for() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let log = controller.log.text();
    assert!(log.contains("listening for agents") && !log.contains("Prometheus"), "{log}");
}

/// Returns the number of file descriptors that the controller has open on its store.
fn connections(bed: &Bed, controller: &Controller) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", controller.pid())).unwrap();
    open.filter(|fd| std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|path| path == bed.store())).count()
}

/// The metrics page reads the store over its own connection. So `perilog stats` over a million tasks delays no scraper.
#[test]
fn scrapers_have_a_connection_of_their_own_to_the_store() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let without = connections(&bed, &controller);
    // A controller that was killed would be followed by a search for damage, over one more connection.
    controller.signal(rustix::process::Signal::TERM);
    assert_eq!(controller.terminated().code(), Some(0));
    bed.extra = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let controller = bed.start();
    assert_eq!(connections(&bed, &controller), without + 1);
}

#[test]
fn alert_rules_are_rules_and_fire_when_they_should() {
    let path = |name: &str| monitoring().join(name).display().to_string();
    promtool(&["check", "rules", &path("perilog.rules.yml")], "");
    promtool(&["check", "config", "--syntax-only", &path("prometheus.yml")], "");
    let printed = promtool(&["test", "rules", &path("perilog.rules.test.yml")], "");
    assert!(printed.contains("SUCCESS"), "{printed}");
}

/// Returns the words in a text that begin with `perilog_`.
fn named(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !word(c)).filter(|word| word.starts_with("perilog_"));
    words.map(str::to_owned).collect()
}

/// The alert rules, the dashboard and the README.md beside them name only metrics that the metrics page has, and the
/// README.md names all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rules_and_dashboard_ask_for_is_there() {
    let page = page().await;
    let there: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned).collect();
    let read = |name: &str| std::fs::read_to_string(monitoring().join(name)).unwrap();
    let dashboard: Value = serde_json::from_str(&read("grafana-perilog.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
    for name in ["grafana-perilog.json", "perilog.rules.yml", "perilog.rules.test.yml", "README.md"] {
        for asked in named(&read(name)) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| asked.strip_suffix(end)).unwrap_or(&asked);
            assert!(there.contains(&asked) || there.contains(base), "{name} asks for {asked}");
        }
    }
    let reported = named(&read("README.md"));
    let unreported: Vec<&String> = there.iter().filter(|name| !reported.contains(*name)).collect();
    assert!(unreported.is_empty(), "README.md does not say what {unreported:?} are");
}
