//! The machine's interface: inputs, effects, requests, replies and views.

pub mod io;
pub mod overview;
pub(in crate::controller) mod refusal;
pub mod request;
pub mod view;
