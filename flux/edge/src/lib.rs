//! perilog-flux: the edge between a Flux instance and perilog's controller. It keeps nothing: Flux's eventlog and the
//! controller's store are the state, and
//! the edge makes the difference between them vanish. It may be killed at any moment.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`plan`] | what to do next, by both sides as they stand | I/O of any kind |
//! | [`broker`] | Flux's local socket: RFC 3, calls, streams | libflux |
//! | [`controller`] | the controller's Varlink socket | a way around its decisions |
//! | [`session`] | the loop: fold what comes, plan, send | a place for decisions |
//! | [`config`] | edge.toml | a watcher: a restart reads it |

pub mod arguments;
pub mod broker;
pub mod config;
pub mod controller;
pub mod daemon;
pub mod plan;
pub mod session;
