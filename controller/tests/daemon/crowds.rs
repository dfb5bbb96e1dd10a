//! Tests with many clients, and with foreign users: waiting clients leave room for commands, and requests of strangers
//! use bounded memory.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use perilog_host::clock;
use perilog_host::varlink::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::bed::{Bed, LIMIT};

/// Number of clients that wait at the same time: as many as a large machine has jobs, with one waiting hook each.
const WAITERS: usize = 10_000;

fn request(method: &str, parameters: Value, more: bool) -> Vec<u8> {
    let method = format!("io.perilog.Controller.{method}");
    let mut bytes = json!({"method": method, "parameters": parameters, "more": more}).to_string().into_bytes();
    bytes.push(0);
    bytes
}

/// Reads the next reply of the socket, up to its NUL.
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

/// Regression test: while 800 clients waited for the end of a job, the controller closed every further connection
/// without a message: that of `job finish`, of `ps` and of `status`.
#[test]
fn ten_thousand_waiting_clients_leave_room_for_commands() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let room = maximum.is_none_or(|most| most > WAITERS as u64 + 256);
    assert!(room, "{WAITERS} clients need more descriptors than this process may have: {maximum:?}");
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let mut bed = Bed::new();
    let controller = bed.start();
    let (socket, before) = (bed.socket(), rss_mib(controller.pid()));
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
    let grown = rss_mib(controller.pid()).saturating_sub(before);
    println!("{WAITERS} clients wait: {grown} MiB");
    assert!(grown < 1_024, "{grown} MiB for {WAITERS} clients that wait");
    ask(&socket, "JobFinish", json!({"job": "j"}));
    for mut waiter in waiters {
        let reported = (0..).map(|_| reply(&mut waiter)).any(|reported| reported.to_string().contains("job-finish"));
        assert!(reported);
    }
}

/// Starts a controller that may have 128 descriptors, and has twice as many agents dial it. The agents without a place
/// wait in the kernel's queue of the socket, and the controller waits without using the processor.
#[test]
fn agents_beyond_the_limit_of_descriptors_wait_and_commands_are_answered() {
    let mut bed = Bed::new();
    bed.plain();
    bed.write_config();
    let of_bed = bed.command();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""]).arg(of_bed.get_program()).args(of_bed.get_args());
    let controller = bed.start_with(command);
    let connect = |_| TcpStream::connect(controller.address).unwrap();
    let mut agents: Vec<TcpStream> = (0..256).map(connect).collect();
    let line = controller.log.wait_for("connections of agents are open");
    assert!(line.contains("64 connections") && line.contains("may open 128 files"), "{line}");
    // The controller logs the line after it has accepted all connections that have a place.
    assert_eq!(queued(controller.address), 256 - 64);
    wait_until_at_rest(controller.pid());
    assert_eq!(ask(&bed.socket(), "Ps", json!({}))["rows"], json!([]));
    assert_eq!(queued(controller.address), 256 - 64);
    assert_eq!(controller.log.count("cannot accept connections"), 0);
    // The last agent gets its place when others leave: the controller's preamble comes first.
    agents.drain(..200);
    let last = agents.last_mut().unwrap();
    last.set_read_timeout(Some(LIMIT)).unwrap();
    last.read_exact(&mut [0; 4]).unwrap();
}

/// Returns the number of connections that wait for accept(2) at a listening address, as the kernel counts them
/// (proc_pid_net(5)).
fn queued(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { panic!("{address} is not IPv4") };
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = rows.find(|row| row[1] == local && row[3] == "0A").expect("a listening socket");
    let (_, queue) = listening[4].split_once(':').unwrap();
    usize::from_str_radix(queue, 16).unwrap()
}

/// Waits until all threads of a process sleep, and none has run between two looks at them. A process that tries
/// something again and again always has a thread that runs or can run.
fn wait_until_at_rest(pid: u32) {
    let until_ms = clock::mono_ms() + u64::try_from(LIMIT.as_millis()).unwrap();
    let mut before = None;
    loop {
        let now = threads(pid);
        let is_asleep = now.iter().all(|thread| thread.contains("State:\tS"));
        if is_asleep && before.as_ref() == Some(&now) {
            return;
        }
        assert!(clock::mono_ms() < until_ms, "a process that never rests: {now:?}");
        before = Some(now);
    }
}

/// Returns the state of each thread of a process, and how often the thread has left a processor.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let thread = |task: std::io::Result<fs::DirEntry>| {
        // A thread may end between the two reads.
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let lines = status.lines().filter(|line| line.starts_with("State:") || line.contains("ctxt_switches:"));
        Some(lines.collect::<Vec<_>>().join(", "))
    };
    tasks.filter_map(thread).collect()
}

