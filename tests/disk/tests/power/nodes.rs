//! Agents of several nodes: each accepts every task, ends it at once, and repeats the end until the controller has
//! acknowledged it, over any number of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use perilog_core::message::{FromAgent, Held, HeldState, Hello, ToAgent};
use perilog_core::outcome::{ExitStatus, Failure, Outcome};
use perilog_core::task::{Ended, Start, Step, Tail};
use perilog_core::{BootId, HostName, MachineId, TaskId};
use perilog_disk::run::Marks;
use perilog_host::link::{Dial, Link, dial};
use perilog_host::tls::ClientTls;
use perilog_proto::{Decoded, Preamble, decode_to_agent, encode_from_agent, negotiate};

use crate::PAUSE;

/// Time at which the first script of each task began, in milliseconds since 1970.
const BEGAN_MS: u64 = 1_552_593_349_000;

type Failed = Box<dyn std::error::Error + Send + Sync>;

pub(crate) struct Node {
    host: String,
    dial: Dial,
    marks: Arc<Marks>,
    random: Rng,
    /// Number of this process's sessions so far.
    sessions: u64,
    /// Tasks whose end the controller has not acknowledged.
    held: BTreeMap<TaskId, (Start, Box<Ended>)>,
}

impl Node {
    pub(crate) fn new(host: &str, address: String, tls: ClientTls, seed: u64, marks: Arc<Marks>) -> Self {
        let (dial, random) = (Dial::tls(address, tls), Rng::with_seed(seed));
        Self { host: host.to_owned(), dial, marks, random, sessions: 0, held: BTreeMap::new() }
    }

    /// Keeps a session with the controller, for ever.
    pub(crate) async fn run(mut self) {
        loop {
            // The controller may be away, or not know this node yet.
            let _ended = self.session().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn session(&mut self) -> Result<(), Failed> {
        let mut link = dial(&self.dial).await?;
        link.writer.send(Preamble::ours("test").encode()).await?;
        let Some(preamble) = link.reader.next().await? else { return Ok(()) };
        negotiate(&preamble)?;
        self.sessions += 1;
        let hello = FromAgent::Hello(self.hello());
        link.writer.send(encode_from_agent(&hello)).await?;
        while let Some(frame) = link.reader.next().await? {
            if let Decoded::Known(message) = decode_to_agent(&frame)? {
                self.answer(&mut link, message).await?;
            }
        }
        Ok(())
    }

    async fn answer(&mut self, link: &mut Link, message: ToAgent) -> Result<(), Failed> {
        let answers = match message {
            ToAgent::Welcome { .. } => self.held.iter().map(|(task, (_, ended))| finished(*task, ended)).collect(),
            ToAgent::Start(start) => {
                let task = start.task;
                let new = self.end();
                let ended = self.held.entry(task).or_insert((start, new)).1.clone();
                vec![FromAgent::Accepted { task, limit_ms: None }, finished(task, &ended)]
            }
            ToAgent::Ack { task, .. } => {
                if let Some((start, ended)) = self.held.remove(&task) {
                    let (job, attempt, action, rank) = (start.job, start.attempt, start.action, start.task.rank);
                    let outcome = ended.outcome.as_str();
                    self.marks.acknowledged(&format!("end {job} {attempt} {action} {rank} {outcome}"))?;
                }
                Vec::new()
            }
            ToAgent::Probe { nonce } => vec![FromAgent::Probed { nonce }],
            _ => Vec::new(),
        };
        for answer in answers {
            link.writer.send(encode_from_agent(&answer)).await?;
        }
        Ok(())
    }

    fn hello(&self) -> Hello {
        let held = |(start, _): &(Start, Box<Ended>)| Held {
            task: start.task,
            job: start.job.clone(),
            attempt: start.attempt,
            action: start.action.clone(),
            limit_ms: None,
            commit: None,
            userid: start.userid,
            local: false,
            state: HeldState::Ended,
        };
        Hello {
            host: HostName::new(&self.host).unwrap(),
            machine: MachineId::new("0123456789abcdef0123456789abcdef").unwrap(),
            boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a").unwrap(),
            link: self.sessions,
            version: "0.1.0".to_owned(),
            actions: None,
            newest: None,
            tasks: self.held.values().map(held).collect(),
            more: false,
        }
    }

    /// Returns how a task ends: one in six fails.
    fn end(&mut self) -> Box<Ended> {
        let failed = self.random.u8(..6) == 0;
        let outcome = if failed { Outcome::Failed { why: Failure::Exit(3) } } else { Outcome::Ok };
        let mut ended = Ended::bare(outcome, BEGAN_MS + 500);
        (ended.began_ms, ended.elapsed_ms) = (Some(BEGAN_MS), Some(500));
        ended.steps = vec![Step {
            script: "10-mount".to_owned(),
            digest: "0".repeat(64),
            attempt: 1,
            began_ms: BEGAN_MS,
            elapsed_ms: 500,
            status: Some(ExitStatus::Exit(if failed { 3 } else { 0 })),
            tolerable: false,
            timed_out: false,
        }];
        if failed {
            let text = "x".repeat(self.random.usize(..4_000));
            ended.tails = vec![Tail { script: "10-mount".to_owned(), text }];
        }
        Box::new(ended)
    }
}

fn finished(task: TaskId, ended: &Ended) -> FromAgent {
    FromAgent::Finished { task, ended: Box::new(ended.clone()) }
}
