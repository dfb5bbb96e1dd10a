//! Power cuts of a running controller: its store, its anchor, the enrolment authority and the tokens.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, mpsc};

use perilog_disk::disk::Disk;
use perilog_disk::image::Image;
use perilog_disk::power::{self, Cut};
use perilog_disk::record::{self, Entry};
use perilog_disk::run::Recorded;
use perilog_host::link::Dial;
use perilog_host::tls::ClientTls;
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, Controller};
use crate::nodes::Node;
use crate::tour::Tour;
use crate::{cuts, image};

/// Number of clients at once, and of jobs of each.
const CLIENTS: u64 = 3;
const JOBS: u64 = 12;
/// Number of power cuts, and of those after which the real controller starts.
const CUTS: usize = 1_000;
const STARTS: usize = 20;
/// Number of cuts for the disk that ignores some syncs.
const CUTS_OF_A_BAD_DISK: usize = 200;

/// Files whose contents mean nothing after a cut: the index of the log is in memory that SQLite maps, and made again by
/// the first connection; the reserve is room on the disk, and made again by the next start.
const WITHOUT_MEANING: [&str; 2] = ["controller.db-shm", "controller.db-reserve"];

/// A directory with all that a controller needs; its own directory in that is recorded.
pub(crate) struct Place {
    pub(crate) bed: Bed,
    pub(crate) recorded: Recorded,
}

impl Place {
    pub(crate) fn new() -> Self {
        let mut bed = Bed::new();
        let directory = bed.use_disk().canonicalize().unwrap();
        let enroll = directory.join("enroll");
        bed.extra = format!("[enroll]\nlisten = \"127.0.0.1:0\"\ndirectory = {enroll:?}\n");
        let record = bed.dir.path().join("record");
        Self { bed, recorded: Recorded { directory, record } }
    }

    pub(crate) fn start(&mut self) -> Controller {
        let command = self.command();
        self.bed.start_with(command)
    }

    /// Returns a command for a controller that is recorded.
    pub(crate) fn command(&self) -> Command {
        self.bed.write_config();
        let mut command = self.bed.command();
        self.recorded.preload(&mut command).unwrap();
        command
    }

    /// Has agents and clients at work until the clients have run so many jobs each. `enroll`: port of the enrolment
    /// server.
    pub(crate) fn tour(&self, port: u16, enroll: u16, jobs: u64) {
        let marks = Arc::new(self.recorded.marks().unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for number in 0..2 * CLIENTS {
            let host = format!("n{number}");
            let tls = self.bed.authority.agent(&host);
            let node = Node::new(&host, format!("localhost:{port}"), tls, number, marks.clone());
            runtime.spawn(node.run());
        }
        let tls = ClientTls::load_anonymous(&self.bed.authority.files("new")).unwrap();
        let client = |client| Tour {
            socket: self.bed.socket(),
            marks: marks.clone(),
            client,
            enroll: Dial::tls(format!("localhost:{enroll}"), tls.clone()),
            runtime: runtime.handle().clone(),
        };
        let clients: Vec<Tour> = (0..CLIENTS).map(client).collect();
        std::thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| {
                    client.jobs(0..jobs);
                    client.open_job();
                });
            }
        });
        clients[0].quiet();
        runtime.shutdown_background();
    }
}

/// Returns the port of the controller's enrolment server.
pub(crate) fn enroll_port(controller: &Controller) -> u16 {
    let line = controller.log.wait_for("enrolling nodes");
    line.split("address=127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// A recorded run of a controller, with all tables in use.
pub(crate) struct Run {
    pub(crate) record: Vec<u8>,
    pub(crate) place: Place,
}

pub(crate) static RUN: LazyLock<Run> = LazyLock::new(|| {
    let mut place = Place::new();
    let controller = place.start();
    place.tour(controller.address.port(), enroll_port(&controller), JOBS);
    controller.signal(Signal::TERM);
    assert_eq!(controller.terminated().code(), Some(0));
    let record = std::fs::read(&place.recorded.record).unwrap();
    Run { record, place }
});

/// Returns the tables of a store that have no row.
fn empty_tables(store: &Path) -> Vec<String> {
    let db = Connection::open(store).unwrap();
    let mut tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let is_empty = |name: &String| {
        let count: i64 = db.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap();
        count == 0
    };
    names.into_iter().filter(is_empty).collect()
}

/// Cuts the power at these moments, and has `examine` look at each image, on all cores. Returns what it found wrong.
pub(crate) fn examine_all(
    disk: Disk,
    entries: &[Entry<'_>],
    seed: u64,
    moments: &[usize],
    examine: impl Fn(usize, &Cut<'_>) -> Option<String> + Sync,
) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (sender, images) = mpsc::sync_channel::<(usize, Cut<'_>)>(cores);
    let (images, bad) = (Mutex::new(images), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let next = images.lock().unwrap().recv();
                    let Ok((number, cut)) = next else { return };
                    if let Some(wrong) = examine(number, &cut) {
                        bad.lock().unwrap().push(format!("entry {} of {}: {wrong}", cut.moment, entries.len()));
                    }
                }
            });
        }
        let mut number = 0;
        power::cuts(disk, seed, entries, moments, |cut| {
            sender.send((number, cut)).unwrap();
            number += 1;
        });
        drop(sender);
    });
    bad.into_inner().unwrap()
}

