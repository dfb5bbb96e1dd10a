//! The view: the state of Flux and of the controller, as far as the edge knows it.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::DrainRow;
use perilog_core::controller::view::{EdgeAction, EdgeAttempt};
use perilog_core::{ActionName, Attempt, HostList, HostName, IdSet, JobId, ResourceSet};
use perilog_terms::Cap;
use serde_json::Value;

use super::action::{Action, Reference};
use super::external::External;
use super::job::{Allocated, Job};

/// The site's settings for the edge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Maximum time (ms) for which the edge waits until the brokers of a job's hosts are online. For a prolog the time
    /// begins with its verdict; for an epilog, with the end of the job in its eventlog, or with the verdict of its last
    /// action. The edge also waits at most this long before it confirms a drain for the clean-up after a lost job; this
    /// time begins with the request for the drain. Flux and the controller keep these times over restarts.
    pub online_patience_ms: u64,
    /// The external actions that the site configures, by name.
    pub externals: BTreeMap<ActionName, External>,
}

/// A drain that Flux has in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxDrain {
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub site: Site,
    pub cap: Cap,
    /// Whether the view shows all of Flux and of the controller: the controller has answered the `Sync` of Flux's
    /// attempts, and the feed has listed what the controller has.
    pub is_current: bool,
    /// Start time of rank 0's broker (Flux's `broker.starttime`), in seconds since 1970.
    pub starttime: f64,
    pub jobs: BTreeMap<u64, Job>,
    /// Ranks whose brokers are online (Flux's group `broker.online`).
    pub online: IdSet,
    /// Ranks that Flux counts as online when it gives nodes to jobs (`resource.status`). With `[systemd] enable` in
    /// Flux's configuration that is its group `sdmon.online`: a node whose broker is online lacks here while a unit of
    /// an earlier job, or a script, lives on it.
    pub up: IdSet,
    pub ranks: BTreeMap<HostName, u32>,
    pub flux_drains: BTreeMap<HostName, FluxDrain>,
    /// Hosts whose newest drain event in Flux's own log is an undrain.
    pub flux_lifted: BTreeSet<HostName>,
    pub attempts: BTreeMap<(JobId, Attempt), EdgeAttempt>,
    pub drains: BTreeMap<HostName, DrainRow>,
    /// Replies of the controller's feed that are part of a change, in order: the view takes them over with the reply
    /// that completes the change. A verdict must not be seen without the drain that it made.
    pub half: Vec<Value>,
    /// Whether Flux has freed the nodes of a job while their brokers were away. The edge then has to list Flux's
    /// remaining attempts to the controller again (`Sync`).
    pub has_lost: bool,
    /// Attempts that the controller will never accept, with the reason.
    pub refused: BTreeMap<(JobId, Attempt), String>,
}

impl View {
    pub fn new(site: Site) -> Self {
        Self {
            site,
            cap: Cap::none(),
            is_current: false,
            starttime: 0.0,
            jobs: BTreeMap::new(),
            online: IdSet::new(),
            up: IdSet::new(),
            ranks: BTreeMap::new(),
            flux_drains: BTreeMap::new(),
            flux_lifted: BTreeSet::new(),
            attempts: BTreeMap::new(),
            drains: BTreeMap::new(),
            half: Vec::new(),
            has_lost: false,
            refused: BTreeMap::new(),
        }
    }

    /// Sets the instance's ranks and hosts. `r`: all resources of the instance, from `resource.status`.
    pub fn set_ranks(&mut self, r: &ResourceSet) {
        let hosts = r.hosts().iter().filter_map(|host| HostName::new(host).ok());
        self.ranks = hosts.zip(r.ranks().iter()).collect();
    }

    /// Names a job with its hosts in log lines, for example `f2mKAgF7 on n[0-3]`; without hosts, names the job alone.
    pub fn subject(&self, id: u64) -> String {
        let job = perilog_core::Fluid(id).job();
        match self.jobs.get(&id).and_then(|job| job.r.as_deref()) {
            Some(r) => format!("{job} on {}", r.hosts()),
            None => job.to_string(),
        }
    }

    pub(super) fn attempt(&self, of: &Allocated<'_>) -> Option<&EdgeAttempt> {
        self.attempts.get(&(of.job.clone(), of.attempt))
    }

    /// Returns the job's hosts whose brokers are offline.
    pub(super) fn away(&self, of: &Allocated<'_>) -> Vec<HostName> {
        self.hosts_without(of, |rank| self.online.contains(rank))
    }

    /// Returns the job's hosts whose brokers are offline, or that Flux counts as offline for another reason.
    pub(super) fn down(&self, of: &Allocated<'_>) -> Vec<HostName> {
        self.hosts_without(of, |rank| self.online.contains(rank) && self.up.contains(rank))
    }

    fn hosts_without(&self, of: &Allocated<'_>, has: impl Fn(u32) -> bool) -> Vec<HostName> {
        let hosts = of.r.hosts().iter().filter_map(|host| HostName::new(host).ok());
        let ranked = of.r.ranks().iter().zip(hosts);
        ranked.filter(|(rank, host)| !has(self.rank_of(host, *rank))).map(|(_, host)| host).collect()
    }

    /// Returns the present rank of a host, which may differ from its rank in a job's R (`in_r`) after a reconfiguration
    /// of the instance. A host without a present rank counts by its rank in R.
    pub(super) fn rank_of(&self, host: &HostName, in_r: u32) -> u32 {
        self.ranks.get(host).copied().unwrap_or(in_r)
    }

    /// Returns `true` if Flux still has to confirm a drain of this host.
    pub(super) fn is_draining(&self, host: &HostName) -> bool {
        self.drains.get(host).is_some_and(|drain| !drain.confirmed && !drain.lifted)
    }

