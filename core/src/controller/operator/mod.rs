//! Operators' decisions about tasks and the whole cluster: resolutions, and the quiesced state. Those of a recovery are
//! in [`crate::controller::recovery`].

pub(in crate::controller) mod quiesce;
pub(in crate::controller) mod resolve;
