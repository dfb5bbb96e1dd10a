//! `perilog-agent --await-tasks LIMIT`: the wait of a node that shuts down. perilog-shutdown.service runs this command
//! when systemd stops it, before what scripts need (the agent, mounts, networks) is stopped.
//!
//! ```text
//!   scripts run ──────> none runs ──────> the controller has every outcome ──> done
//!        │ LIMIT                                      │ ACKNOWLEDGED
//!        └─> TERM ─ GRACE ─> KILL ─ REAPED ─┘         └─> done: the node goes down, and the outcome is lost with it
//! ```
//!
//! This process runs beside the agent, which collects and reports as always. The process watches the same sources
//! (cgroups, the spool) and decides nothing about tasks. It does not wait for a task whose script announced the reboot:
//! the script itself may wait for the reboot.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use perilog_core::task::BOOT_EXPECTED;
use perilog_host::{clock, notify};
use tokio::process::Command;

use crate::inotify::{Inotify, WatchFlags};
use crate::spool::{Spool, SpoolError};
use crate::systemd::Cgroups;

/// Time from a script's TERM to its KILL.
const GRACE_MS: u64 = 30_000;
/// Time for the kernel to end killed processes, and for the agent to notice.
const REAPED_MS: u64 = 10_000;
/// Longest time to wait, once no process of a task is left, until the controller has acknowledged every outcome. The
/// controller usually does so within milliseconds: one that has not done so by then is away.
const ACKNOWLEDGED_MS: u64 = 10_000;
/// Longest time between two looks at this host's tasks if the kernel does not report empty cgroups (cgroup v1).
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The reason why `--await-tasks` cannot wait for the tasks of the node.
#[derive(Debug, thiserror::Error)]
pub enum FarewellError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
}

/// State of this host's tasks, by stem.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Stems of tasks whose scripts run, or whose lingering processes live, except tasks whose script announced the
    /// reboot.
    running: BTreeSet<String>,
    /// Stems of tasks whose processes have ended and whose outcome the controller has not acknowledged, with the same
    /// exception.
    unreported: BTreeSet<String>,
}

/// The next act of a node that waits before it shuts down; the [`Stage`] decides it. `Wait`: sleep until the state of a
/// task changes, or until `until_ms` of CLOCK_MONOTONIC (ms), the end of the stage. Then the stage decides again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait { until_ms: u64 },
    Terminate,
    Kill,
    Done,
}

/// Stage of a node's wait before it shuts down. `until_ms`: CLOCK_MONOTONIC (ms) at which the stage ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting { until_ms: u64 },
    Terminated { until_ms: u64 },
    Killed { until_ms: u64 },
    Quiet { until_ms: u64 },
}

impl Stage {
    fn next(self, seen: &Seen, now_ms: u64) -> (Self, Step) {
        if seen.running.is_empty() {
            let stage = match self {
                Self::Quiet { .. } => self,
                _ => Self::Quiet { until_ms: now_ms + ACKNOWLEDGED_MS },
            };
            let Self::Quiet { until_ms } = stage else { return (stage, Step::Done) };
            let done = seen.unreported.is_empty() || now_ms >= until_ms;
            return (stage, if done { Step::Done } else { Step::Wait { until_ms } });
        }
        let (Self::Waiting { until_ms }
        | Self::Terminated { until_ms }
        | Self::Killed { until_ms }
        | Self::Quiet { until_ms }) = self;
        if now_ms < until_ms {
            return (self, Step::Wait { until_ms });
        }
        match self {
            Self::Waiting { .. } => (Self::Terminated { until_ms: now_ms + GRACE_MS }, Step::Terminate),
            Self::Terminated { .. } => (Self::Killed { until_ms: now_ms + REAPED_MS }, Step::Kill),
            // The kernel cannot end a process, or a task began after all: the node shuts down anyway.
            Self::Killed { .. } | Self::Quiet { .. } => (self, Step::Done),
        }
    }
}

