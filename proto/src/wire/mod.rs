//! Bodies of messages by field number, and their conversion to and from core's values. The structures are the reference
//! of the message bodies; a field number is never reused.
//!
//! `of` encodes a value and cannot fail; `value` decodes the body and checks all parts.

mod ended;
mod held;
mod ids;
mod outcome;
mod start;

pub(crate) use ended::Ended;
pub(crate) use held::{Ask, Hello, Phase};
pub(crate) use ids::{Epoch, Key, Task, Uuid, cluster};
pub(crate) use start::{Common, Start};
