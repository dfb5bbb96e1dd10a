//! The machine's interface: inputs, effects, requests, replies and views.

mod drain_view;
mod external;
pub mod io;
pub mod overview;
pub(crate) mod refusal;
mod reply;
pub mod request;
mod sync;
pub mod view;
