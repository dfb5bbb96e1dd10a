//! Other users of the node: their connections to the local socket must not make the agent's memory grow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use perilog_host::varlink::Client;
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

use crate::bed::{Bed, LIMIT};

/// Number of threads that connect to the agent at the same time.
const CONNECTIONS: u32 = 64;
/// Number of users in whose names the threads connect.
const USERS: u32 = 8;
/// Maximum growth of the agent's memory in MiB. Before the agent bounded requests, one connection alone took more.
const MOST_MIB: u64 = 32;

fn request(method: &str, parameters: Value) -> Vec<u8> {
    let mut bytes = json!({"method": format!("io.perilog.Agent.{method}"), "parameters": parameters}).to_string();
    bytes.push('\0');
    bytes.into_bytes()
}

/// Regression test: sixteen connections of one user, each with a request of a megabyte, grew the agent's memory from 5
/// to 1,542 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_send_a_megabyte_each_make_no_agent_grow() {
    assert!(rustix::process::geteuid().is_root(), "only root can play another user: run this test as root");
    let mut bed = Bed::new();
    bed.extra = "[local]\nstatus = \"anyone\"\n".to_owned();
    let agent = bed.start();
    let socket = bed.run_dir().join("agent.sock");
    let before = agent.rss_mib();
    // Small objects become a tree of many times their size.
    let bomb = request("Exec", json!({"a": vec![json!({"": 0}); 100_000]}));
    let refused = request("Cancel", json!({"unit": "x"}));
    let send = |uid: u32| {
        // Affects only this thread.
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let Ok(mut stream) = UnixStream::connect(&socket) else { return };
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        // Until the refusals fill the socket, or the agent closes it.
        let _ = (0..2_000).try_for_each(|_| stream.write_all(&refused));
        let _ = stream.write_all(&bomb);
        // And a connection that sends nothing else: it is read to its end.
        let Ok(mut stream) = UnixStream::connect(&socket) else { return };
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(&bomb);
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let send = &send;
    thread::scope(|scope| {
        for n in 0..CONNECTIONS {
            scope.spawn(move || send(65_500 + n % USERS));
        }
    });
    let (after, peak) = (agent.rss_mib(), agent.peak_mib());
    println!("RSS {before} MiB, then {peak} MiB at most, {after} MiB at last");
    assert!(peak < before + MOST_MIB, "{before} MiB, then {peak} MiB");
    // Root finds its seat.
    let mut client = Client::connect(&socket).unwrap();
    client.set_timeout(Some(LIMIT)).unwrap();
    assert_eq!(client.call("io.perilog.Agent.Status", json!({})).unwrap()["tasks"], json!([]));
}
