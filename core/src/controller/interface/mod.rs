//! The machine's interface: inputs, effects, requests, replies and views.

mod drain_view;
mod external;
pub mod io;
pub mod overview;
pub(in crate::controller) mod parameters;
pub(crate) mod refusal;
mod reply;
pub mod request;
mod sync;
pub mod view;
