//! The ledger: the scripts' own record of every run on a node and of every exit status. The tests treat the ledger as
//! the truth.
//!
//! ```text
//! start 812.40 <boot id> job attempt action rank script pid -
//! end   813.02 <boot id> job attempt action rank script pid 37
//! ```
//!
//! A `start` without an `end` is a script that still runs or was killed. [`compare()`] compares the controller's view
//! with the ledger.

mod compare;
mod known;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};

use crate::node::Node;

pub use compare::{Comparison, Known, NOWHERE, compare};
pub use known::known;

/// Path of the ledger on each node.
pub const PATH: &str = "/var/lib/ledger/ledger";

const PRELUDE: &str = include_str!("ledger/prelude.sh");

/// Returns the text of a script that records its start and end in the ledger. `body` is sh(1). It can draw one of
/// several exit codes at random, as in `exit $(draw 0 1 37)`. Without `exit`, the script exits with the status of the
/// last command.
pub fn script(body: &str) -> String {
    format!("#!/bin/sh\n{PRELUDE}\n{body}\n")
}

/// Names one script of one task. A [`Ledger`] lists the runs of the script under this key; more than one run is a
/// fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub job: String,
    pub attempt: String,
    pub action: String,
    pub rank: u32,
    pub script: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, attempt, action, rank, script } = self;
        write!(f, "job {job} attempt {attempt}: {action} of rank {rank}: {script}")
    }
}

/// One run of a script, as the script recorded it in the ledger of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub node: String,
    pub boot: String,
    pub pid: u32,
    /// Seconds since the machine's boot, on the machine's clock; all nodes of a bed share this clock.
    pub started: f64,
    /// Time of the end, as [`Run::started`], and the exit code. `None`: the script still runs or was killed.
    pub ended: Option<(f64, i32)>,
}

/// All runs of scripts on some nodes. Several runs under one key mean that a script ran more than once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    pub runs: BTreeMap<Key, Vec<Run>>,
}

impl Ledger {
    /// Reads the ledgers of these nodes, whether a node is on or off.
    pub fn read<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Result<Self> {
        let mut ledger = Self::default();
        for node in nodes {
            let text = node.try_read_file(PATH)?.unwrap_or_default();
            ledger.add(node.name(), &text)?;
        }
        Ok(ledger)
    }

    /// Creates an empty ledger on a node.
    pub fn prepare(node: &Node) -> Result<()> {
        // Every user may append, because a script may run as another user.
        node.write_with_mode(PATH, "", 0o666)
    }

    /// Adds the runs in `text`, the ledger of `node`. A malformed line is an error: the ledger must have no gaps.
    pub fn add(&mut self, node: &str, text: &str) -> Result<()> {
        for (number, line) in text.lines().enumerate() {
            self.line(node, line).with_context(|| format!("{node}: {PATH}, line {}: {line:?}", number + 1))?;
        }
        Ok(())
    }

    fn line(&mut self, node: &str, line: &str) -> Result<()> {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[kind, time, boot, job, attempt, action, rank, script, pid, code] = fields.as_slice() else {
            bail!("{} fields instead of 10", fields.len());
        };
        let key = Key {
            job: job.into(),
            attempt: attempt.into(),
            action: action.into(),
            rank: rank.parse().context("its rank")?,
            script: script.into(),
        };
        let (time, pid): (f64, u32) = (time.parse().context("its time")?, pid.parse().context("its pid")?);
        let runs = self.runs.entry(key).or_default();
        match kind {
            "start" => runs.push(Run { node: node.into(), boot: boot.into(), pid, started: time, ended: None }),
            "end" => {
                let code = code.parse().context("its exit code")?;
                let run = runs.iter_mut().find(|run| run.pid == pid && run.boot == boot && run.node == node);
                let run = run.context("an end without a start")?;
                ensure!(run.ended.is_none(), "a second end of the same run");
                run.ended = Some((time, code));
            }
            _ => bail!("neither start nor end"),
        }
        Ok(())
    }

    /// Returns the runs of a job, in the order of their start.
    pub fn of_job(&self, job: &str) -> Vec<(&Key, &Run)> {
        let of_job = self.runs.iter().filter(|(key, _)| key.job == job);
        let mut runs: Vec<_> = of_job.flat_map(|(key, runs)| runs.iter().map(move |run| (key, run))).collect();
        runs.sort_by(|(_, a), (_, b)| a.started.total_cmp(&b.started));
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_script_writes_what_is_read() {
        let path = std::env::temp_dir().join(format!("perilog-ledger-{}", std::process::id()));
        let text = script("exit $(draw 37 37)").replace(PATH, &path.to_string_lossy());
        let mut command = Command::new("sh");
        command.args(["-c", &text, "/etc/perilog/10-check"]).env("PERILOG_JOB", "j").env("PERILOG_ACTION", "prolog");
        let status = command.env("PERILOG_RANK", "3").status().unwrap();
        assert_eq!(status.code(), Some(37));
        let mut ledger = Ledger::default();
        ledger.add("n3", &std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let [(key, run)] = ledger.of_job("j")[..] else { panic!("{ledger:?}") };
        assert_eq!(key.to_string(), "job j attempt -: prolog of rank 3: 10-check");
        assert_eq!((run.node.as_str(), run.ended.map(|(_, code)| code)), ("n3", Some(37)));
    }

    #[test]
    fn lines_that_cannot_be_true_are_refused() {
        let cases = [
            ("start 1 boot j 1 prolog 0 s 7", "9 fields"),
            ("begin 1 boot j 1 prolog 0 s 7 -", "neither start nor end"),
            ("start 1 boot j 1 prolog x s 7 -", "its rank"),
            ("end 1 boot j 1 prolog 0 s 7 0", "an end without a start"),
            (
                "start 1 boot j 1 prolog 0 s 7 -\nend 2 boot j 1 prolog 0 s 7 0\nend 2 boot j 1 prolog 0 s 7 0",
                "second end",
            ),
            ("start 1 boot j 1 prolog 0 s 7 -\nend 2 other j 1 prolog 0 s 7 0", "without a start"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", Ledger::default().add("n0", text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
