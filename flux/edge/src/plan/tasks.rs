//! The end of a job's tasks on its nodes. Where Flux runs jobs as units of systemd (`[exec] service = "sdexec"`), the
//! tasks outlive the broker of their node. Flux then posts the final `release` while they live. Its own monitor of
//! units, the module `sdmon`, keeps such a node offline until its units have ended.
//!
//! No event of the job says which brokers were lost: after a cancel Flux posts none. So the edge asks `sdmon` of each
//! of the job's nodes ([`Action::Inspect`]), but only after a job that may have left tasks
//! ([`Job::may_have_left_tasks`]).
//!
//! | node | then |
//! |---|---|
//! | `sdmon` knows no unit of the job, and Flux counts the node as online | no task lives there |
//! | `sdmon` knows a unit of the job | look again; past the patience drain it, and look again without a limit |
//! | no answer, or Flux counts the node as offline | look again; past the patience drain it, and go on |
//! | rank 0 has no `sdmon`: tasks end with their broker | after a restart of rank 0 wait until all are online |

use std::collections::BTreeMap;
use std::fmt;

use perilog_core::{HostList, HostName, IdSet};

use super::action::Action;
use super::job::{Allocated, Job};
use super::view::View;
use super::{Step, drains};

/// The knowledge of a job's tasks on one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tasks {
    /// `sdmon` knows no unit of the job, or there is no `sdmon`.
    Gone,
    /// This unit of the job lives.
    Live(String),
    /// The rank does not answer, with the reason.
    Unknown(String),
}

/// Findings of the edge about a job's tasks, after their end in Flux.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Inspection {
    #[default]
    NotYet,
    /// Rank 0 has no module `sdmon`.
    NoMonitor,
    Ranks(BTreeMap<u32, Tasks>),
}

/// A host on which tasks of a job may live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub host: HostName,
    rank: u32,
    /// Whether a unit of the job is known to live there.
    is_live: bool,
    why: String,
}

/// The wait of one job for the end of its tasks, for the edge's status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub hosts: HostList,
    pub why: String,
    /// Time since which the job waits (ms since 1970).
    pub since_ms: u64,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its epilog waits for tasks on {}: {}", self.hosts, self.why)
    }
}

/// Returns `then` if no task of the job can live on its nodes. Otherwise returns the next step until then.
pub(super) fn when_gone(view: &View, job: &Job, of: &Allocated<'_>, now_ms: u64, then: Step) -> Step {
    if !job.may_have_left_tasks() {
        return then;
    }
    let since_ms = job.ended_ms(view.starttime);
    if job.inspection == Inspection::NoMonitor {
        return match job.needs_rejoin() || !view.up.contains(0) {
            true => drains::when_online(view, of, &view.down(of), since_ms, now_ms, then),
            false => then,
        };
    }
    // A broker loads its modules before it joins.
    if !view.online.contains(0) {
        return Step::Wait;
    }
    let left = left(view, job, of);
    if left.is_empty() && job.inspection != Inspection::NotYet {
        return then;
    }
    let inspect =
        Step::Do(Action::Inspect { id: job.id, job: of.job.clone(), attempt: of.attempt, ranks: ranks(&left) });
    if job.inspection == Inspection::NotYet || now_ms < drains::until(view, since_ms) {
        return inspect;
    }
    match left.iter().find(|left| !view.flux_drains.contains_key(&left.host) && view.ranks.contains_key(&left.host)) {
        Some(left) => {
            let reason = format!("perilog: tasks of job {} may still run there: {}", of.job, left.why);
            Step::Do(Action::Drain { host: left.host.clone(), reason, overwrite: false })
        }
        None if left.iter().any(|left| left.is_live) => inspect,
        None => then,
    }
}

/// Returns the wait of a job for the end of its tasks; `None`: it does not wait for that.
pub fn wait(view: &View, job: &Job) -> Option<Wait> {
    let is_open = job.epilog.is_open() || job.is_in_housekeeping();
    let is_due = is_open && job.may_have_left_tasks() && job.is_gone(view.starttime);
    let of = job.held().filter(|_| is_due && matches!(job.inspection, Inspection::Ranks(_)))?;
    // After its JobFinish the job waits for nothing here.
    if view.attempt(&of).is_some_and(|known| known.hold.is_empty()) {
        return None;
    }
    let left = left(view, job, &of);
    let why = left.first()?.why.clone();
    let hosts = left.iter().map(|left| left.host.as_str()).collect::<Vec<_>>().join(",");
    Some(Wait { hosts: hosts.parse().unwrap_or_default(), why, since_ms: job.ended_ms(view.starttime) })
}

/// Returns the job's hosts on which tasks may live: those of which the last look found a unit or no answer, and those
/// that Flux counts as offline. All hosts, if the edge has not looked yet.
fn left(view: &View, job: &Job, of: &Allocated<'_>) -> Vec<Left> {
    let none = BTreeMap::new();
    let inspection = if let Inspection::Ranks(inspection) = &job.inspection { inspection } else { &none };
    let hosts = of.r.hosts().iter().filter_map(|host| HostName::new(host).ok());
    let ranked = of.r.ranks().iter().zip(hosts).map(|(rank, host)| (view.rank_of(&host, rank), host));
    let left = ranked.filter_map(|(rank, host)| {
        let (is_live, why) = match inspection.get(&rank) {
            Some(Tasks::Gone) if view.up.contains(rank) => return None,
            Some(Tasks::Gone) => (false, "Flux counts the node as offline".to_owned()),
            Some(Tasks::Live(unit)) => (true, format!("{unit} still runs")),
            Some(Tasks::Unknown(why)) => (false, why.clone()),
            None => (false, "its broker was not asked yet".to_owned()),
        };
        Some(Left { host, rank, is_live, why })
    });
    left.collect()
}

fn ranks(left: &[Left]) -> IdSet {
    left.iter().map(|left| left.rank).collect()
}
