//! Operators' requests: cancels, drains by hand, resolutions, and the quiesced state. Requests in a recovery are in
//! [`crate::controller::recovery`].

mod cancel;
mod drain;
pub(crate) mod quiesce;
pub(crate) mod resolve;
