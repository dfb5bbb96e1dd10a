//! The server against clients that behave, and those that do not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::*;

const TEXT: &str = "\
interface test.echo
type Pair (left: string, right: string)
method Echo(text: string, times: ?int) -> (text: string)
method Count(to: int) -> (n: int)
method Flood() -> (text: string)
method Forever() -> (n: int)
method Slow() -> ()
method Silent() -> ()
method HalfStream() -> (n: int)
method Elsewhere() -> ()
method Panic() -> ()
method Who() -> (uid: int)
";

#[derive(Default)]
struct Echo {
    calls: AtomicUsize,
    client_left: Notify,
    slow: Notify,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EchoParameters {
    text: String,
    times: Option<usize>,
}

#[derive(Deserialize)]
struct CountParameters {
    to: u64,
}

impl Service for Echo {
    fn about(&self) -> About {
        About {
            vendor: "v",
            product: "p",
            version: "1",
            url: "u",
        }
    }

    fn describe(&self) -> &'static [InterfaceDescription] {
        &[InterfaceDescription {
            name: "test.echo",
            text: TEXT,
        }]
    }

    async fn call(&self, call: Call) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut call = call;
        match call.method.as_str() {
            "test.echo.Echo" => {
                let Some((p, _, reply)) = call.parse::<EchoParameters>().await else {
                    return;
                };
                let _ = reply.done(json!({ "text": p.text.repeat(p.times.unwrap_or(1)) })).await;
            }
            "test.echo.Count" => {
                let Some((p, _, mut reply)) = call.parse::<CountParameters>().await else {
                    return;
                };
                for n in 1..p.to {
                    if reply.more(json!({ "n": n })).await.is_err() {
                        return;
                    }
                }
                let _ = reply.done(json!({ "n": p.to })).await;
            }
            "test.echo.Flood" => {
                while call.reply.more(json!({ "text": "x".repeat(100_000) })).await.is_ok() {}
                self.client_left.notify_one();
            }
            "test.echo.Forever" => {
                let _ = call.reply.more(json!({ "n": 0 })).await;
                call.reply.closed().await;
                self.client_left.notify_one();
            }
            "test.echo.Slow" => {
                self.slow.notified().await;
                let _ = call.reply.done(json!({})).await;
            }
            "test.echo.Silent" => {}
            "test.echo.HalfStream" => {
                let _ = call.reply.more(json!({ "n": 1 })).await;
            }
            "test.echo.Elsewhere" => {
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    let _ = call.reply.done(json!({})).await;
                });
            }
            "test.echo.Panic" => panic!("on purpose"),
            "test.echo.Who" => {
                let peer = &call.peer;
                let who = json!({ "uid": peer.uid, "gid": peer.gid, "pid": peer.pid, "root": peer.is_root(), "own": peer.in_group(peer.gid) });
                let _ = call.reply.done(who).await;
            }
            other => panic!("{other} was never defined"),
        }
    }
}

struct Bed {
    _dir: tempfile::TempDir,
    path: PathBuf,
    service: std::sync::Arc<Echo>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn bed() -> Bed {
    bed_of(Bounds::default())
}

fn bed_of(bounds: Bounds) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = bind(&path, 0o600, None).unwrap();
    let service = std::sync::Arc::new(Echo::default());
    let serving = service.clone();
    let server = tokio::spawn(async move {
        let Err(error) = serve(listener, serving, bounds).await;
        panic!("{error}");
    });
    Bed {
        _dir: dir,
        path,
        service,
        server,
    }
}

/// A client without manners: bytes in, messages out.
struct Raw {
    stream: UnixStream,
    rest: Vec<u8>,
}

impl Raw {
    async fn connect(bed: &Bed) -> Self {
        Self {
            stream: UnixStream::connect(&bed.path).await.unwrap(),
            rest: Vec::new(),
        }
    }

    async fn send(&mut self, message: Value) {
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// None at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.rest.iter().position(|&b| b == 0) {
                let message = serde_json::from_slice(&self.rest[..at]).unwrap();
                self.rest.drain(..=at);
                return Some(message);
            }
            match self.stream.read_buf(&mut self.rest).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.send(json!({ "method": method, "parameters": parameters })).await;
        self.next().await.expect("an answer")
    }
}

async fn echoes(bed: &Bed) {
    let answer = Raw::connect(bed)
        .await
        .call("test.echo.Echo", json!({ "text": "a" }))
        .await;
    assert_eq!(answer, json!({ "parameters": { "text": "a" } }));
}