    /// Returns `true` if a host of this attempt is not yet cleaned up after another attempt that has ended.
    pub(super) fn is_behind(&self, of: &Allocated<'_>) -> bool {
        let hosts: BTreeSet<&str> = of.r.hosts().iter().collect();
        let others = self.attempts.values().filter(|other| (&other.job, other.attempt) != (&of.job, of.attempt));
        let mut over = others.filter(|other| !other.complete && other.hold.is_empty());
        let is_left = over.any(|other| {
            let left = other.ranks.iter().zip(other.hosts.iter()).filter(|(rank, _)| !other.released.contains(*rank));
            left.into_iter().any(|(_, host)| hosts.contains(host))
        });
        // Flux has freed nodes of these jobs, and perilog does not know yet that the jobs have ended.
        let freed = self.jobs.values().filter(|job| job.is_in_housekeeping()).filter_map(Job::held);
        let is_held = |freed: &Allocated<'_>| match self.attempt(freed) {
            Some(known) => !known.hold.is_empty(),
            None => !self.refused.contains_key(&(freed.job.clone(), freed.attempt)),
        };
        is_left || freed.filter(is_held).any(|freed| freed.r.hosts().iter().any(|host| hosts.contains(host)))
    }

    /// Forgets a job that is inactive in Flux, unless its epilog is housekeeping and perilog has still to clean up.
    pub fn settle(&mut self, id: u64) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.clean) else { return };
        let of = job.held().map(|held| (held.job, held.attempt));
        let is_open = of.is_some_and(|of| self.attempts.get(&of).is_none_or(|attempt| !attempt.complete));
        if !is_open {
            self.jobs.remove(&id);
            let job = perilog_core::Fluid(id).job();
            self.attempts.retain(|(of, _), attempt| *of != job || !attempt.complete);
        }
    }

    /// Updates the view at once by an action that Flux or the controller has accepted, or refused for good. The reports
    /// of Flux and of the controller show an accepted change a little later.
    pub fn did(&mut self, action: &Action) {
        match action {
            Action::Finish { id, what, .. } => {
                if let Some(job) = self.jobs.get_mut(id) {
                    match what {
                        Reference::Prolog => job.prolog.asked = true,
                        Reference::Epilog => job.epilog.asked = true,
                    }
                }
            }
            Action::Post { id, mark, .. } => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.reported.insert(mark.clone());
                }
            }
            Action::Cancel { id, name, .. } => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.cancel_asked.insert(name.clone());
                }
            }
            Action::Drain { host, reason, .. } => {
                self.flux_lifted.remove(host);
                self.flux_drains.insert(host.clone(), FluxDrain { reason: reason.clone() });
            }
            Action::Undrain { host } => {
                self.flux_drains.remove(host);
            }
            // The controller itself reports the final state of all these, a moment later.
            Action::Add { id, job, attempt } => {
                let added = self.jobs.get(id).and_then(Job::held).map(|held| added(&held));
                self.attempts
                    .entry((job.clone(), *attempt))
                    .or_insert_with(|| added.unwrap_or_else(|| unknown(job, *attempt)));
            }
            Action::Run { job, attempt, what, .. } => self.begins(job, *attempt, what.as_str()),
            Action::Start { job, attempt, name, .. } => self.begins(job, *attempt, name.as_str()),
            Action::DropHold { id, job, attempt } => {
                if let Some(known) = self.attempts.get_mut(&(job.clone(), *attempt)) {
                    known.hold = IdSet::new();
                }
                // The nodes of this job are open to other jobs, and no housekeeping waits there. The controller drains
                // the nodes until they are clean, as for a job that Flux has lost.
                if self.jobs.get(id).is_some_and(Job::is_freed_unseen) {
                    self.jobs.remove(id);
                    self.has_lost = true;
                }
            }
            Action::Notified { host, notice_id, lifted } => match self.drains.get_mut(host) {
                Some(drain) if drain.notice_id != *notice_id || drain.lifted != *lifted => {}
                Some(drain) if !lifted => drain.confirmed = true,
                _ => drop(self.drains.remove(host)),
            },
            Action::Lifted { host, .. } => drop(self.drains.remove(host)),
            // The answers say more: see `Job::found`.
            Action::Inspect { .. } => {}
        }
    }

    fn begins(&mut self, job: &JobId, attempt: Attempt, name: &str) {
        if let Some(known) = self.attempts.get_mut(&(job.clone(), attempt))
            && !known.actions.iter().any(|action| action.name.as_str() == name)
        {
            known.actions.extend(begun(name));
        }
    }
}

/// Returns the attempt as the controller's feed shows it right after `JobAdd`: the job holds all ranks, and no action
/// has begun.
fn added(of: &Allocated<'_>) -> EdgeAttempt {
    EdgeAttempt {
        ranks: of.r.ranks().clone(),
        hosts: of.r.hosts().clone(),
        hold: of.r.ranks().clone(),
        ..unknown(&of.job, of.attempt)
    }
}

fn unknown(job: &JobId, attempt: Attempt) -> EdgeAttempt {
    EdgeAttempt {
        job: job.clone(),
        attempt,
        ranks: IdSet::new(),
        hosts: HostList::new(),
        open: true,
        hold: IdSet::new(),
        released: IdSet::new(),
        complete: false,
        abandoned: false,
        actions: Vec::new(),
        milestones: Vec::new(),
    }
}

fn begun(name: &str) -> Option<EdgeAction> {
    let (bad, bad_hosts, failures) = (IdSet::new(), HostList::new(), Vec::new());
    let (name, bad_resources) = (ActionName::new(name).ok()?, BTreeMap::new());
    Some(EdgeAction { name, verdict: None, ended_ms: None, bad, bad_hosts, bad_resources, failures })
}
