//! The local socket as other programs see it: a plain Python client, and a server that runs out of descriptors.

// A test that cannot go on says where.
#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use perilog_host::varlink::{About, Bounds, Call, InterfaceDescription, PeerCred, Service, bind, serve};
use serde_json::json;

struct Clock;

#[derive(serde::Deserialize)]
struct Tick {
    count: u32,
}

impl Service for Clock {
    fn about(&self) -> About {
        About { vendor: "perilog", product: "test", version: "1", url: "https://example.org" }
    }

    fn describe(&self) -> &'static [InterfaceDescription] {
        const TEXT: &str = "interface test.clock\n\nmethod Tick(count: int) -> (n: int)\nmethod Who() -> ()\n";
        &[InterfaceDescription { name: "test.clock", text: TEXT }]
    }

    fn permit(&self, _: &str, _: &PeerCred) -> Result<(), String> {
        Ok(())
    }

    async fn call(&self, call: Call) {
        if call.method == "test.clock.Who" {
            let peer = call.peer;
            let who = json!({ "uid": peer.uid, "gid": peer.gid, "pid": peer.pid, "groups": peer.groups });
            let _ = call.reply.done(who).await;
            return;
        }
        let Some((tick, _, mut reply)) = call.parse::<Tick>().await else {
            return;
        };
        for n in 0..tick.count.saturating_sub(1) {
            if reply.more(json!({ "n": n })).await.is_err() {
                return;
            }
        }
        let _ = reply.done(json!({ "n": tick.count.saturating_sub(1) })).await;
    }
}

async fn with_server(bounds: Bounds, test: impl FnOnce(&Path) + Send + 'static) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("socket");
    let listener = bind(&path, 0o666, None).unwrap();
    let server = tokio::spawn(serve(listener, Arc::new(Clock), bounds));
    tokio::task::spawn_blocking(move || test(&path)).await.unwrap();
    assert!(!server.is_finished(), "the server must outlive its clients");
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_python_introspects_streams_and_shows_credentials() {
    let bounds = Bounds { per_stranger: 5, ..Bounds::default() };
    with_server(bounds, |path| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/varlink_client.py");
        // The script comes from stdin: the user that it becomes must be able to read it.
        let output = Command::new("python3")
            .args(["-", path.to_str().unwrap()])
            .stdin(std::fs::File::open(script).unwrap())
            .output()
            .expect("python3 is needed to test that any client can talk to us");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((String::from_utf8_lossy(&output.stdout).trim(), output.status.success()), ("ok", true), "{err}");
    })
    .await;
}

/// A server must survive the error EMFILE of accept(2): it serves the next client once others have disconnected.
#[test]
fn a_server_serves_again_once_it_has_descriptors() {
    // In a process of its own: the limit is the process's.
    let output = Command::new("sh")
        .args(["-c", "ulimit -S -n 40; exec \"$0\" --exact --ignored flooded --nocapture --test-threads 1"])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by a_server_serves_again_once_it_has_descriptors"]
async fn flooded() {
    with_server(Bounds::default(), |path| {
        // The last client waits in the queue behind the others, until they disconnect.
        let flood = "import socket, sys
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1]); return s
held = [connect() for _ in range(60)]
late = connect()
late.sendall(b'{\"method\":\"org.varlink.service.GetInfo\"}\\0')
for s in held: s.close()
print(late.recv(65536))";
        let output = Command::new("sh")
            .args(["-c", "ulimit -S -n 200; exec python3 -c \"$0\" \"$1\"", flood])
            .arg(path)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("interfaces"), "{out} {}", String::from_utf8_lossy(&output.stderr));
    })
    .await;
}
