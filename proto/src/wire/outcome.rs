//! The outcome of a task on the wire.

use perilog_core::outcome::{ExitStatus, Failure as CoreFailure, Loss, Outcome as CoreOutcome};

use crate::bounds::{TEXT, clip};
use crate::error::{At, Fault, known, need};

fn byte(number: u32) -> Result<u8, Fault> {
    u8::try_from(number).map_err(|_| Fault::bad(format!("{number}, at most 255 is one")))
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(oneof = "status::Kind", tags = "1, 2")]
    pub kind: Option<status::Kind>,
}

pub(crate) mod status {
    #[derive(Clone, Copy, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(uint32, tag = "1")]
        Exit(u32),
        #[prost(uint32, tag = "2")]
        Signal(u32),
    }
}

impl Status {
    pub(crate) fn of(status: ExitStatus) -> Self {
        let kind = match status {
            ExitStatus::Exit(code) => status::Kind::Exit(code.into()),
            ExitStatus::Signal(signal) => status::Kind::Signal(signal.into()),
        };
        Self { kind: Some(kind) }
    }

    pub(crate) fn value(self) -> Result<ExitStatus, Fault> {
        match known(self.kind)? {
            status::Kind::Exit(code) => byte(code).map(ExitStatus::Exit).at("exit"),
            status::Kind::Signal(signal) => byte(signal).map(ExitStatus::Signal).at("signal"),
        }
    }
}

/// An exit status that may be unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Perhaps {
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
}

impl Perhaps {
    fn of(status: Option<ExitStatus>) -> Self {
        Self { status: status.map(Status::of) }
    }

    fn value(self) -> Result<Option<ExitStatus>, Fault> {
        self.status.map(Status::value).transpose().at("status")
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Failure {
    #[prost(oneof = "failure::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<failure::Kind>,
}

pub(crate) mod failure {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(uint32, tag = "1")]
        Exit(u32),
        #[prost(uint32, tag = "2")]
        Signal(u32),
        #[prost(message, tag = "3")]
        Oom(()),
        #[prost(string, tag = "4")]
        Exec(String),
        #[prost(string, tag = "5")]
        Configuration(String),
        #[prost(string, tag = "6")]
        Unit(String),
        #[prost(message, tag = "7")]
        NoResult(super::Perhaps),
        #[prost(message, tag = "8")]
        Reported(()),
    }
}

impl Failure {
    fn of(failure: &CoreFailure) -> Self {
        use failure::Kind;
        let kind = match failure {
            CoreFailure::Exit(code) => Kind::Exit((*code).into()),
            CoreFailure::Signal(signal) => Kind::Signal((*signal).into()),
            CoreFailure::Oom => Kind::Oom(()),
            CoreFailure::Exec(text) => Kind::Exec(clip(text, TEXT)),
            CoreFailure::Configuration(text) => Kind::Configuration(clip(text, TEXT)),
            CoreFailure::Unit(text) => Kind::Unit(clip(text, TEXT)),
            CoreFailure::NoResult(status) => Kind::NoResult(Perhaps::of(*status)),
            CoreFailure::Reported => Kind::Reported(()),
        };
        Self { kind: Some(kind) }
    }

