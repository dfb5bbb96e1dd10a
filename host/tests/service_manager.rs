//! Messages between a daemon and its service manager, through the environment and inherited descriptors. Each case
//! needs a process of its own: each test starts this program again, to run one of its ignored tests.

// A test that cannot go on says where.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Output};
use std::time::Duration;

use perilog_host::{activation, journal, notify};
use rustix::io::{FdFlags, fcntl_getfd};

/// Returns a command that runs the ignored test `name` of this program. A shell runs the code `prepare` first, and then
/// becomes the program by `exec`.
fn child(name: &str, prepare: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{prepare} exec \"$0\" --exact --ignored --nocapture --test-threads 1 {name}")])
        .arg(std::env::current_exe().unwrap())
        .env_remove("NOTIFY_SOCKET")
        .env_remove("LISTEN_PID");
    command
}

fn check(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}\n{err}");
    err
}

#[test]
fn the_manager_is_notified_of_each_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    check(&child("says_all", "").env("NOTIFY_SOCKET", &path).output().unwrap());
    let mut received = Vec::new();
    for _ in 0..4 {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        received.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    assert_eq!(received[0], "READY=1\nSTATUS=serving MAINPID=1\n", "a status must not smuggle in an assignment");
    assert_eq!(received[1], "STATUS=3 tasks\n");
    assert!(received[2].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{}", received[2]);
    assert_eq!(received[3], "STOPPING=1\nSTATUS=bye\n");
}

#[test]
fn without_a_manager_nothing_happens() {
    check(&child("says_all", "").output().unwrap());
    // A manager that is gone is a warning at most.
    check(&child("says_all", "").env("NOTIFY_SOCKET", "/nonexistent/notify").output().unwrap());
}

#[test]
#[ignore = "run by others"]
fn says_all() {
    notify::ready("serving\nMAINPID=1");
    notify::status("3 tasks");
    notify::reloading();
    notify::stopping("bye");
}

#[test]
fn activated_sockets_are_taken_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let unix = UnixListener::bind(dir.path().join("s")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    // In the queue before anybody accepts, as at a real activation.
    let mut local = UnixStream::connect(dir.path().join("s")).unwrap();
    let mut remote = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let prepare = "exec 3<&0 4<&1 0</dev/null 1>&2; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=local:agents;";
    let output = child("takes_both", prepare).stdin(OwnedFd::from(unix)).stdout(OwnedFd::from(tcp)).output().unwrap();
    check(&output);
    let mut received = String::new();
    local.read_to_string(&mut received).unwrap();
    remote.read_to_string(&mut received).unwrap();
    assert_eq!(received, "locally remotely");
}

#[test]
#[ignore = "run by activated_sockets_are_taken_by_name"]
fn takes_both() {
    let mut activated = activation::listen_fds().unwrap();
    assert_eq!(activated.left(), ["agents", "local"]);
    let unix = activated.take_unix("local").unwrap();
    let tcp = activated.take_tcp("agents").remove(0);
    assert!(activated.left().is_empty() && activated.take_unix("local").is_none());
    for fd in [unix.as_fd(), tcp.as_fd()] {
        assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
    }
    unix.accept().unwrap().0.write_all(b"locally ").unwrap();
    tcp.accept().unwrap().0.write_all(b"remotely").unwrap();
    assert_eq!(unix.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "non-blocking");
    assert!(activation::listen_fds().unwrap().left().is_empty(), "each socket has one owner");
}

#[test]
fn what_was_not_meant_for_us_is_not_taken() {
    let elsewhere = "export LISTEN_PID=1 LISTEN_FDS=2;";
    check(&child("takes_none", elsewhere).output().unwrap());
    check(&child("takes_none", "").output().unwrap());
}

#[test]
#[ignore = "run by what_was_not_meant_for_us_is_not_taken"]
fn takes_none() {
    assert!(activation::listen_fds().unwrap().left().is_empty());
}

#[test]
fn wrong_sockets_are_refused_by_name() {
    let broken = "exec 3<&- 4<&-; export LISTEN_PID=$$ LISTEN_FDS=2;";
    let refused = check(&child("takes_wrong", broken).output().unwrap());
    assert!(refused.contains("refused: the sockets that LISTEN_FDS names"), "{refused}");
    let prepare = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=odd;";
    let datagram = UnixDatagram::unbound().unwrap();
    let refused = check(&child("takes_wrong", prepare).stdin(OwnedFd::from(datagram)).output().unwrap());
    assert!(refused.contains("refused: activated socket `odd` is not a listening"), "{refused}");
    let file = tempfile::tempfile().unwrap();
    let refused = check(&child("takes_wrong", prepare).stdin(file).output().unwrap());
    assert!(refused.contains("refused: activated socket `odd`"), "{refused}");
}

#[test]
#[ignore = "run by wrong_sockets_are_refused_by_name"]
fn takes_wrong() {
    let error = activation::listen_fds().unwrap_err();
    writeln!(std::io::stderr(), "refused: {error}").unwrap();
}

#[test]
fn log_lines_are_short_and_their_level_can_be_set() {
    let lines = check(&child("logs", "").env_remove("PERILOG_LOG").output().unwrap());
    assert!(lines.contains("\n INFO started job=\"f1\" rank=3\n") || lines.starts_with(" INFO started"), "{lines:?}");
    assert!(!lines.contains("details") && !lines.contains('\u{1b}'), "{lines:?}");
    let lines = check(&child("logs", "").env("PERILOG_LOG", "service_manager=debug").output().unwrap());
    assert!(lines.contains("DEBUG details"), "{lines:?}");
    let lines = check(&child("logs", "").env("PERILOG_LOG", "loud").output().unwrap());
    assert!(lines.contains("log level `loud`: expected error, warn"), "{lines:?}");
}

#[test]
#[ignore = "run by log_lines_are_short_and_their_level_can_be_set"]
fn logs() {
    match journal::init("perilog-test", "service_manager=info") {
        Ok(()) => {
            tracing::info!(job = "f1", rank = 3, "started");
            tracing::debug!("details");
            assert!(journal::init("perilog-test", "info").is_err(), "once is enough");
        }
        Err(error) => writeln!(std::io::stderr(), "{error}").unwrap(),
    }
}
