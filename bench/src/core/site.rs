//! Simulated site around a real controller's machine: plays the nodes, the resource manager and the release hook. The
//! nodes report accepted and ended tasks in a random order from a seed. Only the machine's own time counts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use perilog_core::controller::io::{
    Effect, FailedNotice, JobAdd, Output, ReleasePolicy, Reply, Request, RunRequest, SessionId,
};
use perilog_core::controller::{Input, Machine, Now, Record, Settings, Snapshot};
use perilog_core::ids::{ActionId, ClusterId, TaskId};
use perilog_core::job::{Terms, Tolerance};
use perilog_core::message::{FromAgent, Held, HeldState, Hello};
use perilog_core::task::{Check, Ended};
use perilog_core::{ActionName, Attempt, HostList, IdSet, JobId, Outcome, Rank, ResourceSet};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{Region, StatsAlloc};

use crate::disk::{Disk, kind};
use crate::nodes::{hello, message, names};
use crate::size;

/// The time (ms since 1970) at which a site begins.
pub(crate) const NOW_MS: u64 = 1_700_000_000_000;
/// Start-grace (ms) of a site. A batch takes a millisecond, and there are more ranks than milliseconds in a minute.
pub(crate) const START_GRACE_MS: u64 = 86_400_000;
/// Number of Hellos in a batch: as many inputs as the controller's writer takes at once.
const BATCH: usize = 1_024;
/// Number of batches after which the simulated resource manager again asks for new entries of the outbox.
const FETCH_EVERY: u64 = 256;

/// Time and work that the machine has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) us: f64,
    pub(crate) batches: u64,
    /// Bytes that the store would have written.
    pub(crate) bytes: u64,
    pub(crate) slowest_us: f64,
}

pub(crate) struct Site<'a> {
    machine: Machine,
    now: Now,
    settings: Settings,
    hosts: HostList,
    ranks: IdSet,
    /// Rank and session of each node.
    nodes: Vec<(u32, SessionId)>,
    random: Rng,
    job: JobId,
    region: Region<'a, std::alloc::System>,
    memory_before: isize,
    memory_most: isize,
    wake_ms: Option<u64>,
    outbox_through: u64,
    pub(crate) released: IdSet,
    pub(crate) finals: u64,
    pub(crate) spent: Spent,
    /// The store to which every batch is committed; `None`: batches are not stored.
    pub(crate) disk: Option<Disk>,
}

impl<'a> Site<'a> {
    /// Builds a site for a job of `count` ranks, whose nodes have all said Hello. The job has every `stride`-th rank
    /// of the cluster.
    pub(crate) fn new(
        count: u32,
        stride: u32,
        policy: ReleasePolicy,
        allocator: &'a StatsAlloc<std::alloc::System>,
    ) -> Result<Self> {
        Self::on(Snapshot::default(), count, stride, policy, allocator)
    }

    /// Builds a site as [`Self::new`] does, whose controller starts on this store.
    pub(crate) fn on(
        store: Snapshot,
        count: u32,
        stride: u32,
        policy: ReleasePolicy,
        allocator: &'a StatsAlloc<std::alloc::System>,
    ) -> Result<Self> {
        let settings = Settings {
            cluster: ClusterId::from_name("bench"),
            start_grace_ms: START_GRACE_MS,
            unreachable_grace_ms: 300_000,
            not_after_ms: 3_600_000,
            probe_ms: 2_000,
            redial_per_second: 2_000,
            timeouts: BTreeMap::new(),
            retention_ms: 30 * 86_400_000,
            keep_attempts: 1_000_000,
            after: vec![action("epilog")?],
            keep_after: action("prolog")?,
            release: [(action("prolog")?, policy), (action("epilog")?, policy)].into(),
            tolerate_lost: false,
            tolerate_timeout: false,
            reboot_cleans: false,
            drain_hook: false,
            release_hook: true,
        };
        let now = Now { mono_ms: 1_000_000, wall_ms: NOW_MS };
        let (machine, _) = Machine::load(store, settings.clone(), 7, now);
        let ranks: IdSet = (0..count).map(|rank| rank * stride).collect();
        let mut site = Self {
            machine,
            now,
            settings,
            hosts: HostList::from_names(names(count))?,
            nodes: ranks.iter().zip((1..).map(SessionId)).collect(),
            ranks,
            random: Rng::with_seed(1),
            job: JobId::new("f2SCALE")?,
            region: Region::new(allocator),
            memory_before: 0,
            memory_most: 0,
            wake_ms: None,
            outbox_through: 0,
            released: IdSet::new(),
            finals: 0,
            spent: Spent::default(),
            disk: None,
        };
        site.come_up()?;
        site.spent = Spent::default();
        site.memory_before = site.allocated();
        Ok(site)
    }

