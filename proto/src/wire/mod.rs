//! The bodies of messages by field number, and between them and core's values. Each structure is its own reference; a number that was
//! ever used is not used for anything else.
//!
//! `of` makes the wire's form of a value and cannot fail; `value` reads it back and checks everything.

mod ended;
mod held;
mod ids;
mod outcome;
mod start;

pub(crate) use ended::Ended;
pub(crate) use held::{Ask, Hello, Phase};
pub(crate) use ids::{Epoch, Key, Task, Uuid, cluster};
pub(crate) use start::{Common, Start};
