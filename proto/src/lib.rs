//! perilog's wire protocol: messages to bytes and back, without sockets and without state. This page and the structures
//! in `src/wire/` are the reference of the protocol.
//!
//! # Frames
//! A connection carries frames: four bytes of length (big endian), then at most [`MAX_MESSAGE`] bytes
//! (`perilog_host::link` handles the length). The first frame in each direction is the [`Preamble`]; each side sends
//! its own at once and waits for the other. The form of every later frame:
//!
//! ```text
//!   +--------+--------+---------------------------+
//!   | number of message| body: protobuf (proto3)   |
//!   | u16, big endian  | of that message           |
//!   +--------+--------+---------------------------+
//! ```
//!
//! | to an agent | | from an agent | |
//! |---|---|---|---|
//! | 1 | Welcome | 1 | Hello (in pages) |
//! | 2 | TurnedAway | 2 | EpochRefused |
//! | 3 | Start | 3 | Accepted |
//! | 4 | Begin | 4 | PhaseChanged |
//! | 5 | Cancel | 5 | Finished |
//! | 6 | Signal | 6 | Probed |
//! | 7 | Ack | 7 | Answer |
//! | 8 | Forget | 8 | Unsupported |
//! | 9 | Probe | 9 | ExpectsBoot |
//! | 10 | Ask | 10 | Milestone |
//! | 11 | Unsupported | | |
//! | 12 | BootExpected | | |
//!
//! # How it may change
//! * Versions N and N-1 work together ([`negotiate`]); a connection speaks the highest version that both sides know.
//! * A new field or message has a new number. A number is never reused, a type never changes, and an existing field
//!   keeps its meaning.
//! * The decoder skips unknown fields. An unknown message, or an unknown kind of a message (a new outcome, a new
//!   question), decodes to [`Decoded::Unknown`]: the receiver answers `Unsupported` and the session goes on. So a
//!   sender uses a new kind only with a peer whose version knows the kind.
//! * `golden/` has the bytes of every message; a change of these bytes requires a new version.
//!
//! # What is checked
//! Ids, idsets and hostlists go through their constructors in core; [`DecodeError`] names message and field. The frame
//! bounds memory: at most [`MAX_FIELDS`] fields in a record with a list, at most a million host names in a message,
//! whatever its brackets expand to. Any bytes give a message or an error, never a panic.
//!
//! # What fits
//! Every encoder produces at most [`MAX_MESSAGE`] bytes, because these parts are cut: texts for people to 4 KiB, output
//! and forensics to 64 KiB ([`perilog_core::judge::MAX_TAILS`]), lists of an end to 256 entries
//! ([`perilog_core::judge::MAX_LISTED`]), a part of an answer to [`MAX_ANSWER`], tasks of Forget to [`MAX_FORGET`].
//!
//! The controller checks a job and an action with [`check_start`] when it accepts them: ranks and hosts together have
//! at most [`MAX_LAYOUT_TEXT`] bytes. A part of a job can have longer texts than the whole job. The node refuses a
//! Start past the bound, with the reason. If an end still does not fit, the encoder cuts the listed texts, and the
//! end's note names the cut.

mod bounds;
mod error;
mod fan;
mod frame;
mod from_agent;
mod preamble;
mod to_agent;
mod wire;

pub use bounds::{MAX_ANSWER, MAX_ENV, MAX_FORGET, MAX_LAYOUT_TEXT, MAX_PAGE, TooLarge, check_start};
pub use error::DecodeError;
pub use fan::StartFan;
pub use frame::{Decoded, MAX_FIELDS, MAX_MESSAGE};
pub use from_agent::{decode_from_agent, encode_from_agent};
pub use preamble::{Agreed, HIGHEST, LOWEST, Mismatch, Preamble, negotiate};
pub use to_agent::{decode_to_agent, encode_to_agent};