/// Waits for running scripts, at most `limit`, then ends them. Then waits until the controller has every outcome, at
/// most ten seconds.
pub async fn wait(run_dir: &Path, limit: Duration) -> Result<(), FarewellError> {
    let io = |doing| move |source| FarewellError::Io { doing, source };
    let spool = Spool::open_unlocked(run_dir);
    let cgroups = Cgroups::find().map_err(io("cannot read the mounts"))?;
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let mut stage = Stage::Waiting { until_ms: clock::mono_ms().saturating_add(limit_ms) };
    let mut shown = String::new();
    loop {
        // Begins to watch before the check, so that a change in between wakes the loop.
        let inotify = Inotify::new().map_err(io("cannot watch files (inotify)"))?;
        let reported = watch(&inotify, &spool, &cgroups);
        let seen = inspect(&spool, &cgroups)?;
        show(&seen, &mut shown);
        let (next, step) = stage.next(&seen, clock::mono_ms());
        stage = next;
        match step {
            Step::Wait { until_ms } => {
                let rest = clock::until(until_ms);
                let rest = if reported { rest } else { rest.min(CHECK_EVERY) };
                // After the timeout, the loop checks again.
                if let Ok(Err(error)) = tokio::time::timeout(rest, inotify.next()).await {
                    return Err(FarewellError::Io { doing: "cannot watch files (inotify)", source: error });
                }
            }
            // The runner passes TERM on to its script; KILL goes to all processes.
            Step::Terminate => signal(&seen.running, &["--kill-who=main", "--signal=TERM"]).await,
            Step::Kill => signal(&seen.running, &["--signal=KILL"]).await,
            Step::Done => {
                if !(seen.running.is_empty() && seen.unreported.is_empty()) {
                    tracing::warn!("the node goes down although this is still open: {}", line(&seen));
                }
                return Ok(());
            }
        }
    }
}

/// Adds watches for everything that can change the result of [`inspect`]. Returns `false` if the kernel does not report
/// empty cgroups (cgroup v1), so that the caller must also look again after a time.
fn watch(inotify: &Inotify, spool: &Spool, cgroups: &Cgroups) -> bool {
    let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
    // The check will not find a task that is gone, either.
    let _gone = inotify.add(&spool.tasks(), names);
    for stem in spool.stems().unwrap_or_default() {
        let _gone = inotify.add(&spool.task(&stem), names);
        if let Some(events) = cgroups.of_task(&stem) {
            let _gone = inotify.add(&events, WatchFlags::MODIFY);
        }
    }
    cgroups.reports_empty()
}

fn inspect(spool: &Spool, cgroups: &Cgroups) -> Result<Seen, SpoolError> {
    let mut seen = Seen::default();
    // Without a run of the agent the directory does not exist.
    let stems = if spool.tasks().exists() { spool.stems()? } else { Vec::new() };
    for stem in stems {
        let has = |name| spool.task(&stem).join(name).exists();
        if has(BOOT_EXPECTED) {
            continue;
        }
        let alive = match cgroups.has_processes(&stem) {
            Some(populated) => populated,
            None => !has("outcome.json") && !has("result.json"),
        };
        if alive { &mut seen.running } else { &mut seen.unreported }.insert(stem);
    }
    Ok(seen)
}

fn line(seen: &Seen) -> String {
    let names = |stems: &BTreeSet<String>| stems.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    match (seen.running.len(), seen.unreported.len()) {
        (0, 0) => "nothing to wait for: no script runs, and every outcome is reported (except of tasks that announced \
                   this reboot)"
            .to_owned(),
        (0, unreported) => {
            let tasks = if unreported == 1 { "1 task".to_owned() } else { format!("{unreported} tasks") };
            format!("waiting until the controller has the outcome of {tasks}: {}", names(&seen.unreported))
        }
        (1, _) => format!("waiting for 1 task to end: {}", names(&seen.running)),
        (running, _) => format!("waiting for {running} tasks to end: {}", names(&seen.running)),
    }
}

