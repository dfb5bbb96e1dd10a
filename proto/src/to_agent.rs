//! Messages from the controller to an agent: encodes and decodes their numbers and bodies.

use bytes::Bytes;
use perilog_core::message::ToAgent;

use crate::bounds::{MAX_FORGET, TEXT, clip};
use crate::error::{At, DecodeError, Fault, need};
use crate::fan::StartFan;
use crate::frame::{Decoded, open, record, seal};
use crate::wire::{Ask, Epoch, Key, Start, Task, Uuid, cluster};

const WELCOME: u16 = 1;
const TURNED_AWAY: u16 = 2;
pub(crate) const START: u16 = 3;
const BEGIN: u16 = 4;
const CANCEL: u16 = 5;
const SIGNAL: u16 = 6;
const ACK: u16 = 7;
const FORGET: u16 = 8;
const PROBE: u16 = 9;
const ASK: u16 = 10;
const UNSUPPORTED: u16 = 11;
const BOOT_EXPECTED: u16 = 12;

#[rustfmt::skip]
const NAMES: [&str; 12] =
    ["Welcome", "TurnedAway", "Start", "Begin", "Cancel", "Signal", "Ack", "Forget", "Probe", "Ask", "Unsupported",
     "BootExpected"];

#[derive(Clone, PartialEq, prost::Message)]
struct Welcome {
    #[prost(message, optional, tag = "1")]
    epoch: Option<Epoch>,
    #[prost(bytes = "vec", tag = "2")]
    cluster: Uuid,
    #[prost(uint64, tag = "3")]
    redial_window_ms: u64,
    /// Number of the controller's last commit; 0 if an older controller omits the field.
    #[prost(uint64, tag = "4")]
    commit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TurnedAway {
    #[prost(string, tag = "1")]
    why: String,
}

/// The body of the messages Begin and BootExpected: the task alone.
#[derive(Clone, PartialEq, prost::Message)]
struct OfTask {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Cancel {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    #[prost(message, optional, tag = "2")]
    key: Option<Key>,
    #[prost(string, tag = "3")]
    why: String,
    /// Number of the controller's newest commit when it sent the message; 0 if an older controller omits the field.
    #[prost(uint64, tag = "4")]
    commit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Ack {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    /// Number of the controller's newest commit when it sent the message; 0 if an older controller omits the field.
    #[prost(uint64, tag = "2")]
    commit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Signal {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    #[prost(uint32, tag = "2")]
    signal: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Forget {
    #[prost(message, repeated, tag = "1")]
    tasks: Vec<Task>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Probe {
    #[prost(fixed64, tag = "1")]
    nonce: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(uint64, tag = "1")]
    question: u64,
    #[prost(message, optional, tag = "2")]
    ask: Option<Ask>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unsupported {
    #[prost(uint32, tag = "1")]
    message: u32,
}

/// Encodes a message as a frame of at most [`crate::MAX_MESSAGE`] bytes.
pub fn encode_to_agent(message: &ToAgent) -> Bytes {
    let of_task = |task| OfTask { task: Some(Task::of(task)) };
    match message {
        ToAgent::Welcome { epoch, cluster, redial_window_ms, commit } => seal(
            WELCOME,
            &Welcome {
                epoch: Some(Epoch::of(*epoch)),
                cluster: cluster.0.as_bytes().to_vec(),
                redial_window_ms: *redial_window_ms,
                commit: *commit,
            },
        ),
        ToAgent::TurnedAway { why } => seal(TURNED_AWAY, &TurnedAway { why: clip(why, TEXT) }),
        ToAgent::Start(start) => StartFan::new(start).for_rank(start.task.rank, &start.boot, start.commit),
        ToAgent::Begin { task } => seal(BEGIN, &of_task(*task)),
        ToAgent::Cancel { task, job, attempt, action, why, commit } => seal(
            CANCEL,
            &Cancel {
                task: Some(Task::of(*task)),
                key: Some(Key::of(job, *attempt, action)),
                why: clip(why, TEXT),
                commit: *commit,
            },
        ),
        ToAgent::Signal { task, signal } => {
            seal(SIGNAL, &Signal { task: Some(Task::of(*task)), signal: (*signal).into() })
        }
        ToAgent::Ack { task, commit } => seal(ACK, &Ack { task: Some(Task::of(*task)), commit: *commit }),
        ToAgent::BootExpected { task } => seal(BOOT_EXPECTED, &of_task(*task)),
        ToAgent::Forget { tasks } => {
            seal(FORGET, &Forget { tasks: tasks.iter().take(MAX_FORGET).map(|task| Task::of(*task)).collect() })
        }
        ToAgent::Probe { nonce } => seal(PROBE, &Probe { nonce: *nonce }),
        ToAgent::Ask { question, ask } => seal(ASK, &Question { question: *question, ask: Some(Ask::of(ask)) }),
        ToAgent::Unsupported { message } => seal(UNSUPPORTED, &Unsupported { message: *message }),
    }
}

/// Decodes a frame that the controller sent.
///
/// # Errors
/// [`DecodeError`] names the malformed field, if one field is at fault; the agent then ends the session.
pub fn decode_to_agent(frame: &[u8]) -> Result<Decoded<ToAgent>, DecodeError> {
    open(frame, |number| NAMES.get(usize::from(number).wrapping_sub(1)).copied(), read)
}

fn read(number: u16, body: &[u8]) -> Result<ToAgent, Fault> {
    let task = |task: Option<Task>| need(task).and_then(|task| task.value()).at("task");
    Ok(match number {
        WELCOME => {
            let Welcome { epoch, cluster: id, redial_window_ms, commit } = record(body)?;
            ToAgent::Welcome {
                epoch: need(epoch).at("epoch")?.value(),
                cluster: cluster(&id).at("cluster")?,
                redial_window_ms,
                commit,
            }
        }
        TURNED_AWAY => ToAgent::TurnedAway { why: record::<TurnedAway>(body)?.why },
        START => ToAgent::Start(record::<Start>(body)?.value()?),
        BEGIN => ToAgent::Begin { task: task(record::<OfTask>(body)?.task)? },
        CANCEL => {
            let cancel: Cancel = record(body)?;
            let (job, attempt, action) = need(cancel.key).and_then(Key::value).at("key")?;
            let Cancel { why, commit, .. } = cancel;
            ToAgent::Cancel { task: task(cancel.task)?, job, attempt, action, why, commit }
        }
        SIGNAL => {
            let signal: Signal = record(body)?;
            let number = u8::try_from(signal.signal).ok().filter(|n| (1..=64).contains(n));
            let number =
                number.ok_or_else(|| Fault::bad(format!("{}, signals are 1 to 64", signal.signal))).at("signal")?;
            ToAgent::Signal { task: task(signal.task)?, signal: number }
        }
        ACK => {
            let Ack { task: id, commit } = record(body)?;
            ToAgent::Ack { task: task(id)?, commit }
        }
        BOOT_EXPECTED => ToAgent::BootExpected { task: task(record::<OfTask>(body)?.task)? },
        FORGET => {
            let tasks = record::<Forget>(body)?.tasks;
            ToAgent::Forget { tasks: tasks.iter().map(Task::value).collect::<Result<_, _>>().at("tasks")? }
        }
        PROBE => ToAgent::Probe { nonce: record::<Probe>(body)?.nonce },
        ASK => {
            let Question { question, ask } = record(body)?;
            ToAgent::Ask { question, ask: need(ask).and_then(Ask::value).at("ask")? }
        }
        UNSUPPORTED => ToAgent::Unsupported { message: record::<Unsupported>(body)?.message },
        _ => return Err(Fault::Unknown),
    })
}