#[test]
fn acknowledged_records_survive_power_cuts_of_the_controller() {
    let entries = record::read(&RUN.record).unwrap();
    let seed = 1;
    let moments = power::moments(seed, &entries, cuts(CUTS));
    let every = (moments.len() / STARTS).max(1);
    let bad = examine_all(Disk::new(seed), &entries, seed, &moments, |number, cut| {
        if number % every == 0 { starts(cut) } else { image::problem(cut) }
    });
    let marks = entries.iter().filter(|entry| matches!(entry, Entry::Acknowledged { .. })).count();
    let syncs = entries.iter().filter(|entry| matches!(entry, Entry::Sync { .. })).count();
    eprintln!("{} calls, {syncs} syncs, {marks} marks; {} images, {} bad", entries.len(), moments.len(), bad.len());
    assert!(bad.is_empty(), "{} of {} images are bad:\n{}", bad.len(), moments.len(), bad.join("\n"));
}

/// A disk that ignores one sync in ten loses what was acknowledged, so the examination can fail.
#[test]
fn a_disk_that_ignores_syncs_is_found_out() {
    let entries = power::without_some_syncs(1, &record::read(&RUN.record).unwrap());
    let moments = power::moments(1, &entries, CUTS_OF_A_BAD_DISK);
    let bad = examine_all(Disk::new(1), &entries, 1, &moments, |_, cut| image::problem(cut));
    let lost = bad.iter().filter(|wrong| wrong.contains("lost: ")).count();
    eprintln!("{} images, {} bad, {lost} without something acknowledged", moments.len(), bad.len());
    assert!(lost > 0, "{bad:?}");
}

/// The record has every call that changed a file: the model has the same files at the end.
#[test]
fn the_record_of_the_controller_is_complete() {
    let mut disk = Disk::new(1);
    record::read(&RUN.record).unwrap().iter().for_each(|entry| disk.apply(entry));
    let directory = &RUN.place.recorded.directory;
    let (mut model, mut real) = (disk.cached(), Image::read(directory).unwrap());
    for name in WITHOUT_MEANING {
        model.files.remove(name);
        real.files.remove(name);
    }
    let names = |image: &Image| image.files.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&model), names(&real));
    let unlike: Vec<&String> =
        real.files.iter().filter(|(name, bytes)| model.files[*name] != **bytes).map(|(name, _)| name).collect();
    assert_eq!((unlike, &model.directories), (Vec::new(), &real.directories));
    // Only a restored store has rows in these.
    let copy = crate::in_memory();
    real.write(copy.path()).unwrap();
    assert_eq!(empty_tables(&copy.path().join("controller.db")), ["recovery", "stamp"]);
}

/// Starts the real controller on an image, and has it take a job.
pub(crate) fn starts(cut: &Cut<'_>) -> Option<String> {
    let dir = crate::in_memory();
    cut.image.write(dir.path()).unwrap();
    let mut bed = Bed::new();
    bed.store = dir.path().join("controller.db");
    bed.extra = format!("[enroll]\nlisten = \"127.0.0.1:0\"\ndirectory = {:?}\n", dir.path().join("enroll"));
    let controller = bed.start();
    let socket: PathBuf = bed.socket();
    let call = |method: &str, parameters| {
        let mut client = perilog_host::varlink::Client::connect(&socket).unwrap();
        client.call(&format!("io.perilog.Controller.{method}"), parameters)
    };
    let added = call("JobAdd", json!({"job": "f1", "nodes": "n0"}));
    let recovery = call("Recover", json!({}));
    controller.signal(Signal::TERM);
    let status = controller.terminated();
    match (added, recovery) {
        (Ok(_), Ok(recovery)) if recovery["recovery"]["recovery"].is_null() && status.success() => {}
        other => return Some(format!("{other:?}, {status}")),
    }
    image::examine(dir.path(), &cut.acknowledged).err().map(|wrong| wrong.to_string())
}