fn error(name: &str, key: &str, value: &str) -> Value {
    json!({ "error": format!("org.varlink.service.{name}"), "parameters": { key: value } })
}

#[tokio::test]
async fn each_mistake_has_its_error_and_the_connection_goes_on() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    for (method, parameters, expect) in [
        ("test.echo.Nope", json!({}), error("MethodNotFound", "method", "Nope")),
        (
            "test.none.Echo",
            json!({}),
            error("InterfaceNotFound", "interface", "test.none"),
        ),
        ("", json!({}), error("InterfaceNotFound", "interface", "")),
        ("Echo", json!({}), error("InterfaceNotFound", "interface", "")),
        ("test.echo.", json!({}), error("MethodNotFound", "method", "")),
        (
            "test.echo.Echo",
            json!({}),
            error("InvalidParameter", "parameter", "missing field `text`"),
        ),
        (
            "test.echo.Echo",
            json!([1]),
            error("InvalidParameter", "parameter", "parameters"),
        ),
        (
            "test.echo.Echo",
            json!({ "text": "a", "times": "x" }),
            error(
                "InvalidParameter",
                "parameter",
                "times: invalid type: string \"x\", expected usize",
            ),
        ),
        (
            "test.echo.Silent",
            json!({}),
            error("MethodNotImplemented", "method", "test.echo.Silent"),
        ),
        (
            "org.varlink.service.Nope",
            json!({}),
            error("MethodNotFound", "method", "Nope"),
        ),
        (
            "org.varlink.service.GetInterfaceDescription",
            json!({ "interface": "no.such" }),
            error("InterfaceNotFound", "interface", "no.such"),
        ),
        (
            "test.echo.Count",
            json!({ "to": 2 }),
            json!({ "error": "org.varlink.service.ExpectedMore", "parameters": {} }),
        ),
        (
            "test.echo.Echo",
            json!({ "text": "ab", "times": 2 }),
            json!({ "parameters": { "text": "abab" } }),
        ),
        ("test.echo.Elsewhere", Value::Null, json!({ "parameters": {} })),
    ] {
        assert_eq!(raw.call(method, parameters).await, expect, "{method}");
    }
    raw.send(json!({ "method": "test.echo.Echo", "upgrade": true })).await;
    assert_eq!(
        raw.next().await.unwrap(),
        error("InvalidParameter", "parameter", "upgrade")
    );
    let unknown = raw.call("test.echo.Echo", json!({ "text": "", "tims": 1 })).await;
    assert!(
        unknown["parameters"]["parameter"].as_str().unwrap().contains("`tims`"),
        "{unknown}"
    );
}

#[tokio::test]
async fn the_service_describes_itself() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let info = raw.call("org.varlink.service.GetInfo", Value::Null).await;
    assert_eq!(
        info["parameters"]["interfaces"],
        json!(["org.varlink.service", "test.echo"])
    );
    assert_eq!(info["parameters"]["vendor"], "v");
    let description = raw
        .call(
            "org.varlink.service.GetInterfaceDescription",
            json!({ "interface": "test.echo" }),
        )
        .await;
    assert_eq!(description["parameters"]["description"], TEXT);
}

#[tokio::test]
async fn requests_in_one_write_are_answered_in_order_and_oneway_ones_not_at_all() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let mut bytes = Vec::new();
    for i in 0..50 {
        let oneway = i % 5 == 0;
        let message = json!({ "method": "test.echo.Echo", "parameters": { "text": i.to_string() }, "oneway": oneway });
        bytes.extend_from_slice(message.to_string().as_bytes());
        bytes.push(0);
    }
    bytes.extend_from_slice(b"{\"method\":\"test.echo.Count\",\"parameters\":{\"to\":3},\"more\":true}\0");
    raw.stream.write_all(&bytes).await.unwrap();
    for i in (0..50).filter(|i| i % 5 != 0) {
        assert_eq!(raw.next().await.unwrap()["parameters"]["text"], i.to_string());
    }
    for (n, continues) in [(1, json!(true)), (2, json!(true)), (3, Value::Null)] {
        let reply = raw.next().await.unwrap();
        assert_eq!(
            (&reply["parameters"]["n"], &reply["continues"]),
            (&json!(n), &continues)
        );
    }
    assert_eq!(bed.service.calls.load(Ordering::SeqCst), 51);
}

