//! perilog-flux: the edge between a Flux instance and perilog's controller. The edge keeps no state: the state is in
//! Flux's eventlog and in the controller's store. The edge acts until the two agree. A kill may end the edge at any
//! moment.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`plan`] | the next actions, by the state of both sides | I/O of any kind |
//! | [`broker`] | Flux's local socket: RFC 3, calls, streams | libflux |
//! | [`controller`] | the controller's Varlink socket | a way around its decisions |
//! | [`session`] | the loop: fold events, plan, send | a place for decisions |
//! | [`config`] | edge.toml | a watcher: a restart reads it |

pub mod arguments;
pub mod broker;
pub mod config;
pub mod controller;
pub mod daemon;
pub mod plan;
pub mod session;
