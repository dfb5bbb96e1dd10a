//! Part of a swarm: thousands of agents in one process, with real wire and real TLS, each agent a host with a
//! certificate. The agents accept their tasks and report the ends, at once or on command. [`super::swarms`] asks all
//! processes of a swarm.
//!
//! A Start names all hosts of its action. A node reads the list once, but ten thousand nodes in one process would do
//! nothing else. So the swarm decodes the first Start of an action, and recognises the others by their first bytes:
//! they differ in rank and boot only.
//!
//! | command | answers when |
//! |---|---|
//! | `join PORT FIRST COUNT` | COUNT agents, of the ranks from FIRST, dialled PORT, once, and were welcomed |
//! | `join-at NAME ADDRESS FIRST COUNT` | the same; the agents dial ADDRESS, whose certificate is of NAME |
//! | `hold 0\|1` | at once; from now on agents only accept tasks |
//! | `release` | the agents reported the held tasks as ended |
//! | `await WHAT NUMBER` | NUMBER of WHAT were counted: `welcomes`, `starts`, `acks`, or agents that are `connected` |
//! | `count WHAT` | at once, with the number |
//! | `window` | at once, with the redial window of the last Welcome in ms |

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use perilog_agent::link::Window;
use perilog_core::message::{FromAgent, Held, HeldState, Hello, Phase, ToAgent};
use perilog_core::task::{Ended, Start};
use perilog_core::{BootId, HostName, MachineId, Outcome, Rank, TaskId};
use perilog_host::clock;
use perilog_host::link::{Dial, Keepalive, Link, dial};
use perilog_host::tls::ClientTls;
use perilog_proto::{Decoded, Preamble, decode_to_agent, encode_from_agent};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Semaphore, watch};

use crate::authority;
use crate::part;

/// Number of loopback addresses that agents dial: each address has a range of ephemeral ports of its own.
const ADDRESSES: usize = 8;
/// Maximum number of first dials at once; the bench measures only later dials.
const FIRST_DIALS: usize = 128;
/// Number of bytes at the end of a Start in which two Starts of one action may differ: rank and boot with their tags.
const OWN_BYTES: usize = 48;

/// Returns the host name of a rank.
pub(crate) fn host(rank: usize) -> String {
    format!("n{rank}")
}

/// Returns the host names of all ranks as a folded hostlist.
pub(crate) fn hosts(count: usize) -> String {
    format!("n[0-{}]", count - 1)
}

/// Returns the address that the agent of a rank dials.
pub(super) fn address(rank: usize) -> String {
    format!("127.0.0.{}", rank % ADDRESSES + 1)
}

/// Address that the agents of a group dial.
enum Target {
    /// A port of this machine, by [`ADDRESSES`] loopback addresses.
    Port(String),
    /// An address with its port, and the name in the certificate there.
    Address { name: String, address: String },
}

struct Group {
    target: Target,
    directory: PathBuf,
    first: Semaphore,
    welcomes: watch::Sender<u64>,
    /// Number of agents that have a session.
    connected: watch::Sender<u64>,
    starts: watch::Sender<u64>,
    acks: watch::Sender<u64>,
    hold: AtomicBool,
    release: watch::Sender<u64>,
    window_ms: AtomicU64,
    /// The bytes with which all Starts of the last action begin, and the first of these Starts, decoded; `None` before
    /// the first Start.
    last: Mutex<Option<(Bytes, Arc<Start>)>>,
}

pub(crate) fn serve(directory: &Path) -> Result<()> {
    part::raise_nofile()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut group = None;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let words: Vec<&str> = line.split(' ').collect();
            if !part::answer(&execute(&words, directory, &mut group).await) {
                break;
            }
        }
        Ok(())
    })
}

