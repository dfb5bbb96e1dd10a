//! Operators' requests: cancels, manual drains, resolutions, and the quiesced state. Requests about a recovery are in
//! [`crate::controller::recovery`].

mod cancel;
pub(super) mod drain;
pub(crate) mod resolve;
