//! Core of perilog: every decision of agent and controller, as pure functions. The crate uses no clock, file, socket,
//! thread, random number or async, and no other crate of perilog.
//!
//! * words and formats: [`ids`], [`fluid`] (RFC 19), [`idset`] (RFC 22), [`hostlist`] (RFC 29), [`resource_set`] (R,
//!   RFC 20), [`duration`] (RFC 23), [`eventlog`] (RFC 18, 21), [`targets`], [`job`], [`milestone`], [`mark`],
//!   [`boot`], [`drop_ins`], [`output`]
//! * a task and the end of a task: [`task`], [`outcome`], [`judge`], [`environment`]
//! * the messages between agent and controller: [`message`]
//! * the two machines, `handle(input, now) -> effects`: [`agent`], [`controller`]
//! * lines of a trace, for a bug report: [`trace`]
//! * deliberate defects, for tests only: [`mod@defect`]

pub mod agent;
pub mod boot;
pub mod controller;
pub mod defect;
pub mod drop_ins;
pub mod duration;
mod elsewhere;
pub mod environment;
pub mod eventlog;
pub mod fluid;
pub mod hostlist;
pub mod ids;
pub mod idset;
pub mod job;
pub mod judge;
pub mod mark;
pub mod message;
pub mod milestone;
mod nearest;
pub mod outcome;
pub mod output;
pub mod parse;
pub mod resource_set;
pub mod targets;
pub mod task;
pub mod trace;
mod utc;

pub use boot::BootRecord;
pub use duration::Span;
pub use elsewhere::elsewhere;
pub use eventlog::Event;
pub use fluid::Fluid;
pub use hostlist::HostList;
pub use ids::{
    ActionId, ActionName, Attempt, BootId, CheckName, ClusterId, Epoch, HostName, InvocationId, JobId, MachineId,
    MilestoneName, Rank, ResourceName, TaskId,
};
pub use idset::IdSet;
pub use job::{Part, Terms, Tolerance};
pub use mark::{AcceptedEpoch, Commit, EpochRange, History, Mark};
pub use milestone::Milestones;
pub use outcome::{ExitStatus, Failure, Loss, Outcome, Verdict};
pub use parse::ParseError;
pub use resource_set::{InvalidR, ResourceSet};
pub use targets::{Targets, UnknownTarget};
