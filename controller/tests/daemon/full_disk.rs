//! Tests with a full disk: the ends of running tasks are still stored, no prolog begins, and the controller goes on
//! once the disk has room again.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use perilog_core::message::FromAgent;
use perilog_core::outcome::Outcome;
use perilog_core::task::{Ended, Start, Tail};
use rustix::process::geteuid;
use serde_json::json;

use crate::agent::{Agent, hello};
use crate::bed::{Bed, Controller};
use crate::python::{call, refused, run};

/// A disk of 24 MiB for the store: a tmpfs in a mount namespace, which the process `keeper` keeps until this value is
/// dropped.
struct Disk {
    keeper: Child,
    flags: &'static [&'static str],
    path: PathBuf,
}

impl Disk {
    fn new(bed: &mut Bed) -> Self {
        let dir = bed.use_disk();
        let (unshare, flags): (_, &[_]) =
            if geteuid().is_root() { ("-m", &["-m"]) } else { ("-rm", &["-U", "--preserve-credentials", "-m"]) };
        if !geteuid().is_root() {
            // The user's id in the namespace.
            bed.gid = 0;
        }
        let script = "mount -t tmpfs -o size=24m none \"$0\" && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command.args([unshare, "sh", "-c", script]).arg(&dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "these tests need mount namespaces");
        let root = PathBuf::from(format!("/proc/{}/root", keeper.id()));
        Self { path: root.join(dir.strip_prefix("/").unwrap()), keeper, flags }
    }

    fn start(&self, bed: &mut Bed) -> Controller {
        bed.write_config();
        let program = bed.command();
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.keeper.id().to_string()]).args(self.flags).arg("--");
        command.arg(program.get_program()).args(program.get_args());
        bed.start_with(command)
    }

    fn reserve(&self) -> PathBuf {
        self.path.join("controller.db-reserve")
    }

    fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path.join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Returns the Finished of a task with 60,000 bytes of output, so that it does not fit into the last free part of a
/// disk block.
fn finished(start: &Start) -> FromAgent {
    let mut ended = Ended::bare(Outcome::Tolerable, 1_552_593_349_000);
    ended.tails = vec![Tail { script: "10-mount".to_owned(), text: "x".repeat(60_000) }];
    FromAgent::Finished { task: start.task, ended: Box::new(ended) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_keeps_completions_and_refuses_prologs() {
    let mut bed = Bed::new();
    let disk = Disk::new(&mut bed);
    let controller = disk.start(&mut bed);
    assert_eq!(disk.reserve().metadata().unwrap().len(), 8 << 20);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;

    disk.fill();
    agent.send(&finished(&start)).await;
    agent.acked(&start).await;
    controller.log.wait_for("its reserve is in use");
    assert!(!disk.reserve().exists());
    let (_, reported) = refused(&bed, "Run", run("f2", "n0"), &[]);
    assert_eq!(reported["code"], "unavailable", "{reported}");
    // Epilogs begin, and end.
    call(&bed, "Run", json!({"job": "f1", "action": "epilog"}));
    agent.run(Outcome::Ok).await;

    disk.make_room();
    controller.log.wait_for("has room again");
    call(&bed, "Run", run("f2", "n0"));
    agent.run(Outcome::Ok).await;
    assert_eq!(disk.reserve().metadata().unwrap().len(), 8 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_reserve_nothing_is_acknowledged_or_lost() {
    let mut bed = Bed::new();
    let disk = Disk::new(&mut bed);
    let controller = disk.start(&mut bed);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    // Full, and full again where the reserve was.
    disk.fill();
    std::fs::remove_file(disk.reserve()).unwrap();
    disk.fill();
    agent.send(&finished(&start)).await;
    // No Ack: the session ends, so the agent repeats its reports.
    let end = crate::agent::next_frame(&mut agent.link).await;
    assert!(matches!(end, Ok(None)), "{end:?}");
    controller.log.wait_for("the controller dropped the last requests, and loads its store again");
    assert_eq!(refused(&bed, "Run", run("f2", "n0"), &[]).1["code"], "unavailable");

    disk.make_room();
    let mut again = loop {
        // Refused until the controller has rebuilt its machine.
        let mut link = crate::agent::link(&bed, &controller, "n0").await;
        let mut first = hello("n0", vec![crate::sessions::held(&start, perilog_core::message::HeldState::Ended)]);
        first.link = 2;
        let sent = link.writer.send(perilog_proto::encode_from_agent(&FromAgent::Hello(first))).await;
        if let (Ok(()), Ok(Some(_))) = (sent, crate::agent::next_frame(&mut link).await) {
            break Agent { host: "n0".to_owned(), link, epoch: agent.epoch };
        }
    };
    again.send(&finished(&start)).await;
    again.acked(&start).await;
    assert_eq!(call(&bed, "Status", json!({}))["status"]["epoch"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_comes_up_on_a_full_disk_serves_what_runs() {
    let mut bed = Bed::new();
    let disk = Disk::new(&mut bed);
    let controller = disk.start(&mut bed);
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = agent.accept().await;
    // The controller ended in good order, so the store's log is gone and must be made again.
    controller.signal(rustix::process::Signal::TERM);
    assert_eq!(controller.terminated().code(), Some(0));
    disk.fill();
    let controller = disk.start(&mut bed);
    controller.log.wait_for("its reserve is in use");
    let mut first = hello("n0", vec![crate::sessions::held(&start, perilog_core::message::HeldState::Ended)]);
    first.link = 2;
    let mut agent = Agent::connect_with(&bed, &controller, first).await;
    agent.send(&finished(&start)).await;
    agent.acked(&start).await;
    assert_eq!(refused(&bed, "Run", run("f2", "n0"), &[]).1["code"], "unavailable");
}
