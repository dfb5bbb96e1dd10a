//! Operators' decisions: resolutions of tasks, and the quiesced state. Decisions about a recovery are in
//! [`crate::controller::recovery`].

mod cancel;
mod drain;
pub(crate) mod quiesce;
pub(crate) mod resolve;