    fn come_up(&mut self) -> Result<()> {
        let hellos: Result<Vec<Input>> = (self.nodes.iter().zip(self.hosts.iter()))
            .map(|((_, session), host)| Ok(message(*session, FromAgent::Hello(hello(host, *session, session.0)?))))
            .collect();
        let mut hellos = hellos?.into_iter();
        loop {
            let batch: Vec<Input> = hellos.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.handle(batch)?;
        }
    }

    /// Makes the first node say Hello again, with `tasks` ended tasks that the store does not know.
    pub(crate) fn greet(&mut self, tasks: u32) -> Result<()> {
        let cluster = self.settings.cluster;
        let held: Result<Vec<Held>> = (0..tasks)
            .map(|number| {
                let (job, name) = (JobId::new(&format!("g{number}"))?, action("epilog")?);
                let id = ActionId::of(cluster, &job, Attempt::FIRST, &name);
                Ok(Held {
                    task: TaskId { action: id, rank: Rank(0) },
                    job,
                    attempt: Attempt::FIRST,
                    action: name,
                    userid: None,
                    commit: None,
                    limit_ms: None,
                    local: false,
                    state: HeldState::Ended,
                })
            })
            .collect();
        let (host, session) = (self.hosts.iter().next().context("no host")?.to_owned(), SessionId(u64::MAX));
        let hello = Hello { tasks: held?, ..hello(&host, SessionId(1), u64::from(tasks) + 2)? };
        self.handle(vec![message(session, FromAgent::Hello(hello))]).map(drop)
    }

    fn allocated(&self) -> isize {
        let now = self.region.change();
        isize::try_from(now.bytes_allocated).unwrap_or(isize::MAX)
            - isize::try_from(now.bytes_deallocated).unwrap_or(isize::MAX)
    }

    /// Returns how many bytes are allocated now beyond those at the time when all nodes had said Hello. Also returns
    /// the highest such number of this call and all earlier calls.
    pub(crate) fn memory(&mut self) -> (isize, isize) {
        let now = self.allocated() - self.memory_before;
        self.memory_most = self.memory_most.max(now);
        (now, self.memory_most)
    }

    /// Hands one batch of inputs to the machine, with a tick if one is due. Adds the CPU time and the bytes for the
    /// store to `spent`; returns the replies.
    fn handle(&mut self, mut inputs: Vec<Input>) -> Result<Vec<Reply>> {
        self.now.mono_ms += 1;
        self.now.wall_ms += 1;
        if self.wake_ms.is_some_and(|at| at <= self.now.mono_ms) {
            self.wake_ms = None;
            inputs.push(Input::Tick);
        }
        let kind = kind(&inputs);
        let began = cpu_us();
        let output = self.machine.handle(inputs, self.now);
        let us = cpu_us() - began;
        self.spent.us += us;
        self.spent.slowest_us = self.spent.slowest_us.max(us);
        self.spent.batches += 1;
        self.record_output(kind, us, output)
    }

