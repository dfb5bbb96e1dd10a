//! Files of the agent below /run/perilog. They are in memory, so a power cut leaves none of them. What ends early here
//! is the agent: it is killed after any call. The next agent finds each task as it was before or after that call.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use perilog_agent::spool::Spool;
use perilog_core::ids::{self, ClusterId};
use perilog_core::outcome::Outcome;
use perilog_core::task::{Claim, Ended, Intent};
use perilog_core::{AcceptedEpoch, Epoch, Rank};
use perilog_disk::disk::Disk;
use perilog_disk::image::Image;
use perilog_disk::record::{self, Entry};
use perilog_disk::run::{Marks, Recorded};

use crate::testing;

/// Environment variable with the agent's directory, for the child: this test's program run again. `RECORD` has the path
/// of the record.
const CHILD: &str = "PERILOG_TEST_SPOOL";
const RECORD: &str = "PERILOG_TEST_RECORD";
const TASKS: u32 = 4;
/// Number of steps of tasks.
const STEPS: u64 = 60;
/// With faults, one in this many calls fails.
const ONE_IN: u64 = 30;

/// A state of a task in the spool, and the step to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Unknown,
    Intended,
    Claimed,
    Ended,
    Tombstone,
}

impl State {
    const ALL: [Self; 5] = [Self::Unknown, Self::Intended, Self::Claimed, Self::Ended, Self::Tombstone];

    fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|state| format!("{state:?}") == text).unwrap()
    }

    /// Returns a state that can follow this one.
    fn next(self, random: &mut Rng) -> Self {
        match self {
            Self::Unknown => Self::Intended,
            Self::Intended if random.bool() => Self::Claimed,
            Self::Intended | Self::Claimed => Self::Ended,
            Self::Ended => Self::Tombstone,
            Self::Tombstone if random.bool() => Self::Unknown,
            Self::Tombstone => Self::Intended,
        }
    }
}

fn task(rank: u32) -> (String, Intent) {
    let mut intent = testing::intent();
    intent.start.task.rank = Rank(rank);
    (ids::stem(&intent.start.action, &intent.start.job, intent.start.task), intent)
}

/// Carries out one step of a task, again until it succeeds.
fn step(spool: &Spool, rank: u32, to: State) {
    let (stem, intent) = task(rank);
    let ended = Ended::bare(Outcome::Ok, 7);
    let done = || match to {
        State::Unknown => spool.remove_tombstone(&stem),
        State::Intended => spool.write_intent(&stem, &intent),
        State::Claimed => spool.take_claim(&stem, &Claim::Cancelled).map(|is_ours| assert!(is_ours)),
        State::Ended => spool.write_outcome(&stem, &ended, &intent),
        State::Tombstone => spool.write_tombstone(&stem, &testing::tombstone(&intent)),
    };
    while done().is_err() {}
}

/// Works in the spool as an agent does. Marks each step before and after.
fn work(root: &Path, marks: &Marks) {
    let mut random = Rng::with_seed(1);
    let (spool, _lock) = loop {
        if let Ok(opened) = Spool::open(root) {
            break opened;
        }
    };
    let mut states = [State::default(); TASKS as usize];
    for number in 1..=STEPS {
        let rank = random.u32(..TASKS);
        let from = states[rank as usize];
        let to = from.next(&mut random);
        marks.acknowledged(&format!("begin {rank} {from:?} {to:?}")).unwrap();
        step(&spool, rank, to);
        marks.acknowledged(&format!("end {rank} {to:?}")).unwrap();
        states[rank as usize] = to;
        let epoch = Epoch { number, nonce: 1 };
        let accepted = AcceptedEpoch { epoch, cluster: Some(ClusterId::from_name("test")), commit: number };
        while spool.write_accepted_epoch(accepted).is_err() {}
        marks.acknowledged(&format!("epoch {number}")).unwrap();
    }
}

fn found(spool: &Spool, rank: u32) -> State {
    let (stem, intent) = task(rank);
    let has_tombstone = spool.tombstones().unwrap().iter().any(|tombstone| tombstone.task == intent.start.task);
    let is_claimed = spool.traces(&stem, false).claim.is_some();
    match spool.intent(&stem) {
        _ if has_tombstone => {
            assert!(!spool.has(&stem), "a directory beside its tombstone");
            State::Tombstone
        }
        None => State::Unknown,
        Some(_) if spool.outcome(&stem).is_some() => State::Ended,
        Some(_) if is_claimed => State::Claimed,
        Some(_) => State::Intended,
    }
}

