//! The test bench: a machine that gets batches and returns effects, and a store that applies every committed record.

mod attempts;
mod boots;
mod configured;
mod drains;
mod durable;
mod edges;
mod ends;
mod external;
mod generation;
mod history;
mod holds;
mod keep;
mod limits;
mod lists;
mod milestones;
mod node_forget;
mod notices;
mod operator;
mod order;
mod overview;
mod pages;
mod quota;
mod recovery;
mod release;
mod retention;
mod scale;
mod sessions;
mod settling;
mod shown;
mod spelling;
mod superseded;
mod tolerance;
mod trace;
mod unknown;
mod unlisted;

use std::collections::BTreeMap;

use crate::controller::io::*;
use crate::controller::machine::Machine;
use crate::controller::state::away::Holding;
use crate::eventlog::Event;
use crate::ids::*;
use crate::message::*;
use crate::outcome::{ExitStatus, Failure, Outcome};
use crate::task::{Ended, Reboot, Start, Step};

pub(super) struct Bench {
    pub(super) m: Machine,
    pub(super) now: Now,
    pub(super) store: Snapshot,
    pub(super) events: Vec<(JobId, u64, Event)>,
    pub(super) settings: Settings,
    /// Lines that the controller wrote to its journal. A line about a host begins with the host's name and a colon.
    pub(super) notes: Vec<String>,
    /// Which jobs stay in memory although they have ended: none, unless a test sets it.
    pub(super) holding: Holding,
    sessions: u64,
}

