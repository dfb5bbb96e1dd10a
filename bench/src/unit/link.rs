//! Minimal controller on the real wire: welcomes one agent, starts tasks, and acknowledges their ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use perilog_core::message::{FromAgent, ToAgent};
use perilog_core::task::{Ended, Start};
use perilog_core::{
    ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostList, IdSet, JobId, Outcome, Rank, TaskId,
};
use perilog_host::link::{FrameReader, Keepalive, Link, Listener, bind};
use perilog_host::tls::{ServerTls, TlsFiles};
use perilog_proto::{Decoded, Preamble, decode_from_agent, encode_to_agent};
use tokio::sync::mpsc;

use super::recipe::unit;
use super::wait::Waiters;

/// Capacity of the queue of messages to the agent: more than the number of tasks in flight.
const WAITING: usize = 64;
/// Time in milliseconds within which a task may begin. Short, so that the agent may soon forget the tombstones.
const NOT_AFTER_MS: u64 = 30_000;

/// Connection to an agent, for which the bench plays the controller.
#[derive(Debug)]
pub(crate) struct AgentLink {
    pub(crate) boot: BootId,
    send: mpsc::Sender<ToAgent>,
    finished: Arc<Waiters<TaskId, Ended>>,
    unloaded: Arc<Waiters<String, ()>>,
}

/// Opens the listener that the agent will dial.
pub(crate) fn listen(certificates: &str) -> Result<Listener> {
    let file = |name: &str| format!("{certificates}/{name}").into();
    let files = TlsFiles { ca: file("ca.pem"), cert: file("cert.pem"), key: file("key.pem"), crl: None };
    let socket = bind(([0, 0, 0, 0], 5115).into())?;
    Ok(Listener::new(socket, Some(ServerTls::load(&files)?), Keepalive::default())?)
}

impl AgentLink {
    /// Accepts the next agent that dials, reads its Hello, and sends it a Welcome; returns the connection. `unloaded`:
    /// the waiters for units that systemd unloads.
    pub(crate) async fn accept(listener: &Listener, unloaded: Arc<Waiters<String, ()>>) -> Result<Self> {
        let Link { mut reader, mut writer, .. } = listener.next().await.handshake().await?;
        writer.send(Preamble::ours("bench").encode()).await?;
        reader.next().await?.context("no preamble")?;
        let boot = loop {
            let Decoded::Known(FromAgent::Hello(page)) = decode_from_agent(&next(&mut reader).await?)? else {
                continue;
            };
            ensure!(page.tasks.is_empty(), "an agent with tasks");
            if !page.more {
                break page.boot;
            }
        };
        let epoch = Epoch { number: 1, nonce: 1 };
        let welcome = ToAgent::Welcome { epoch, cluster: cluster(), redial_window_ms: 1_000, commit: 1 };
        writer.send(encode_to_agent(&welcome)).await?;
        let (send, mut queue) = mpsc::channel(WAITING);
        let finished = Waiters::new();
        let reported = finished.clone();
        let acks = send.clone();
        tokio::spawn(async move {
            while let Some(message) = queue.recv().await {
                if writer.send(encode_to_agent(&message)).await.is_err() {
                    break;
                }
            }
        });
        // When this ends, a waiting task never gets its end: the measurement has a limit.
        tokio::spawn(async move {
            while let Ok(frame) = next(&mut reader).await {
                if let Ok(Decoded::Known(FromAgent::Finished { task, ended })) = decode_from_agent(&frame) {
                    if acks.send(ToAgent::Ack { task, commit: 1 }).await.is_err() {
                        break;
                    }
                    reported.happened(&task, *ended);
                }
            }
        });
        Ok(Self { boot, send, finished, unloaded })
    }

    /// Starts the task with this number. Waits until the agent has reported the end and systemd has unloaded the unit.
    pub(crate) async fn task(&self, number: u64) -> Result<Ended> {
        let start = start(number, &self.boot);
        let task = start.task;
        let (finished, unloaded) = (self.finished.register(task), self.unloaded.register(unit(&start)));
        self.send.send(ToAgent::Start(start)).await.context("the link is gone")?;
        let ended = finished.await.context("the link is gone")?;
        unloaded.await.context("no client watches units")?;
        ensure!(ended.outcome == Outcome::Ok, "{ended:?}");
        ensure!(ended.steps.len() == 1, "one script was to run: {ended:?}");
        Ok(ended)
    }

    /// Sends Forget for these tasks, as a controller does with closed attempts: otherwise their tombstones would stay,
    /// and the agent would finally refuse new Starts.
    pub(crate) async fn forget(&self, numbers: std::ops::Range<u64>) -> Result<()> {
        let tasks = numbers.map(|number| start(number, &self.boot).task).collect();
        self.send.send(ToAgent::Forget { tasks }).await.context("the link is gone")
    }
}

async fn next(reader: &mut FrameReader) -> Result<bytes::Bytes> {
    reader.next().await?.context("the agent ended the link")
}

fn cluster() -> ClusterId {
    ClusterId::from_name("bench")
}

/// Returns the Start of the task with this number. Each task has another job, because tasks of one job would wait for
/// each other.
pub(crate) fn start(number: u64, boot: &BootId) -> Start {
    let job = JobId::new(&format!("f{number}")).expect("a letter and a number are a job id");
    let action = ActionName::new("prolog").expect("it is one");
    let attempt = Attempt::FIRST;
    let id = ActionId::of(cluster(), &job, attempt, &action);
    Start {
        task: TaskId { action: id, rank: Rank(0) },
        job,
        attempt,
        action,
        boot: boot.clone(),
        not_after_ms: NOT_AFTER_MS,
        ranks: "0".parse::<IdSet>().expect("it is one"),
        hosts: "n0".parse::<HostList>().expect("it is one"),
        userid: None,
        env: BTreeMap::new(),
        timeout_ms: None,
        after: false,
        milestones: Default::default(),
        commit: 1,
    }
}
