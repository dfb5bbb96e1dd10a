//! Tests of the HTTP listener: connections stall, the writer hangs, or visitors ask very often.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use perilog_core::JobId;
use perilog_core::controller::io::{Refusal, Reply, Request};
use perilog_core::controller::overview::OverviewRequest;
use perilog_core::controller::view::StatusView;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::page_cache::{PageCache, Question};
use super::server::{Bounds, serve_within};
use super::{Names, Page, Site, bind};
use crate::daemon::{Entry, Inlet};
use crate::metrics::{Metrics, Source};
use crate::store::StepReader;

/// Limit far above every wait of these tests; exceeding it fails the test.
const LIMIT: Duration = Duration::from_secs(60);

struct Served {
    address: SocketAddr,
    metrics: Metrics,
    /// The test's end of the writer's queue.
    entries: mpsc::Receiver<Entry>,
    _dir: tempfile::TempDir,
}

fn served(bounds: Bounds) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    std::fs::File::create(&store).unwrap();
    let (inlet, entries) = Inlet::new();
    let metrics = Metrics::default();
    let steps = StepReader::open(&store).unwrap();
    let page_cache = || PageCache::new(inlet.clone(), "test");
    let page = Some(Page { page_cache: page_cache(), names: Names::new("ctl", watch::channel(None).1) });
    let health = page_cache();
    let site = Site {
        figures: Source {
            metrics: metrics.clone(),
            inlet: inlet.clone(),
            steps,
            expiries: crate::listener::Expiries::default(),
            store: "/none".into(),
        },
        health,
        page,
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_within(bounds, listener, site));
    Served { address, metrics, entries, _dir: dir }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: ctl\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut output = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut output)).await.expect("no answer").unwrap();
    output
}

/// Starts a writer for tests, which answers each request with `status` after the time `takes`; without `status` it
/// refuses each request, as if it had no store. Returns the requests that the writer has answered.
fn writer(mut entries: mpsc::Receiver<Entry>, takes: Duration, status: Option<StatusView>) -> mpsc::Receiver<Request> {
    let (asked, seen) = mpsc::channel(1_000);
    tokio::spawn(async move {
        while let Some(entry) = entries.recv().await {
            let Entry::Request { request, answer, .. } = entry else { panic!("{entry:?}") };
            tokio::time::sleep(takes).await;
            let reply = status.clone().map(|status| Reply::Status(Box::new(status)));
            asked.send(request).await.unwrap();
            let _ = answer.send(reply.ok_or_else(|| Refusal::Unavailable("no store".to_owned())));
        }
    });
    seen
}

/// Regression test: sixteen silent connections kept Prometheus out for minutes.
#[tokio::test(start_paused = true)]
async fn connections_that_ask_nothing_end_soon() {
    let served = served(Bounds::DEFAULT);
    let mut silent = Vec::new();
    for n in 0..Bounds::DEFAULT.connections {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(&b"GET /metr"[..9 * (n % 2)]).await.unwrap();
        silent.push(stream);
    }
    for mut stream in silent {
        let mut output = Vec::new();
        let ended = tokio::time::timeout(2 * Bounds::DEFAULT.silent, stream.read_to_end(&mut output)).await;
        assert!(ended.is_ok(), "still open");
    }
}

