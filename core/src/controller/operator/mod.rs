//! Operators' requests: cancels, manual drains and resolutions. Requests about a recovery are in
//! [`crate::controller::recovery`], and the quiesced state is in [`crate::controller::state::quiesce`].

mod cancel;
pub(super) mod drain;
pub(crate) mod resolve;