#[tokio::test]
async fn a_request_in_single_bytes_is_one_request() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    for byte in b"{\"method\":\"test.echo.Echo\",\"parameters\":{\"text\":\"\xc3\xa9\"}}\0" {
        raw.stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.next().await.unwrap()["parameters"]["text"], "é");
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let bed = bed();
    let deep = format!(
        "{{\"method\":\"test.echo.Echo\",\"parameters\":{}\0",
        "[".repeat(100_000)
    )
    .into_bytes();
    for bytes in [
        &b"hello\0"[..],
        b"\0",
        b"[]\0",
        b"{\"method\":7}\0",
        b"{\"method\":\"\xff\"}\0",
        b"{}\0",
        &deep,
    ] {
        let mut raw = Raw::connect(&bed).await;
        raw.stream.write_all(bytes).await.unwrap();
        assert_eq!(
            raw.next().await,
            None,
            "{:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
        );
    }
    echoes(&bed).await;
    assert_eq!(bed.service.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_over_the_limit_ends_its_connection_and_one_at_it_does_not() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let frame = json!({ "method": "test.echo.Echo", "parameters": { "text": "" } })
        .to_string()
        .len();
    let answer = raw
        .call("test.echo.Echo", json!({ "text": "x".repeat(MAX_REQUEST - frame) }))
        .await;
    assert_eq!(
        answer["parameters"]["text"].as_str().unwrap().len(),
        MAX_REQUEST - frame
    );
    let mut raw = Raw::connect(&bed).await;
    // The server may close while we still write.
    let _ = raw.stream.write_all(&vec![b' '; 2 * MAX_REQUEST]).await;
    assert_eq!(raw.next().await, None);
    echoes(&bed).await;
}

#[tokio::test]
async fn a_client_may_leave_at_any_moment() {
    let bed = bed();
    for bytes in [
        &b""[..],
        b"{\"meth",
        b"{\"method\":\"test.echo.Slow\"}\0",
        b"{\"method\":\"test.echo.Flood\",\"more\":true}\0",
    ] {
        let mut raw = Raw::connect(&bed).await;
        raw.stream.write_all(bytes).await.unwrap();
    }
    echoes(&bed).await;
}

#[tokio::test]
async fn a_stream_learns_that_its_client_left() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Forever", "more": true })).await;
    raw.next().await.unwrap();
    let left = bed.service.client_left.notified();
    tokio::pin!(left);
    assert!(futures_util::poll!(left.as_mut()).is_pending());
    drop(raw);
    left.await;
}

#[tokio::test]
async fn a_client_that_only_stopped_writing_gets_its_answer() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Slow" })).await;
    raw.stream.shutdown().await.unwrap();
    echoes(&bed).await;
    bed.service.slow.notify_one();
    assert_eq!(raw.next().await.unwrap(), json!({ "parameters": {} }));
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn a_stream_without_an_end_ends_the_connection() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.HalfStream", "more": true }))
        .await;
    assert_eq!(raw.next().await.unwrap()["continues"], true);
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn a_panic_ends_one_connection() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Panic" })).await;
    assert_eq!(raw.next().await, None);
    echoes(&bed).await;
}

#[tokio::test]
async fn a_hundred_clients_are_served_beside_stalled_and_slow_ones() {
    let bed = bed();
    let mut stalled = Raw::connect(&bed).await;
    stalled.send(json!({ "method": "test.echo.Flood", "more": true })).await;
    stalled.stream.readable().await.unwrap();
    let mut slow = Raw::connect(&bed).await;
    slow.send(json!({ "method": "test.echo.Slow" })).await;
    // One that pipelines and reads nothing: its requests pile up in its own socket.
    let greedy = Raw::connect(&bed).await;
    let request = [&b"{\"method\":\"test.echo.Echo\",\"parameters\":{\"text\":\"x\",\"times\":50000}}\0"[..]].concat();
    while greedy.stream.try_write(&request).is_ok() {
        tokio::task::yield_now().await;
    }
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(Raw::connect(&bed).await);
    }
    for round in 0..3 {
        for client in &mut clients {
            let answer = client
                .call("test.echo.Echo", json!({ "text": round.to_string() }))
                .await;
            assert_eq!(answer["parameters"]["text"], round.to_string());
        }
    }
    bed.service.slow.notify_one();
    assert!(slow.next().await.is_some());
}