    fn record_output(&mut self, kind: &'static str, us: f64, output: Output) -> Result<Vec<Reply>> {
        for record in &output.records {
            self.spent.bytes += size::of(record) as u64;
            if let Record::Event { event, .. } = record
                && event.name() == "release"
            {
                self.release(event.context().map(|context| (&context["ranks"], &context["final"])))?;
            }
        }
        match &mut self.disk {
            Some(disk) => disk.commit(kind, output.records, us)?,
            None => drop(output.records),
        }
        let mut replies = Vec::new();
        for effect in output.effects {
            match effect {
                Effect::WakeAt { mono_ms } => self.wake_ms = Some(mono_ms),
                Effect::Reply { reply, .. } => replies.push(reply.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?),
                _ => {}
            }
        }
        if self.spent.batches.is_multiple_of(BATCH as u64) {
            self.memory();
        }
        Ok(replies)
    }

    fn release(&mut self, reported: Option<(&serde_json::Value, &serde_json::Value)>) -> Result<()> {
        let Some((ranks, last)) = reported else { bail!("a release of nothing") };
        let ranks: IdSet = ranks.as_str().unwrap_or_default().parse()?;
        ensure!(ranks.is_disjoint(&self.released), "ranks are released twice");
        self.released.extend_with(&ranks);
        self.finals += u64::from(last == true);
        Ok(())
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply> {
        let mut replies = self.handle(vec![Input::Request { client: 1, uid: 0, request }])?;
        replies.extend(self.go_on()?);
        replies.into_iter().next().ok_or_else(|| anyhow::anyhow!("no answer"))
    }

    /// Adds an attempt of the job with the tolerance `tolerate`, such as `10%`. The nodes of its R have 64, 96 or 128
    /// cores, so R has several parts.
    pub(crate) fn add(&mut self, attempt: u64, tolerate: &str) -> Result<()> {
        let kind = |n: u32| format!("{{\"core\":\"0-{}\"}}", [63, 95, 127][n as usize]);
        let of = |n: u32| self.ranks.iter().filter(|rank| rank / 16 % 3 == n).collect::<IdSet>();
        let lite: Vec<String> =
            (0..3).map(|n| format!("{{\"rank\":\"{}\",\"children\":{}}}", of(n), kind(n))).collect();
        let r = format!(
            "{{\"version\":1,\"execution\":{{\"R_lite\":[{}],\"nodelist\":[\"{}\"],\
             \"starttime\":0.0,\"expiration\":0.0,\"properties\":{{\"big\":\"{}\"}}}}}}",
            lite.join(","),
            self.hosts,
            of(2)
        );
        let r = Some(Box::new(ResourceSet::from_json(&r)?));
        let terms = Terms { r, tolerate: Some(tolerate.parse::<Tolerance>()?), ..Terms::default() };
        let (job, attempt) = (self.job.clone(), Some(Attempt::from_number(attempt)));
        self.ask(Request::JobAdd(Box::new(JobAdd { job, attempt, nodes: None, userid: None, terms, source: None })))?;
        Ok(())
    }

    pub(crate) fn run(&mut self, name: &str) -> Result<()> {
        let (job, action) = (self.job.clone(), action(name)?);
        let run = RunRequest {
            job,
            attempt: None,
            action,
            nodes: None,
            targets: None,
            userid: None,
            env: BTreeMap::new(),
            timeout_ms: Some(60_000),
            known: false,
        };
        self.ask(Request::Run(run))?;
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        self.ask(Request::JobFinish { job: self.job.clone(), attempt: None, targets: None, resources: None })?;
        Ok(())
    }

    pub(crate) fn job(&self) -> JobId {
        self.job.clone()
    }

    pub(crate) fn hosts(&self) -> HostList {
        self.hosts.clone()
    }

    /// Lets each rank report Accepted of its task, then each rank Finished: one rank per batch, in random order. About
    /// `failing` of a hundred ranks report a failed check, which the job may tolerate.
    pub(crate) fn accepted_and_finished(&mut self, name: &str, attempt: u64, failing: u32) -> Result<()> {
        self.accepted(name, attempt)?;
        let wall_ms = self.now.wall_ms;
        self.report_each(name, attempt, |random, task| {
            let bad = random.u32(0..100) < failing;
            let mut ended = Ended::bare(if bad { Outcome::Tolerable } else { Outcome::Ok }, wall_ms);
            ended.elapsed_ms = Some(random.u64(100..5_000));
            if bad {
                let message = format!("mount of {} missing", random.u32(0..4));
                ended.checks.push(Check { check: "lustre".to_owned(), message });
            }
            FromAgent::Finished { task, ended: Box::new(ended) }
        })
    }

    /// Lets each rank report Accepted of its task of the action `name`: one rank per batch, in random order.
    pub(crate) fn accepted(&mut self, name: &str, attempt: u64) -> Result<()> {
        self.report_each(name, attempt, |_, task| FromAgent::Accepted { task, limit_ms: None })
    }

    fn report_each(
        &mut self,
        name: &str,
        attempt: u64,
        mut message_of: impl FnMut(&mut Rng, TaskId) -> FromAgent,
    ) -> Result<()> {
        let id = ActionId::of(self.settings.cluster, &self.job, Attempt::from_number(attempt), &action(name)?);
        let mut order = self.nodes.clone();
        self.random.shuffle(&mut order);
        for (rank, session) in order {
            let frame = message_of(&mut self.random, TaskId { action: id, rank: Rank(rank) });
            self.handle(vec![message(session, frame)])?;
            if self.spent.batches.is_multiple_of(FETCH_EVERY) {
                self.fetch()?;
            }
        }
        Ok(())
    }

    /// Reads the next entries of the outbox, and confirms them, as the resource manager does.
    fn fetch(&mut self) -> Result<()> {
        let after = self.outbox_through;
        if let Reply::Outbox(entries) = self.ask(Request::Outbox { after, limit: BATCH })?
            && let Some(last) = entries.last()
        {
            self.outbox_through = last.sequence;
            self.ask(Request::OutboxApplied { through: last.sequence })?;
        }
        Ok(())
    }

    /// Moves the clock ten minutes ahead: then every batch of releases is due.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.wait_for(600_000)
    }