    fn value(self) -> Result<CoreFailure, Fault> {
        use failure::Kind;
        Ok(match known(self.kind)? {
            Kind::Exit(code) => CoreFailure::Exit(byte(code).at("exit")?),
            Kind::Signal(signal) => CoreFailure::Signal(byte(signal).at("signal")?),
            Kind::Oom(()) => CoreFailure::Oom,
            Kind::Exec(text) => CoreFailure::Exec(text),
            Kind::Configuration(text) => CoreFailure::Configuration(text),
            Kind::Unit(text) => CoreFailure::Unit(text),
            Kind::NoResult(status) => CoreFailure::NoResult(status.value().at("no_result")?),
            Kind::Reported(()) => CoreFailure::Reported,
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resolved {
    #[prost(bool, tag = "1")]
    pub ok: bool,
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Uid of the operator who resolved the task.
    #[prost(uint32, tag = "3")]
    pub by: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Outcome {
    #[prost(oneof = "ending::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<ending::Kind>,
}

pub(crate) mod ending {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(message, tag = "1")]
        Ok(()),
        #[prost(message, tag = "2")]
        Tolerable(()),
        #[prost(message, tag = "3")]
        Failed(super::Failure),
        #[prost(message, tag = "4")]
        Timeout(super::Perhaps),
        #[prost(message, tag = "5")]
        Cancelled(super::Perhaps),
        /// The reason as a number: 1 rebooted, 2 vanished, 3 unreachable, 4 offline, 5 unknown node, 6 lease.
        #[prost(uint32, tag = "6")]
        Lost(u32),
        #[prost(string, tag = "7")]
        Refused(String),
        #[prost(message, tag = "8")]
        Resolved(super::Resolved),
    }
}

const LOSSES: [(u32, Loss); 6] = [
    (1, Loss::Rebooted),
    (2, Loss::Vanished),
    (3, Loss::Unreachable),
    (4, Loss::Offline),
    (5, Loss::UnknownNode),
    (6, Loss::Lease),
];

const fn loss_number(loss: Loss) -> u32 {
    match loss {
        Loss::Rebooted => 1,
        Loss::Vanished => 2,
        Loss::Unreachable => 3,
        Loss::Offline => 4,
        Loss::UnknownNode => 5,
        Loss::Lease => 6,
    }
}

impl Outcome {
    pub(crate) fn of(outcome: &CoreOutcome) -> Self {
        use ending::Kind;
        let kind = match outcome {
            CoreOutcome::Ok => Kind::Ok(()),
            CoreOutcome::Tolerable => Kind::Tolerable(()),
            CoreOutcome::Failed { why } => Kind::Failed(Failure::of(why)),
            CoreOutcome::Timeout { status } => Kind::Timeout(Perhaps::of(*status)),
            CoreOutcome::Cancelled { status } => Kind::Cancelled(Perhaps::of(*status)),
            CoreOutcome::Lost { why } => Kind::Lost(loss_number(*why)),
            CoreOutcome::Refused { why } => Kind::Refused(clip(why, TEXT)),
            CoreOutcome::Resolved { ok, reason, by } => {
                Kind::Resolved(Resolved { ok: *ok, reason: clip(reason, TEXT), by: *by })
            }
        };
        Self { kind: Some(kind) }
    }

    /// Cuts the text for people in the outcome to at most `most` bytes; does nothing to an outcome without a text.
    pub(crate) fn shorten(&mut self, most: usize) {
        use ending::Kind;
        if let Some(
            Kind::Failed(Failure {
                kind: Some(failure::Kind::Exec(text) | failure::Kind::Configuration(text) | failure::Kind::Unit(text)),
            })
            | Kind::Refused(text)
            | Kind::Resolved(Resolved { reason: text, .. }),
        ) = &mut self.kind
        {
            *text = clip(text, most);
        }
    }

    pub(crate) fn value(self) -> Result<CoreOutcome, Fault> {
        use ending::Kind;
        Ok(match known(self.kind)? {
            Kind::Ok(()) => CoreOutcome::Ok,
            Kind::Tolerable(()) => CoreOutcome::Tolerable,
            Kind::Failed(why) => CoreOutcome::Failed { why: why.value().at("failed")? },
            Kind::Timeout(status) => CoreOutcome::Timeout { status: status.value().at("timeout")? },
            Kind::Cancelled(status) => CoreOutcome::Cancelled { status: status.value().at("cancelled")? },
            Kind::Lost(number) => {
                let why = known(LOSSES.iter().find(|(n, _)| *n == number))?.1;
                CoreOutcome::Lost { why }
            }
            Kind::Refused(why) => CoreOutcome::Refused { why },
            Kind::Resolved(Resolved { ok, reason, by }) => CoreOutcome::Resolved { ok, reason, by },
        })
    }
}

/// Decodes the outcome in a mandatory field; an error if the peer omitted the field.
pub(crate) fn outcome(outcome: Option<Outcome>) -> Result<CoreOutcome, Fault> {
    need(outcome).and_then(Outcome::value).at("outcome")
}