pub(super) fn settings() -> Settings {
    Settings {
        cluster: ClusterId::from_name("bench"),
        start_grace_ms: 60_000,
        unreachable_grace_ms: 300_000,
        not_after_ms: 3_600_000,
        probe_ms: 2_000,
        redial_per_second: 2_000,
        timeouts: BTreeMap::new(),
        retention_ms: 30 * 86_400_000,
        keep_attempts: 1000,
        after: vec![ActionName::new("epilog").unwrap()],
        keep_after: ActionName::new("prolog").unwrap(),
        release: BTreeMap::new(),
        tolerate_lost: false,
        tolerate_timeout: false,
        drain_hook: false,
        reboot_cleans: false,
        release_hook: false,
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        Self::load(Snapshot::default(), now)
    }

    pub(super) fn load(store: Snapshot, now: Now) -> Self {
        Self::load_with(store, settings(), Holding::NONE, now)
    }

    fn load_with(store: Snapshot, settings: Settings, holding: Holding, now: Now) -> Self {
        crate::switch_on_defect!(crate::defect::chosen());
        trace::is_read_as_written(&store);
        trace::is_read_as_written(&settings);
        let (m, output) = Machine::load(store.without_ended(holding), settings.clone(), 7, now);
        let mut bench = Self { m, now, store, events: Vec::new(), settings, notes: Vec::new(), sessions: 0, holding };
        bench.commit(output);
        bench
    }

    /// Kills the controller, starts it again on what its store has committed, and lets time pass until the gate opens.
    pub(super) fn restart(self) -> Self {
        let mut bench = self.restart_settling();
        bench.pass(10_000);
        bench
    }

    /// Kills the controller, and starts it again on what its store has committed. The gate is still shut if the store
    /// has nodes: the controller waits for their Hello.
    pub(super) fn restart_settling(self) -> Self {
        let now = Now { mono_ms: self.now.mono_ms + 1, wall_ms: self.now.wall_ms + 1 };
        let (events, sessions) = (self.events, self.sessions);
        Self { events, sessions, ..Self::load_with(self.store, self.settings, self.holding, now) }
    }

    fn commit(&mut self, output: Output) -> Vec<Effect> {
        for record in &output.records {
            if let Record::Event { job, sequence, event } = record {
                if matches!(event.name(), "release" | "exception") {
                    assert!(matches!(crate::eventlog::JobEvent::read(event), Ok(Some(_))), "{event:?}");
                }
                self.events.push((job.clone(), *sequence, event.clone()));
            }
            self.store.apply(record);
        }
        self.m.is_stored_in(&self.store);
        // Other tests check the commit numbers of messages.
        let unmarked = |mut effect| {
            match &mut effect {
                Effect::Send { message, .. } => message.set_commit(0),
                Effect::Fan { start, .. } => start.commit = 0,
                _ => {}
            }
            effect
        };
        self.notes.extend(output.effects.iter().filter_map(|effect| match effect {
            Effect::Note { host, text, .. } => {
                Some(host.as_ref().map_or_else(|| text.clone(), |host| format!("{host}: {text}")))
            }
            _ => None,
        }));
        output
            .effects
            .into_iter()
            .map(unmarked)
            .filter(|e| !matches!(e, Effect::WakeAt { .. } | Effect::Publish { .. } | Effect::Note { .. }))
            .collect()
    }

    pub(super) fn batch(&mut self, inputs: Vec<Input>) -> Vec<Effect> {
        inputs.iter().for_each(trace::is_read_as_written);
        self.now.mono_ms += 1;
        self.now.wall_ms += 1;
        self.fetch(&inputs);
        let output = self.m.handle(inputs, self.now);
        let effects = self.commit(output);
        // Jobs leave memory as soon as they have ended: each test also shows that no client notices.
        if let Some(pinned) = self.m.facts().pinned(self.holding) {
            self.m.jobs.evict(&pinned, self.holding, &mut self.m.cx);
        }
        effects
    }

    /// Hands the machine what a batch with these inputs needs of the store.
    pub(super) fn fetch(&mut self, inputs: &[Input]) {
        for input in inputs {
            let needs = self.m.facts().needs(input, self.now);
            let fetched = self.store.fetch(&needs);
            self.m.jobs.take_in(fetched, self.now, &mut self.m.cx);
        }
    }

    pub(super) fn receives(&mut self, session: SessionId, message: FromAgent) -> Vec<Effect> {
        self.batch(vec![from(session, message)])
    }

    /// Lets time pass, then sends a tick.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<Effect> {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
        self.batch(vec![Input::Tick])
    }

    pub(super) fn session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId(self.sessions)
    }

    /// Connects a node that holds the tasks `held`. Returns the node's session, and the effects after the Welcome.
    pub(super) fn up(&mut self, host: &str, boot: &str, held: Vec<Held>) -> (SessionId, Vec<Effect>) {
        let session = self.session();
        let mut effects = self.receives(session, FromAgent::Hello(hello(host, boot, session.0, held)));
        assert!(matches!(effects.first(), Some(Effect::Send { message: ToAgent::Welcome { .. }, .. })), "{effects:?}");
        effects.remove(0);
        // Answers a liveness probe of the older session at once. Tests of two machines with one name do not use this
        // helper.
        let probe = |effect: &Effect| match effect {
            Effect::Send { session, message: ToAgent::Probe { nonce } } => Some((*session, *nonce)),
            _ => None,
        };
        let probes: Vec<(SessionId, u64)> = effects.iter().filter_map(probe).collect();
        effects.retain(|effect| probe(effect).is_none());
        for (asked, nonce) in probes {
            effects.extend(self.receives(asked, FromAgent::Probed { nonce }));
        }
        (session, effects)
    }

    pub(super) fn ask(&mut self, request: Request) -> (Result<Reply, Refusal>, Vec<Effect>) {
        let mut effects = self.batch(vec![Input::Request { client: 1, uid: 0, request }]);
        let at = effects.iter().position(|e| matches!(e, Effect::Reply { .. })).expect("a request is answered");
        let Effect::Reply { reply, .. } = effects.remove(at) else { unreachable!() };
        (reply, effects)
    }

    pub(super) fn run(&mut self, action: &str, job: &str, nodes: &str) -> Vec<Effect> {
        let (reply, effects) = self.ask(Request::Run(request(action, job, Some(nodes), None)));
        assert!(matches!(reply, Ok(Reply::Running { .. })), "{reply:?}");
        effects
    }

    pub(super) fn action(&self, action: &str, job: &str, attempt: u64) -> &ActionRow {
        let id = id(action, job, attempt);
        self.store.actions.iter().find(|a| a.id == id).expect("the action is stored")
    }

    pub(super) fn outcome(&self, task: TaskId) -> Outcome {
        self.store.ranks.iter().find(|r| r.task == task).expect("the rank is stored").ended.outcome.clone()
    }

    /// Returns the names of the events in a job's log, in order.
    pub(super) fn reported(&self, job: &str) -> Vec<&str> {
        self.events.iter().filter(|(j, _, _)| j.as_str() == job).map(|(_, _, e)| e.name()).collect()
    }
}

pub(super) fn from(session: SessionId, message: FromAgent) -> Input {
    from_address(session, "10.0.0.9", message)
}

pub(super) fn from_address(session: SessionId, address: &str, message: FromAgent) -> Input {
    Input::Message { session, names: None, peer: format!("{address}:{}", 5_000 + session.0), message }
}

/// Returns `true` if the effects refuse the session `of`: the controller sends the reason, and closes the session.
pub(super) fn is_turned_away(effects: &[Effect], of: SessionId) -> bool {
    matches!(effects, [Effect::Send { session, message: ToAgent::TurnedAway { .. } },
        Effect::Close { session: ended, .. }]
        if *session == of && *ended == of)
}