pub(crate) fn rss_mib(pid: u32) -> u64 {
    mib(pid, "VmRSS:")
}

/// Returns the highest value of [`rss_mib`] since the process began.
pub(crate) fn peak_mib(pid: u32) -> u64 {
    mib(pid, "VmHWM:")
}

fn mib(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Runs `act` in a thread with this uid and gid, and no other groups.
fn as_user<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    assert!(rustix::process::geteuid().is_root(), "only root can play another user: run this test as root");
    let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
    let acting = || {
        // Affects only this thread.
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(acting).join().unwrap())
}

/// Lets every user reach the API's socket in the bed's directory.
fn open_socket_to_all(bed: &Bed) {
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Regression test: sixteen connections of one user each sent a megabyte of small objects and did not read the
/// refusals, and the daemon grew to 1.5 GiB.
#[test]
fn strangers_that_send_much_and_read_nothing_make_nothing_grow() {
    let mut bed = Bed::new();
    let controller = bed.start();
    open_socket_to_all(&bed);
    let (socket, pid) = (bed.socket(), controller.pid());
    let before = rss_mib(pid);
    let objects = vec![json!({"": 0}); 100_000];
    let bomb = request("Run", json!({"a": objects}), false);
    let send = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let refused = request("Cancel", json!({"job": "f1"}), false);
        // Until its replies fill the socket, or the server closes it.
        let _ = (0..2_000).try_for_each(|_| stream.write_all(&refused));
        let _ = stream.write_all(&bomb);
        let after = rss_mib(pid);
        assert!(after < before + 64, "{before} MiB, then {after} MiB");
    };
    thread::scope(|scope| (0..64).for_each(|_| drop(scope.spawn(|| as_user(65534, 65534, send)))));
    assert_eq!(ask(&socket, "Ps", json!({}))["rows"], json!([]));
}

/// Maximum number of journal lines about one user within a time window of the log limit, including the line that counts
/// the omitted ones.
const LINES: usize = 31;

/// Regression test: with malformed API calls, one unprivileged process made the controller log 44,049 warnings in five
/// seconds.
#[test]
fn a_misbehaving_user_does_not_fill_the_journal() {
    let mut bed = Bed::new();
    let controller = bed.start();
    open_socket_to_all(&bed);
    let socket = bed.socket();
    let misbehave = || {
        for n in 0..300 {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            // Two kinds by turns: a line that repeats the last one is left out anyway.
            let bytes = if n % 2 == 0 { b"no json\0".to_vec() } else { vec![b' '; 10_000] };
            // The controller ends the connection, maybe before it has read all.
            let _ = stream.write_all(&bytes);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    as_user(65534, 65534, misbehave);
    // Another user is served beside all of them, and after them.
    as_user(65533, 65533, || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(b"no json\0");
    });
    controller.log.wait_for("uid 65533, pid ");
    let text = controller.log.text();
    let about = text.lines().filter(|line| line.contains("uid 65534")).count();
    assert!((1..=LINES).contains(&about), "{about} lines");
}

/// The controller runs as a user who is not in the group of `[api]`. A member of that group may call the API, and other
/// users may not.
#[test]
fn a_foreign_group_is_checked_at_each_call() {
    const DAEMON: u32 = 65_532;
    const MEMBER: u32 = 65_533;
    const STRANGER: u32 = 65_534;
    let mut bed = Bed::new();
    bed.plain();
    (bed.gid, bed.read) = (MEMBER, "group");
    bed.write_config();
    open_socket_to_all(&bed);
    std::os::unix::fs::chown(bed.dir.path(), Some(DAEMON), None).unwrap();
    let mut command = bed.command();
    command.uid(DAEMON).gid(DAEMON);
    let controller = bed.start_with(command);
    controller.log.wait_for("the controller is not in the group of [api]");
    let socket = bed.socket();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o666);
    let call = |method: &str, parameters: Value| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&request(method, parameters, false)).unwrap();
        reply(&mut stream)["error"].as_str().map(str::to_owned)
    };
    let add = |job: &str| call("JobAdd", json!({"job": job, "nodes": "n0"}));
    let refused = Some("io.perilog.Controller.PermissionDenied".to_owned());
    assert_eq!(as_user(STRANGER, STRANGER, || (call("Status", json!({})), add("a"))), (refused.clone(), refused));
    assert_eq!(as_user(STRANGER, MEMBER, || (call("Status", json!({})), add("b"))), (None, None));
    assert_eq!((call("Status", json!({})), add("c")), (None, None));
}
