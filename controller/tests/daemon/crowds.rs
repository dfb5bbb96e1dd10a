//! Clients by the hundred: waiting ones leave room for commands, and strangers' requests use bounded memory.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use perilog_host::varlink::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::bed::{Bed, LIMIT};

/// More than the 768 that closed the door once, and room in the descriptors of a test.
const WAITERS: usize = 1_000;

fn request(method: &str, parameters: Value, more: bool) -> Vec<u8> {
    let method = format!("io.perilog.Controller.{method}");
    let mut bytes = json!({"method": method, "parameters": parameters, "more": more}).to_string().into_bytes();
    bytes.push(0);
    bytes
}

/// Reads the next reply, up to its NUL.
fn reply(stream: &mut UnixStream) -> Value {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut byte).unwrap();
        match byte[0] {
            0 => return serde_json::from_slice(&bytes).unwrap(),
            byte => bytes.push(byte),
        }
    }
}

pub(crate) fn ask(socket: &Path, method: &str, parameters: Value) -> Value {
    let mut client = Client::connect(socket).unwrap();
    client.set_timeout(Some(LIMIT)).unwrap();
    client.call(&format!("io.perilog.Controller.{method}"), parameters).unwrap()
}

/// Found by a hunt: 800 clients that waited for a job closed the socket, without a message, to the `job finish` that
/// they waited for, and to `ps` and `status`.
#[test]
fn a_thousand_waiting_clients_leave_room_for_commands() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let mut bed = Bed::new();
    let _controller = bed.start();
    let socket = bed.socket();
    ask(&socket, "JobAdd", json!({"job": "j", "nodes": "n0"}));
    let waiters: Vec<UnixStream> = (0..WAITERS)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.write_all(&request("Events", json!({"job": "j", "follow": true}), true)).unwrap();
            assert_eq!(reply(&mut stream)["continues"], true);
            stream
        })
        .collect();
    assert_eq!(ask(&socket, "Ps", json!({}))["rows"], json!([]));
    ask(&socket, "Status", json!({}));
    ask(&socket, "JobFinish", json!({"job": "j"}));
    for mut waiter in waiters {
        let told = (0..).map(|_| reply(&mut waiter)).any(|told| told.to_string().contains("job-finish"));
        assert!(told);
    }
}

pub(crate) fn rss_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Found by a review: sixteen connections of one user each sent a megabyte of small objects and did not read the
/// refusals, and the daemon grew to 1.5 GiB.
#[test]
fn strangers_that_send_much_and_read_nothing_make_nothing_grow() {
    assert!(rustix::process::geteuid().is_root(), "only root can play another user: run this test as root");
    let mut bed = Bed::new();
    let controller = bed.start();
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (socket, pid) = (bed.socket(), controller.pid());
    let before = rss_mib(pid);
    let objects = vec![json!({"": 0}); 100_000];
    let bomb = request("Run", json!({"a": objects}), false);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let (uid, gid) = (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
                // Affects only this thread.
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                let refused = request("Cancel", json!({"job": "f1"}), false);
                // Sends until the replies fill the socket, or the server closes it.
                let _ = (0..2_000).try_for_each(|_| stream.write_all(&refused));
                let _ = stream.write_all(&bomb);
                let after = rss_mib(pid);
                assert!(after < before + 64, "{before} MiB, then {after} MiB");
            });
        }
    });
    assert_eq!(ask(&socket, "Ps", json!({}))["rows"], json!([]));
}
