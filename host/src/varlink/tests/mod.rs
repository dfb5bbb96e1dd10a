//! Common parts of the tests: a service to call, a test bed that serves it on a socket, and a client that breaks the
//! rules.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::*;

mod calls;
mod hostile;
mod limits;

const TEXT: &str = "\
interface test.echo
type Pair (left: string, right: string)
method Echo(text: string, times: ?int) -> (text: string)
method Count(to: int) -> (n: int)
method Flood() -> (text: string)
method Forever() -> (n: int)
method Slow() -> ()
method Hurry() -> ()
method Silent() -> ()
method HalfStream() -> (n: int)
method Elsewhere() -> ()
method Panic() -> ()
method Who() -> (uid: int)
method Wait() -> (n: int)
method Secret(text: string) -> ()
";

/// Time for which a test waits for the server's answer: past it the test fails, instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Echo {
    calls: AtomicUsize,
    client_left: Notify,
    slow: Notify,
    /// Whether the service treats clients as strangers.
    strange: AtomicBool,
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
        About { vendor: "v", product: "p", version: "1", url: "u" }
    }

    fn describe(&self) -> &'static [InterfaceDescription] {
        &[InterfaceDescription { name: "test.echo", text: TEXT }]
    }

    fn trusts(&self, _: &PeerCred) -> bool {
        !self.strange.load(Ordering::SeqCst)
    }

    fn permit(&self, method: &str, _: &PeerCred) -> Result<(), String> {
        if method == "Secret" { Err("Secret is for nobody".to_owned()) } else { Ok(()) }
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
                tokio::select! {
                    biased;
                    () = call.reply.closed() => return,
                    () = self.slow.notified() => {}
                }
                let _ = call.reply.done(json!({})).await;
            }
            "test.echo.Hurry" => {
                self.slow.notify_one();
                let _ = call.reply.done(json!({})).await;
            }
            "test.echo.Wait" => {
                let Ok(_waiting) = call.reply.wait().await else { return };
                let _ = call.reply.more(json!({ "n": 0 })).await;
                call.reply.closed().await;
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
                let who = json!({ "uid": peer.uid, "gid": peer.gid, "pid": peer.pid, "root": peer.is_root(),
                                 "own": peer.in_group(peer.gid) });
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

/// Starts a server with these bounds, whose service trusts no client.
fn strange_bed(bounds: Bounds) -> Bed {
    let bed = bed_of(bounds);
    bed.service.strange.store(true, Ordering::SeqCst);
    bed
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
    Bed { _dir: dir, path, service, server }
}

/// A client that sends any bytes, also invalid requests, and reads messages.
struct Raw {
    stream: UnixStream,
    rest: Vec<u8>,
}

impl Raw {
    async fn connect(bed: &Bed) -> Self {
        Self { stream: UnixStream::connect(&bed.path).await.unwrap(), rest: Vec::new() }
    }

    async fn send(&mut self, message: Value) {
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Reads a reply; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.rest.iter().position(|&b| b == 0) {
                let message = serde_json::from_slice(&self.rest[..at]).unwrap();
                self.rest.drain(..=at);
                return Some(message);
            }
            let read = self.stream.read_buf(&mut self.rest);
            match tokio::time::timeout(PATIENCE, read).await.expect("the server says nothing") {
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
    let answer = Raw::connect(bed).await.call("test.echo.Echo", json!({ "text": "a" })).await;
    assert_eq!(answer, json!({ "parameters": { "text": "a" } }));
}

fn error(name: &str, key: &str, value: &str) -> Value {
    json!({ "error": format!("org.varlink.service.{name}"), "parameters": { key: value } })
}
