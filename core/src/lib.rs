//! The pure heart of perilog. Knows nothing else: no clock, file, socket, thread, random number or async.
//!
//! * words and formats: [`ids`], [`idset`] (RFC 22), [`hostlist`] (RFC 29), [`duration`] (RFC 23), [`eventlog`] (RFC 18), [`targets`]
//! * what a task is and how it ends: [`task`], [`outcome`], [`judge`], [`environment`]
//! * what the two sides say: [`message`]
//! * the two machines, `handle(input, now) -> effects`: [`agent`], [`controller`]

pub mod agent;
pub mod controller;
pub mod duration;
pub mod environment;
pub mod eventlog;
pub mod hostlist;
pub mod ids;
pub mod idset;
pub mod judge;
pub mod message;
pub mod outcome;
pub mod parse;
pub mod targets;
pub mod task;

pub use duration::Span;
pub use eventlog::Event;
pub use hostlist::HostList;
pub use ids::{
    ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostName, InvocationId, JobId, MachineId, Rank, TaskId,
};
pub use idset::IdSet;
pub use outcome::{ExitStatus, Failure, Loss, Outcome, Verdict};
pub use parse::ParseError;
pub use targets::{Targets, UnknownTarget};
