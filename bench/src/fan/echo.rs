//! The bare wire: the same frames to the same number of mutually authenticated TLS connections, from a server that
//! neither decodes nor keeps what it receives. A fan-out over this wire can hardly cost less.
//!
//! | command | answers when |
//! |---|---|
//! | `listen COUNT` | at once, with its port |
//! | `go` | every connection was sent a Start and gave two frames back; each is then sent an Ack |

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use perilog_core::message::ToAgent;
use perilog_core::task::Start;
use perilog_core::{ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostList, IdSet, JobId, Rank, TaskId};
use perilog_host::link::{Incoming, Keepalive, Link, Listener, bind};
use perilog_host::tls::ServerTls;
use perilog_proto::{Preamble, StartFan, encode_to_agent};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{mpsc, watch};

use super::swarm;
use crate::{authority, part};

/// Capacity of the queue of frames for one connection. At most a Start and an Ack wait there.
const WAITING: usize = 4;

struct Shared {
    /// The frames of Start and of Ack, by rank.
    frames: Vec<(Bytes, Bytes)>,
    /// Queue of frames to the agent of each connection. The index is the agent's rank: agents get ranks in the order in
    /// which they connect.
    connections: Mutex<Vec<mpsc::Sender<Bytes>>>,
    ended: AtomicUsize,
    rounds: watch::Sender<usize>,
}

pub(crate) fn serve(directory: &Path) -> Result<()> {
    part::raise_nofile()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut shared = None;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            if !part::answer(&execute(&line, directory, &mut shared).await) {
                break;
            }
        }
        Ok(())
    })
}

async fn execute(line: &str, directory: &Path, shared: &mut Option<Arc<Shared>>) -> Result<String> {
    match (line.split_once(' ').unwrap_or((line, "")), &shared) {
        (("listen", count), None) => {
            let count = count.parse().context("a number of agents")?;
            part::room_for(count)?;
            let frames = frames(count)?;
            let new = Arc::new(Shared {
                frames,
                connections: Mutex::default(),
                ended: AtomicUsize::new(0),
                rounds: watch::Sender::new(0),
            });
            *shared = Some(new.clone());
            let socket = bind(([0, 0, 0, 0], 0).into())?;
            let tls = ServerTls::load(&authority::server(directory))?;
            let listener = Listener::new(socket, Some(tls), Keepalive::default())?;
            let port = listener.local_addr()?.port();
            tokio::spawn(async move {
                loop {
                    let incoming = listener.next().await;
                    tokio::spawn(connection(incoming, new.clone()));
                }
            });
            Ok(port.to_string())
        }
        (("go", _), Some(shared)) => {
            let mut rounds = shared.rounds.subscribe();
            rounds.mark_unchanged();
            for (connection, (start, _)) in
                shared.connections.lock().unwrap_or_else(PoisonError::into_inner).iter().zip(&shared.frames)
            {
                connection.try_send(start.clone()).context("a connection is gone")?;
            }
            rounds.changed().await?;
            Ok(rounds.borrow().to_string())
        }
        _ => bail!("no such order"),
    }
}

/// Makes the Start and Ack frames of all ranks beforehand, so that the measured server only sends.
fn frames(count: usize) -> Result<Vec<(Bytes, Bytes)>> {
    let (job, attempt, action) = (JobId::new("f1")?, Attempt::FIRST, ActionName::new("prolog")?);
    let id = ActionId::of(ClusterId::from_name("bench"), &job, attempt, &action);
    let mut ranks = IdSet::new();
    ranks.insert_range(0, u32::try_from(count - 1)?);
    let start = Start {
        task: TaskId { action: id, rank: Rank(0) },
        job,
        attempt,
        action,
        boot: BootId::new(&uuid::Uuid::from_u128(1).to_string())?,
        not_after_ms: 600_000,
        ranks,
        hosts: swarm::hosts(count).parse::<HostList>()?,
        userid: None,
        env: Default::default(),
        timeout_ms: None,
        after: false,
        milestones: Default::default(),
        commit: 1,
    };
    let fan = StartFan::new(&start);
    let frame = |rank: u32| {
        let task = TaskId { action: id, rank: Rank(rank) };
        (fan.for_rank(task.rank, &start.boot, start.commit), encode_to_agent(&ToAgent::Ack { task, commit: 1 }))
    };
    Ok((0..u32::try_from(count)?).map(frame).collect())
}

async fn connection(incoming: Incoming, shared: Arc<Shared>) {
    // The next round notices a lost connection.
    let _gone = talk(incoming, &shared).await;
}

async fn talk(incoming: Incoming, shared: &Shared) -> Result<()> {
    let Link { mut reader, mut writer, .. } = incoming.handshake().await?;
    writer.send(Preamble::ours("echo").encode()).await?;
    for _preamble_and_hello in 0..2 {
        reader.next().await?.context("gone")?;
    }
    let cluster = ClusterId::from_name("bench");
    let epoch = Epoch { number: 1, nonce: 1 };
    let (sender, mut frames) = mpsc::channel(WAITING);
    let rank = {
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(sender.clone());
        connections.len() - 1
    };
    writer.send(encode_to_agent(&ToAgent::Welcome { epoch, cluster, redial_window_ms: 1_000, commit: 1 })).await?;
    let reading = async {
        loop {
            for _accepted_and_finished in 0..2 {
                reader.next().await?.context("gone")?;
            }
            sender.try_send(shared.frames[rank].1.clone()).context("too many frames")?;
            if (shared.ended.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(shared.frames.len()) {
                shared.rounds.send_modify(|n| *n += 1);
            }
        }
    };
    let writing = async {
        while let Some(frame) = frames.recv().await {
            writer.send(frame).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    }
}