/// If what the node waits for differs from `shown`, the text of the last call, logs the new text and makes it the
/// status line of `systemctl status`.
fn show(seen: &Seen, shown: &mut String) {
    let line = line(seen);
    if line != *shown {
        tracing::info!("{line}");
        notify::status(&line);
        *shown = line;
    }
}

/// Sends a signal to the units of the tasks `stems` by `systemctl kill`, with the options `how`. systemctl(1) needs no
/// bus, and the bus may be gone when a node goes down.
async fn signal(stems: &BTreeSet<String>, how: &[&str]) {
    let units = stems.iter().map(|stem| format!("{stem}.service"));
    let mut command = Command::new("systemctl");
    command.arg("kill").args(how).args(units).stdin(Stdio::null());
    tracing::warn!(
        "the limit has passed, so the agent runs: systemctl kill {} {}",
        how.join(" "),
        stems.iter().cloned().collect::<Vec<_>>().join(" ")
    );
    match command.status().await {
        Ok(status) if status.success() => {}
        // A unit may have ended just now. The next check covers the other units again.
        Ok(status) => tracing::warn!("systemctl kill failed ({status}); a task may have ended just before"),
        Err(error) => tracing::error!("cannot run systemctl: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(running: &[&str], unreported: &[&str]) -> Seen {
        let set = |stems: &[&str]| stems.iter().map(|stem| (*stem).to_owned()).collect();
        Seen { running: set(running), unreported: set(unreported) }
    }

    #[test]
    fn farewell_waits_then_terms_then_kills_then_awaits_outcomes() {
        let start = Stage::Waiting { until_ms: 100 };
        assert_eq!(start.next(&seen(&[], &[]), 0).1, Step::Done);
        assert_eq!(start.next(&seen(&["a"], &["b"]), 99), (start, Step::Wait { until_ms: 100 }));

        let (terminated, step) = start.next(&seen(&["a"], &[]), 100);
        assert_eq!((terminated, step), (Stage::Terminated { until_ms: 30_100 }, Step::Terminate));
        assert_eq!(terminated.next(&seen(&["a"], &[]), 30_099).1, Step::Wait { until_ms: 30_100 });
        let (killed, step) = terminated.next(&seen(&["a"], &[]), 30_100);
        assert_eq!((killed, step), (Stage::Killed { until_ms: 40_100 }, Step::Kill));
        assert_eq!(
            killed.next(&seen(&["a"], &[]), 40_100).1,
            Step::Done,
            "what cannot be killed does not keep the node"
        );

        for stage in [start, terminated, killed] {
            let (quiet, step) = stage.next(&seen(&[], &["a"]), 50);
            assert_eq!(step, Step::Wait { until_ms: 10_050 }, "{stage:?}");
            assert_eq!(quiet.next(&seen(&[], &["a"]), 9_000).1, Step::Wait { until_ms: 10_050 });
            assert_eq!(quiet.next(&seen(&[], &[]), 9_000).1, Step::Done);
            assert_eq!(quiet.next(&seen(&[], &["a"]), 10_050).1, Step::Done, "the controller is away");
        }
    }

    #[test]
    fn an_announced_boot_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open_unlocked(dir.path());
        let cgroups = Cgroups::nowhere();
        for (stem, files) in [
            ("perilog-task-prolog-a-0-0", &["intent.json"][..]),
            ("perilog-task-prolog-b-0-0", &["intent.json", BOOT_EXPECTED]),
            ("perilog-task-prolog-c-0-0", &["intent.json", "result.json"]),
            (".agent-gone-x", &[]),
        ] {
            std::fs::create_dir_all(spool.task(stem)).unwrap();
            files.iter().for_each(|file| std::fs::write(spool.task(stem).join(file), "").unwrap());
        }
        let expected = seen(&["perilog-task-prolog-a-0-0"], &["perilog-task-prolog-c-0-0"]);
        assert_eq!(inspect(&spool, &cgroups).unwrap(), expected);
    }

    #[tokio::test]
    async fn without_tasks_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        wait(&dir.path().join("never-made"), Duration::from_secs(600)).await.unwrap();
    }
}