pub(super) fn hello(host: &str, boot: &str, link: u64, tasks: Vec<Held>) -> Hello {
    Hello {
        host: HostName::new(host).unwrap(),
        machine: MachineId::new(&format!("machine-{}", host.replace('.', "-"))).unwrap(),
        boot: BootId::new(boot).unwrap(),
        link,
        version: "0".into(),
        newest: None,
        actions: None,
        tasks,
        more: false,
    }
}

pub(super) fn request(action: &str, job: &str, nodes: Option<&str>, attempt: Option<u64>) -> RunRequest {
    RunRequest {
        job: JobId::new(job).unwrap(),
        attempt: attempt.map(Attempt::from_number),
        action: ActionName::new(action).unwrap(),
        nodes: nodes.map(|n| n.parse().unwrap()),
        targets: None,
        userid: None,
        env: BTreeMap::new(),
        timeout_ms: None,
        known: false,
    }
}

/// Returns the request by which a service sends this report.
pub(super) fn reports(report: Report) -> Request {
    match report.kind {
        ReportKind::Renew => Request::ActionRenew(Box::new(report)),
        ReportKind::Milestone(_) => Request::ActionMilestone(Box::new(report)),
        _ => Request::ActionReport(Box::new(report)),
    }
}

pub(super) fn which(job: &str, targets: Option<&str>) -> Which {
    let targets = targets.map(|t| t.parse().unwrap());
    Which { job: JobId::new(job).unwrap(), attempt: None, action: None, targets, resources: None }
}

pub(super) fn id(action: &str, job: &str, attempt: u64) -> ActionId {
    let (job, action) = (JobId::new(job).unwrap(), ActionName::new(action).unwrap());
    ActionId::of(settings().cluster, &job, Attempt::from_number(attempt), &action)
}

pub(super) fn task(action: &str, job: &str, rank: u32) -> TaskId {
    TaskId { action: id(action, job, 0), rank: Rank(rank) }
}

pub(super) fn ended(outcome: Outcome) -> Ended {
    Ended { elapsed_ms: Some(5), ..Ended::bare(outcome, 1) }
}

/// Returns the end of a task for which no script was configured.
pub(super) fn empty() -> Ended {
    Ended { empty: true, ..ended(Outcome::Ok) }
}

/// Returns the step of a script that ended with exit status 0.
pub(super) fn step() -> Step {
    Step {
        script: "10-a".to_owned(),
        digest: String::new(),
        attempt: 1,
        began_ms: 0,
        elapsed_ms: 1,
        status: Some(ExitStatus::Exit(0)),
        tolerable: false,
        timed_out: false,
    }
}

pub(super) fn exit(code: u8) -> Outcome {
    Outcome::Failed { why: Failure::Exit(code) }
}

pub(super) fn finished(task: TaskId, outcome: Outcome) -> FromAgent {
    FromAgent::Finished { task, ended: Box::new(ended(outcome)) }
}

pub(super) fn held(action: &str, job: &str, rank: u32, state: HeldState) -> Held {
    Held {
        task: task(action, job, rank),
        job: JobId::new(job).unwrap(),
        attempt: Attempt::FIRST,
        action: ActionName::new(action).unwrap(),
        limit_ms: None,
        userid: None,
        commit: None,
        local: false,
        state,
    }
}

pub(super) fn live() -> HeldState {
    HeldState::Live { phase: Phase::Starting, age_ms: 10 }
}

/// Returns the session and rank of each Start among the effects, whether sent to one node or to several at once.
pub(super) fn starts(effects: &[Effect]) -> Vec<(SessionId, u32)> {
    let mut all = Vec::new();
    for effect in effects {
        match effect {
            Effect::Fan { to, .. } => all.extend(to.iter().map(|(s, r, _)| (*s, r.0))),
            Effect::Send { session, message: ToAgent::Start(Start { task, .. }) } => all.push((*session, task.rank.0)),
            _ => {}
        }
    }
    all
}

pub(super) fn send(session: SessionId, message: ToAgent) -> Effect {
    Effect::Send { session, message }
}

pub(super) fn ack(session: SessionId, task: TaskId) -> Effect {
    send(session, ToAgent::Ack { task, commit: 0 })
}

pub(super) fn is_cancel(effect: &Effect, of: TaskId) -> bool {
    matches!(effect, Effect::Send { message: ToAgent::Cancel { task, .. }, .. } if *task == of)
}