/// Time is the runtime's here: it goes on as soon as everybody waits.
#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_nothing_is_cut_off() {
    let bed = bed();
    let mut stalled = Raw::connect(&bed).await;
    stalled.send(json!({ "method": "test.echo.Flood", "more": true })).await;
    let before = tokio::time::Instant::now();
    bed.service.client_left.notified().await;
    assert!(before.elapsed() >= Duration::from_secs(10), "{:?}", before.elapsed());
    // What is left in the socket is complete messages and the beginning of one that was never finished.
    let mut rest = Vec::new();
    stalled.stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() > 100_000);
}

#[tokio::test]
async fn connections_over_the_bound_wait_and_are_served_later() {
    let bed = bed_of(Bounds {
        connections: 2,
        per_user: 2,
        for_root: 0,
    });
    let mut first = Raw::connect(&bed).await;
    let mut second = Raw::connect(&bed).await;
    first.call("test.echo.Echo", json!({ "text": "" })).await;
    second.call("test.echo.Echo", json!({ "text": "" })).await;
    let mut third = Raw::connect(&bed).await;
    third
        .send(json!({ "method": "test.echo.Echo", "parameters": { "text": "third" } }))
        .await;
    first.call("test.echo.Echo", json!({ "text": "" })).await;
    assert_eq!(
        bed.service.calls.load(Ordering::SeqCst),
        3,
        "the third waits, or was sent away"
    );
    drop(second);
    // Only root waits for a seat: it is never sent away.
    if rustix::process::geteuid().is_root() {
        assert_eq!(third.next().await.unwrap()["parameters"]["text"], "third");
    }
}

#[tokio::test]
async fn the_peer_is_who_the_kernel_says() {
    let bed = bed();
    let who = Raw::connect(&bed).await.call("test.echo.Who", Value::Null).await;
    let who = &who["parameters"];
    assert_eq!(who["uid"], rustix::process::geteuid().as_raw());
    assert_eq!(who["gid"], rustix::process::getegid().as_raw());
    assert_eq!(who["pid"], std::process::id());
    assert_eq!(who["own"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_blocking_client_calls_and_streams() {
    let bed = bed();
    let path = bed.path.clone();
    let blocking = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&path).unwrap();
        assert_eq!(
            client.call("test.echo.Echo", json!({ "text": "x" })).unwrap(),
            json!({ "text": "x" })
        );
        let counted: Vec<_> = client
            .call_more("test.echo.Count", json!({ "to": 3 }))
            .unwrap()
            .map(|r| r.unwrap()["n"].clone())
            .collect();
        assert_eq!(counted, [1, 2, 3]);
        // An error of the service ends the call, not the connection.
        let remote = client.call("test.echo.Nope", Value::Null).unwrap_err();
        assert!(
            matches!(&remote, CallError::Remote { name, .. } if name == "org.varlink.service.MethodNotFound"),
            "{remote}"
        );
        let mut refused = client.call_more("test.echo.Count", json!({})).unwrap();
        assert!(matches!(refused.next(), Some(Err(CallError::Remote { .. }))));
        assert!(refused.next().is_none());
        client.call("test.echo.Echo", json!({ "text": "x" })).unwrap();
        // A stream that is left makes the connection useless, and says so.
        client
            .call_more("test.echo.Count", json!({ "to": 5 }))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        assert!(matches!(
            client.call("test.echo.Echo", json!({ "text": "x" })),
            Err(CallError::Closed)
        ));
        let mut client = Client::connect(&path).unwrap();
        let limit = Duration::from_millis(50);
        client.set_timeout(Some(limit)).unwrap();
        assert!(matches!(client.call("test.echo.Slow", Value::Null), Err(CallError::TimedOut(l)) if l == limit));
        assert!(matches!(
            client.call("test.echo.Echo", json!({})),
            Err(CallError::Closed)
        ));
        let mut client = Client::connect(&path).unwrap();
        assert!(matches!(
            client.call("test.echo.Panic", Value::Null),
            Err(CallError::Closed)
        ));
        assert!(matches!(
            client.call("test.echo.Panic", Value::Null),
            Err(CallError::Closed)
        ));
        let nobody = Client::connect(&path.with_file_name("nobody")).unwrap_err();
        assert!(
            matches!(&nobody, CallError::NotThere { .. }) && nobody.to_string().contains("nobody"),
            "{nobody}"
        );
    });
    blocking.await.unwrap();
}
