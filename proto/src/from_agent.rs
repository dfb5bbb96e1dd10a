//! Messages from an agent to the controller: encodes and decodes their numbers and bodies.

use bytes::Bytes;
use perilog_core::message::FromAgent;

use crate::bounds::{MAX_ANSWER, TEXT, clip};
use crate::error::{At, DecodeError, Fault, need};
use crate::frame::{Decoded, MAX_MESSAGE, nested, open, record, seal};
use crate::wire::{Ended, Epoch, Hello, Phase, Task};

const HELLO: u16 = 1;
const EPOCH_REFUSED: u16 = 2;
const ACCEPTED: u16 = 3;
const PHASE_CHANGED: u16 = 4;
const FINISHED: u16 = 5;
const PROBED: u16 = 6;
const ANSWER: u16 = 7;
const UNSUPPORTED: u16 = 8;
const EXPECTS_BOOT: u16 = 9;
const MILESTONE: u16 = 10;

#[rustfmt::skip]
const NAMES: [&str; 10] =
    ["Hello", "EpochRefused", "Accepted", "PhaseChanged", "Finished", "Probed", "Answer", "Unsupported", "ExpectsBoot",
     "Milestone"];

/// Number of bytes of a frame that are kept for the message number, ids and lengths. An encoded end or page of Hello
/// may fill the rest.
const ASIDE: usize = 128;

#[derive(Clone, PartialEq, prost::Message)]
struct EpochRefused {
    #[prost(message, optional, tag = "1")]
    seen: Option<Epoch>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Accepted {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    /// Limit of the task in milliseconds, as in [`FromAgent::Accepted`]. An older agent omits the field.
    #[prost(uint64, optional, tag = "2")]
    limit_ms: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PhaseChanged {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    #[prost(message, optional, tag = "2")]
    phase: Option<Phase>,
    #[prost(uint64, tag = "3")]
    age_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Milestone {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Finished {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    /// The encoded [`Ended`]. As bytes, because the decoder counts the fields of the end before it decodes the end.
    #[prost(bytes = "vec", tag = "2")]
    ended: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ExpectsBoot {
    #[prost(message, optional, tag = "1")]
    task: Option<Task>,
    #[prost(uint64, optional, tag = "2")]
    within_ms: Option<u64>,
    /// The encoded [`Ended`]. As bytes, because the decoder counts the fields of the end before it decodes the end.
    #[prost(bytes = "vec", tag = "3")]
    ended: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Probed {
    #[prost(fixed64, tag = "1")]
    nonce: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(uint64, tag = "1")]
    question: u64,
    #[prost(string, tag = "2")]
    text: String,
    #[prost(bool, tag = "3")]
    last: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unsupported {
    #[prost(uint32, tag = "1")]
    message: u32,
}

/// Encodes a message as a frame of at most [`crate::MAX_MESSAGE`] bytes, if a page of Hello has at most
/// [`crate::MAX_PAGE`] tasks.
pub fn encode_from_agent(message: &FromAgent) -> Bytes {
    match message {
        FromAgent::Hello(hello) => seal(HELLO, &Hello::of(hello, MAX_MESSAGE - ASIDE)),
        FromAgent::EpochRefused { seen } => seal(EPOCH_REFUSED, &EpochRefused { seen: Some(Epoch::of(*seen)) }),
        FromAgent::Accepted { task, limit_ms } => {
            seal(ACCEPTED, &Accepted { task: Some(Task::of(*task)), limit_ms: *limit_ms })
        }
        FromAgent::PhaseChanged { task, phase, age_ms } => seal(
            PHASE_CHANGED,
            &PhaseChanged { task: Some(Task::of(*task)), phase: Some(Phase::of(phase)), age_ms: *age_ms },
        ),
        FromAgent::Milestone { task, name } => {
            seal(MILESTONE, &Milestone { task: Some(Task::of(*task)), name: clip(name, TEXT) })
        }
        FromAgent::Finished { task, ended } => {
            let ended = prost::Message::encode_to_vec(&Ended::of(ended, MAX_MESSAGE - ASIDE));
            seal(FINISHED, &Finished { task: Some(Task::of(*task)), ended })
        }
        FromAgent::ExpectsBoot { task, within_ms, ended } => {
            let ended = prost::Message::encode_to_vec(&Ended::of(ended, MAX_MESSAGE - ASIDE));
            seal(EXPECTS_BOOT, &ExpectsBoot { task: Some(Task::of(*task)), within_ms: *within_ms, ended })
        }
        FromAgent::Probed { nonce } => seal(PROBED, &Probed { nonce: *nonce }),
        FromAgent::Answer { question, text, last } => {
            seal(ANSWER, &Answer { question: *question, text: clip(text, MAX_ANSWER), last: *last })
        }
        FromAgent::Unsupported { message } => seal(UNSUPPORTED, &Unsupported { message: *message }),
    }
}

/// Decodes a frame that an agent sent.
///
/// # Errors
/// [`DecodeError`] names the malformed field, if one field is at fault; the controller then ends the session.
pub fn decode_from_agent(frame: &[u8]) -> Result<Decoded<FromAgent>, DecodeError> {
    open(frame, |number| NAMES.get(usize::from(number).wrapping_sub(1)).copied(), read)
}

fn read(number: u16, body: &[u8]) -> Result<FromAgent, Fault> {
    let task = |task: Option<Task>| need(task).and_then(|task| task.value()).at("task");
    Ok(match number {
        HELLO => FromAgent::Hello(record::<Hello>(body)?.value()?),
        EPOCH_REFUSED => FromAgent::EpochRefused { seen: need(record::<EpochRefused>(body)?.seen).at("seen")?.value() },
        ACCEPTED => {
            let Accepted { task: of, limit_ms } = record(body)?;
            FromAgent::Accepted { task: task(of)?, limit_ms }
        }
        PHASE_CHANGED => {
            let moved: PhaseChanged = record(body)?;
            let phase = need(moved.phase).and_then(Phase::value).at("phase")?;
            FromAgent::PhaseChanged { task: task(moved.task)?, phase, age_ms: moved.age_ms }
        }
        MILESTONE => {
            let Milestone { task: of, name } = record(body)?;
            FromAgent::Milestone { task: task(of)?, name: clip(&name, TEXT) }
        }
        FINISHED => {
            let finished: Finished = record(body)?;
            let ended = nested::<Ended>(&finished.ended, "ended")?.value().at("ended")?;
            FromAgent::Finished { task: task(finished.task)?, ended: Box::new(ended) }
        }
        EXPECTS_BOOT => {
            let ExpectsBoot { task: of, within_ms, ended } = record(body)?;
            let ended = nested::<Ended>(&ended, "ended")?.value().at("ended")?;
            FromAgent::ExpectsBoot { task: task(of)?, within_ms, ended: Box::new(ended) }
        }
        PROBED => FromAgent::Probed { nonce: record::<Probed>(body)?.nonce },
        ANSWER => {
            let Answer { question, text, last } = record(body)?;
            FromAgent::Answer { question, text, last }
        }
        UNSUPPORTED => FromAgent::Unsupported { message: record::<Unsupported>(body)?.message },
        _ => return Err(Fault::Unknown),
    })
}