/// A peer must not keep its connection by asking again and again without reading an answer.
#[tokio::test]
async fn peers_that_take_no_answer_lose_their_connections() {
    let served = served(Bounds { connections: 2, stalled_ms: 500, ..Bounds::DEFAULT });
    let mut greedy = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let many = "GET /page.js HTTP/1.1\r\nHost: ctl\r\n\r\n".repeat(1_000);
        // Until the peer takes no more, because its answers are not taken.
        while let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(300), stream.write_all(many.as_bytes())).await
        {
        }
        greedy.push(stream);
    }
    let output = get(served.address, "/page.css").await;
    assert!(output.starts_with("HTTP/1.1 200"), "{output}");
    drop(greedy);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_hangs_or_refuses_is_unhealthy() {
    let hanging = served(Bounds::DEFAULT);
    let began = Instant::now();
    let output = get(hanging.address, "/healthz").await;
    assert!(output.starts_with("HTTP/1.1 503") && output.ends_with("within 5s: its disk may hang\n"), "{output}");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    let output = get(hanging.address, "/status.json").await;
    assert!(
        output.starts_with("HTTP/1.1 503") && output.contains("{\"error\":\"the controller's writer did not"),
        "{output}"
    );

    let refusing = served(Bounds::DEFAULT);
    let _asked = writer(refusing.entries, Duration::ZERO, None);
    let output = get(refusing.address, "/healthz").await;
    assert!(output.starts_with("HTTP/1.1 503") && output.ends_with("\r\n\r\nno store\n"), "{output}");
}

#[tokio::test(start_paused = true)]
async fn health_is_the_writer_and_room_in_the_store() {
    let served = served(Bounds::DEFAULT);
    let _asked = writer(served.entries, Duration::ZERO, Some(status()));
    let output = get(served.address, "/healthz").await;
    assert!(output.starts_with("HTTP/1.1 200") && output.ends_with("\r\n\r\nok\n"), "{output}");
    served.metrics.store_full(true);
    let output = get(served.address, "/healthz").await;
    assert!(output.starts_with("HTTP/1.1 503") && output.contains("the store's disk is full"), "{output}");
    served.metrics.store_full(false);
    assert!(get(served.address, "/healthz").await.starts_with("HTTP/1.1 200"));
}

fn status() -> StatusView {
    serde_json::from_value(serde_json::json!({
        "version": "1", "cluster": "c", "epoch": 1, "nodes": 0, "online": 0, "jobs": 0, "actions_open": 0,
        "tasks_open": 0, "outbox": 0, "notes": [],
    }))
    .unwrap()
}

fn job(n: u32) -> Question {
    Question::Overview(OverviewRequest::Job(JobId::new(&format!("f{n}")).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_asks_the_same_asks_the_writer_once() {
    let (inlet, entries) = Inlet::new();
    let mut asked = writer(entries, Duration::from_millis(20), None);
    let page_cache = PageCache::new(inlet, "test");
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let page_cache = page_cache.clone();
            tokio::spawn(async move { page_cache.see(Question::Overview(OverviewRequest::Cluster)).await.status })
        })
        .collect();
    for client in crowd {
        assert_eq!(client.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(asked.try_recv().is_ok() && asked.try_recv().is_err(), "asked more than once");
    // The answer is kept for a moment, and not for ever.
    tokio::time::sleep(Duration::from_secs(1)).await;
    page_cache.see(Question::Overview(OverviewRequest::Cluster)).await;
    assert!(asked.try_recv().is_ok());
}

/// After each answer, the writer gets no question for four times as long as the answer took (up to a limit), whatever
/// the page's visitors ask. So it normally has four fifths of its time for its own work.
#[tokio::test(start_paused = true)]
async fn the_writer_rests_between_two_questions() {
    let (inlet, entries) = Inlet::new();
    let mut asked = writer(entries, Duration::from_millis(100), None);
    let page_cache = PageCache::new(inlet, "test");
    let began = Instant::now();
    for n in 0..11 {
        page_cache.see(job(n)).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(11 * 100 + 10 * 400), "{:?}", began.elapsed());
    // Also where each visitor goes away while the writer works on the answer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    while asked.try_recv().is_ok() {}
    let began = Instant::now();
    for n in 0..10 {
        let page_cache = page_cache.clone();
        let client = tokio::spawn(async move { page_cache.see(job(100 + n)).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.abort();
    }
    page_cache.see(job(200)).await;
    let count = std::iter::from_fn(|| asked.try_recv().ok()).count() as u32;
    assert!(
        count >= 2 && began.elapsed() >= Duration::from_millis(400) * (count - 1),
        "{:?}, {count}",
        began.elapsed()
    );
}