async fn execute(words: &[&str], directory: &Path, joined: &mut Option<Arc<Group>>) -> Result<String> {
    let join = match words {
        ["join", port, first, count] => Some((Target::Port((*port).to_owned()), first, count)),
        ["join-at", name, address, first, count] => {
            let target = Target::Address { name: (*name).to_owned(), address: (*address).to_owned() };
            Some((target, first, count))
        }
        _ => None,
    };
    if let Some((target, first, count)) = join {
        let group = joined.insert(Arc::new(Group::new(target, directory))).clone();
        let first: usize = first.parse().context("a rank")?;
        let count: usize = count.parse().context("a number of agents")?;
        part::room_for(count)?;
        for rank in first..first + count {
            tokio::spawn(Agent::new(group.clone(), rank)?.run());
        }
        return reach(&group.connected, u64::try_from(count)?).await;
    }
    let group = joined.as_ref().context("no agent has joined")?;
    let counter = |what: &str| match what {
        "welcomes" => Ok(&group.welcomes),
        "connected" => Ok(&group.connected),
        "starts" => Ok(&group.starts),
        "acks" => Ok(&group.acks),
        _ => bail!("{what} is not counted"),
    };
    match words {
        ["hold", hold] => group.hold.store(*hold == "1", Ordering::Relaxed),
        ["release"] => group.release.send_modify(|n| *n += 1),
        ["await", what, number] => return reach(counter(what)?, number.parse().context("a number")?).await,
        ["count", what] => return Ok(counter(what)?.borrow().to_string()),
        ["window"] => return Ok(group.window_ms.load(Ordering::Relaxed).to_string()),
        _ => bail!("no such order"),
    }
    Ok("done".to_owned())
}

async fn reach(counter: &watch::Sender<u64>, number: u64) -> Result<String> {
    let mut counts = counter.subscribe();
    let count = counts.wait_for(|count| *count >= number).await.context("a counter that lives as long as its group")?;
    Ok(count.to_string())
}

impl Group {
    fn new(target: Target, directory: &Path) -> Self {
        Self {
            target,
            directory: directory.to_owned(),
            first: Semaphore::new(FIRST_DIALS),
            welcomes: watch::Sender::new(0),
            connected: watch::Sender::new(0),
            starts: watch::Sender::new(0),
            acks: watch::Sender::new(0),
            hold: AtomicBool::new(false),
            release: watch::Sender::new(0),
            window_ms: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }

    /// Returns the Start in a frame; `None` if the frame is another message. Decodes only the first Start of an action.
    /// Recognises the others by their equal first bytes and returns the first one for them, with that one's rank.
    fn start(&self, frame: &Bytes) -> Result<Option<Arc<Start>>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((common, start)) = &*last
            && frame.starts_with(common)
        {
            return Ok(Some(start.clone()));
        }
        let Decoded::Known(ToAgent::Start(start)) = decode_to_agent(frame)? else { return Ok(None) };
        let start = Arc::new(start);
        *last = Some((frame.slice(..frame.len().saturating_sub(OWN_BYTES)), start.clone()));
        Ok(Some(start))
    }
}

/// A simulated agent of the swarm.
struct Agent {
    group: Arc<Group>,
    rank: Rank,
    dial: Dial,
    window: Window,
    hello: Hello,
    /// The task that the agent has accepted and whose end the controller has not acknowledged; `None` if there is none.
    held: Option<Arc<Start>>,
}

impl Agent {
    fn new(group: Arc<Group>, rank: usize) -> Result<Self> {
        let host = host(rank);
        let tls = ClientTls::load(&authority::agent(&group.directory, &host))?;
        let (server_name, address) = match &group.target {
            Target::Port(port) => (authority::SERVER.to_owned(), format!("{}:{port}", address(rank))),
            Target::Address { name, address } => (name.clone(), address.clone()),
        };
        let keepalive = Keepalive::brief(rank as u64);
        let dial = Dial { server_name, keepalive, ..Dial::tls(address, tls) };
        let hello = Hello {
            host: HostName::new(&host)?,
            machine: MachineId::new(&format!("{rank:032x}"))?,
            boot: BootId::new(&uuid::Uuid::from_u128(rank as u128 + 1).to_string())?,
            link: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            actions: None,
            newest: None,
            tasks: Vec::new(),
            more: false,
        };
        Ok(Self { group, rank: Rank(u32::try_from(rank)?), dial, window: Window::default(), hello, held: None })
    }

