//! Calls of the controller fail at random while it works, and a service manager starts it again. It loses nothing that
//! it has acknowledged, and it says which file and which error it met. Power cuts come after that, too.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use perilog_disk::disk::Disk;
use perilog_disk::power;
use perilog_disk::record::{self, Entry};
use rustix::process::{Pid, Signal, kill_process};

use crate::controller::{Place, enroll_port, examine_all};
use crate::{PAUSE, cuts, image};

/// One in this many calls fails.
const ONE_IN: u64 = 300;
/// Number of jobs of each client.
const JOBS: u64 = 8;
/// Number of power cuts after the faults.
const CUTS: usize = 200;
/// Exit status of a controller after an error.
const FAILED: i32 = 1;

/// A service manager that starts a controller again whenever it ends.
struct Supervisor {
    child: Mutex<Option<Child>>,
    is_over: AtomicBool,
}

impl Supervisor {
    const fn new() -> Self {
        Self { child: Mutex::new(None), is_over: AtomicBool::new(false) }
    }

    /// Keeps the controller running until [`Self::end`]. Returns the exit statuses.
    fn keep(&self, command: impl Fn() -> Command) -> Vec<ExitStatus> {
        let mut ends = Vec::new();
        loop {
            *self.child.lock().unwrap() = Some(command().spawn().unwrap());
            let status = loop {
                if let Some(status) = self.child.lock().unwrap().as_mut().unwrap().try_wait().unwrap() {
                    break status;
                }
                std::thread::park_timeout(PAUSE);
            };
            ends.push(status);
            if self.is_over.load(Ordering::SeqCst) {
                return ends;
            }
        }
    }

    /// Ends the controller as a service manager does.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(child) = self.child.lock().unwrap().as_ref() {
            let _ended = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }
}

/// Ends the controller when dropped, also where a client fails the test.
struct End<'a>(&'a Supervisor);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[test]
fn calls_that_fail_lose_nothing_that_was_acknowledged() {
    let mut place = Place::new();
    let faults: PathBuf = place.bed.dir.path().join("faults");
    let log = place.bed.dir.path().join("log");
    let controller = place.start();
    let (port, enroll) = (controller.address.port(), enroll_port(&controller));
    controller.signal(Signal::TERM);
    assert_eq!(controller.terminated().code(), Some(0));
    place.bed.extra = place.bed.extra.replace("127.0.0.1:0", &format!("127.0.0.1:{enroll}"));
    let supervisor = Supervisor::new();
    let ends = std::thread::scope(|scope| {
        let ends = scope.spawn(|| {
            supervisor.keep(|| {
                let log = File::options().append(true).create(true).open(&log).unwrap();
                let mut command = place.command();
                command.env("PERILOG_SHIM_FAULTS", &faults).env_remove("NOTIFY_SOCKET").env_remove("PERILOG_LOG");
                command.stdout(Stdio::null()).stderr(log);
                command
            })
        });
        let _end = End(&supervisor);
        std::fs::write(&faults, format!("1 {ONE_IN} EIO ENOSPC EROFS EMFILE")).unwrap();
        place.tour(port, enroll, JOBS);
        std::fs::remove_file(&faults).unwrap();
        supervisor.end();
        ends.join().unwrap()
    });
    let record = std::fs::read(&place.recorded.record).unwrap();
    let entries = record::read(&record).unwrap();
    let marks: Vec<&str> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Acknowledged { what } => Some(*what),
            _ => None,
        })
        .collect();
    let failed =
        entries.iter().filter(|entry| matches!(entry, Entry::Failed { .. } | Entry::Sync { failed: true, .. }));
    let log = std::fs::read_to_string(&log).unwrap();
    eprintln!("{} failed calls, {} ends, {} marks", failed.count(), ends.len(), marks.len());
    assert!(ends.iter().all(|end| matches!(end.code(), Some(0 | FAILED))), "{ends:?}\n{log}");
    assert!(ends.len() > 2, "no fault ended the controller\n{log}");
    // Each end has its reason as the last line, with the file.
    let directory = place.recorded.directory.display().to_string();
    let reasons = log.lines().filter(|line| line.starts_with("perilog-controller: ") && line.contains(&directory));
    assert_eq!(reasons.count(), ends.iter().filter(|end| end.code() == Some(FAILED)).count(), "{log}");
    image::examine(&place.recorded.directory, &marks).unwrap();
    let moments = power::moments(1, &entries, cuts(CUTS));
    let bad = examine_all(Disk::new(1), &entries, 1, &moments, |_, cut| image::problem(cut));
    eprintln!("{} images, {} bad", moments.len(), bad.len());
    assert!(bad.is_empty(), "{} of {} images are bad:\n{}", bad.len(), moments.len(), bad.join("\n"));
}