/// Opens an image as the next agent does; returns what is wrong.
fn problem(image: &Image, marks: &[&str]) -> Result<(), String> {
    let dir = crate::in_memory();
    image.write(dir.path()).unwrap();
    let (spool, _lock) = Spool::open(&dir.path().join("perilog")).map_err(|error| error.to_string())?;
    let (mut epoch, mut expected) = (0, BTreeMap::<u32, Vec<State>>::new());
    for mark in marks {
        match mark.split(' ').collect::<Vec<_>>()[..] {
            ["begin", rank, from, to] => {
                let mut may = vec![State::parse(from), State::parse(to)];
                // A task that begins anew loses its tombstone first: its Start was not accepted yet.
                may.extend((may == [State::Tombstone, State::Intended]).then_some(State::Unknown));
                expected.insert(rank.parse().unwrap(), may);
            }
            ["end", rank, to] => drop(expected.insert(rank.parse().unwrap(), vec![State::parse(to)])),
            ["epoch", number] => epoch = number.parse().unwrap(),
            _ => return Err(format!("an unknown mark: {mark}")),
        }
    }
    for rank in 0..TASKS {
        let (found, may) = (found(&spool, rank), expected.remove(&rank).unwrap_or_else(|| vec![State::Unknown]));
        if !may.contains(&found) {
            return Err(format!("the task of rank {rank} is {found:?}, not {may:?}"));
        }
    }
    let accepted = spool.accepted().map_or(0, |accepted| accepted.epoch.number);
    if !(epoch..=epoch + 1).contains(&accepted) {
        return Err(format!("the epoch is {accepted}, not {epoch}"));
    }
    step(&spool, TASKS, State::Intended);
    if found(&spool, TASKS) == State::Intended { Ok(()) } else { Err("a further task is not there".to_owned()) }
}

/// Kills the agent after each call. `faults`: calls fail at random.
fn is_found_as_left(test: &str, faults: bool) {
    if let Ok(root) = std::env::var(CHILD) {
        let record = std::env::var(RECORD).unwrap().into();
        return work(Path::new(&root), &Recorded { directory: root.clone().into(), record }.marks().unwrap());
    }
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap().join("run");
    std::fs::create_dir(&directory).unwrap();
    let recorded = Recorded { directory: directory.clone(), record: place.path().join("record") };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(CHILD, directory.join("perilog")).env(RECORD, &recorded.record);
    recorded.preload(&mut command).unwrap();
    if faults {
        let path = place.path().join("faults");
        std::fs::write(&path, format!("1 {ONE_IN} EIO ENOSPC EROFS EMFILE")).unwrap();
        command.env("PERILOG_SHIM_FAULTS", path);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let record = std::fs::read(&recorded.record).unwrap();
    let entries = record::read(&record).unwrap();
    let failed = entries.iter().filter(|entry| matches!(entry, Entry::Failed { .. })).count();
    assert_eq!(failed > 0, faults, "{failed} calls failed");
    let (mut disk, mut marks, mut bad) = (Disk::new(1), Vec::new(), Vec::new());
    for (number, entry) in entries.iter().enumerate() {
        disk.apply(entry);
        if let Entry::Acknowledged { what } = entry {
            marks.push(*what);
        }
        bad.extend(problem(&disk.cached(), &marks).err().map(|wrong| format!("entry {number}: {wrong}")));
    }
    assert_eq!(disk.cached(), Image::read(&directory).unwrap(), "the record has a gap");
    eprintln!("{} calls, {failed} failed; {} images, {} bad", entries.len(), entries.len(), bad.len());
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_killed_agent_leaves_each_task_before_or_after_a_step() {
    is_found_as_left("spool::a_killed_agent_leaves_each_task_before_or_after_a_step", false);
}

#[test]
fn an_agent_whose_calls_fail_leaves_each_task_before_or_after_a_step() {
    is_found_as_left("spool::an_agent_whose_calls_fail_leaves_each_task_before_or_after_a_step", true);
}