    /// Connects for ever, as an agent does, with an agent's redial window.
    async fn run(mut self) {
        let group = self.group.clone();
        let mut link = {
            // The semaphore is open as long as its group exists.
            let _turn = group.first.acquire().await;
            dial(&self.dial).await
        };
        loop {
            if let Ok(link) = link {
                // Dials again, however the session ended.
                let mut welcomed = false;
                let _ended = self.session(link, &mut welcomed).await;
                if welcomed {
                    group.connected.send_modify(|n| *n -= 1);
                }
            }
            self.window.close();
            tokio::time::sleep(self.window.pause()).await;
            link = dial(&self.dial).await;
        }
    }

    async fn session(&mut self, mut link: Link, welcomed: &mut bool) -> Result<()> {
        link.writer.send(Preamble::ours("bench").encode()).await?;
        link.reader.next().await?.context("no preamble")?;
        self.hello.link += 1;
        self.hello.tasks = self.held.iter().map(|start| held(start, self.rank)).collect();
        link.writer.send(encode_from_agent(&FromAgent::Hello(self.hello.clone()))).await?;
        let frame = link.reader.next().await?.context("no Welcome")?;
        let Decoded::Known(ToAgent::Welcome { redial_window_ms, .. }) = decode_to_agent(&frame)? else {
            bail!("no Welcome");
        };
        self.window.set(redial_window_ms);
        self.group.window_ms.store(redial_window_ms, Ordering::Relaxed);
        // The count comes after these two, because the commands `hold 0` and `release` follow the count: an agent that
        // reads the hold later may report its end at once, and again at the release.
        let mut release = self.group.release.subscribe();
        let is_held = self.group.hold.load(Ordering::Relaxed);
        self.group.connected.send_modify(|n| *n += 1);
        self.group.welcomes.send_modify(|n| *n += 1);
        *welcomed = true;
        if !is_held {
            // These tasks ended while no controller ran.
            self.finish(&mut link).await?;
        }
        loop {
            let frame = tokio::select! {
                frame = link.reader.next() => frame?.context("ended")?,
                Ok(()) = release.changed() => {
                    self.finish(&mut link).await?;
                    continue;
                }
            };
            self.receive(&frame, &mut link).await?;
        }
    }

    async fn receive(&mut self, frame: &Bytes, link: &mut Link) -> Result<()> {
        if let Some(start) = self.group.start(frame)? {
            ensure!(self.held.is_none(), "two at once");
            let task = TaskId { rank: self.rank, ..start.task };
            self.held = Some(start);
            link.writer.send(encode_from_agent(&FromAgent::Accepted { task, limit_ms: None })).await?;
            if !self.group.hold.load(Ordering::Relaxed) {
                self.finish(link).await?;
            }
            self.group.starts.send_modify(|n| *n += 1);
        } else if let Decoded::Known(ToAgent::Ack { .. }) = decode_to_agent(frame)? {
            self.held = None;
            self.group.acks.send_modify(|n| *n += 1);
        }
        Ok(())
    }

    async fn finish(&mut self, link: &mut Link) -> Result<()> {
        if let Some(start) = &self.held {
            let task = TaskId { rank: self.rank, ..start.task };
            let mut ended = Ended::bare(Outcome::Ok, clock::wall_ms());
            (ended.began_ms, ended.elapsed_ms) = (Some(ended.ended_ms), Some(1));
            link.writer.send(encode_from_agent(&FromAgent::Finished { task, ended: Box::new(ended) })).await?;
        }
        Ok(())
    }
}

/// Returns a running task as a Hello lists it.
fn held(start: &Start, rank: Rank) -> Held {
    let phase = Phase::Running { script: "10-bench".to_owned(), index: 1, of: 1, progress: None };
    Held {
        task: TaskId { rank, ..start.task },
        job: start.job.clone(),
        attempt: start.attempt,
        action: start.action.clone(),
        limit_ms: None,
        userid: start.userid,
        commit: None,
        local: false,
        state: HeldState::Live { phase, age_ms: 1 },
    }
}