    /// Moves the clock ahead, and lets the machine do what is due then.
    pub(crate) fn wait_for(&mut self, ms: u64) -> Result<()> {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
        self.handle(Vec::new())?;
        self.go_on().map(drop)
    }

    /// Lets the machine go on with what it has left for later batches; returns the replies.
    fn go_on(&mut self) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        while self.wake_ms.is_some_and(|at| at <= self.now.mono_ms) {
            replies.extend(self.handle(Vec::new())?);
        }
        Ok(replies)
    }

    /// Carries out all pending releases one by one, like a release hook after an outage: the hook's first run fails.
    /// Returns the number of releases.
    pub(crate) fn hook(&mut self) -> Result<u64> {
        let mut count = 0;
        loop {
            let Reply::Outbox(entries) =
                self.ask(Request::Releases { first: Vec::new(), except: BTreeSet::new(), limit: 16 })?
            else {
                bail!("no releases")
            };
            let Some(entry) = entries.first() else { return Ok(count) };
            if count == 0 {
                let why = "exit 1".to_owned();
                self.ask(Request::HookFailed { what: vec![FailedNotice::Release(entry.sequence)], why })?;
            }
            count += 1;
            self.ask(Request::OutboxDone { sequence: entry.sequence })?;
        }
    }
}

fn action(name: &str) -> Result<ActionName> {
    Ok(ActionName::new(name)?)
}

/// Returns this thread's CPU time in microseconds, to leave out other work of this computer.
pub(crate) fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
