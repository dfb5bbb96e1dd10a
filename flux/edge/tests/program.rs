//! Tests of the program `perilog-flux`, as systemd and people run it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

fn edge(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_perilog-flux")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn its_configuration_is_checked_and_needs_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge.toml");
    let file = file.to_str().unwrap();
    let (status, printed) = edge(&["--config", file, "--print-config"]);
    assert_eq!(status, Some(0), "{printed}");
    assert!(printed.contains("online-patience"), "{printed}");
    std::fs::write(file, "instance = 'a b'\n").unwrap();
    let (status, reply) = edge(&["--config", file, "--check-config"]);
    assert_eq!(status, Some(2), "{reply}");
    assert!(reply.contains("edge.toml:1:12: instance: expected 1 to 64 of"), "{reply}");
}

#[test]
fn the_option_drop_hold_reports_that_flux_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge.toml");
    std::fs::write(&file, format!("flux = {:?}\n", dir.path().join("none"))).unwrap();
    let (status, reply) = edge(&["--config", file.to_str().unwrap(), "--drop-hold", "all"]);
    assert_eq!(status, Some(1), "{reply}");
    assert!(reply.contains("No such file"), "{reply}");
    let (status, reply) = edge(&["--config", file.to_str().unwrap(), "--drop-hold", "x!"]);
    assert_eq!(status, Some(1), "{reply}");
}
