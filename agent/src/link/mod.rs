//! Session with a controller: dial, agree on a version, exchange messages, dial again.
//!
//! ```text
//!   dial --(fails)--> wait a random part of a growing window --> dial
//!   dial --> preambles --> Up --> Message ... --> Down --> wait a random part of Welcome's window --> dial
//! ```
//!
//! The link knows bytes and time, but no meaning: the machine makes Hello and all later messages. The link sends no
//! heartbeat: the kernel watches a silent connection.

mod dialler;
mod enroll;
mod session;
mod window;

pub use dialler::{Controllers, dial};
pub use enroll::Enroll;
pub use session::{Outbox, Session};
pub use window::Window;

use perilog_core::message::ToAgent;

/// An event of a session with a controller, sent to the agent's event loop. `peer` describes the controller in messages
/// to people. `counter` numbers the sessions, and grows with every session of this boot.
#[derive(Debug)]
pub enum LinkEvent {
    Up { counter: u64, session: Session, peer: String },
    Message { counter: u64, message: ToAgent },
    Down { counter: u64 },
}

#[cfg(test)]
mod tests;
