//! Agent of a node: one loop around `perilog_core::agent::Machine`, and the I/O that brings inputs and carries out
//! effects.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`daemon`] | the loop: wait for an event, make an `Input`, carry out effects in order | a place for decisions |
//! | [`systemd`] | everything D-Bus, and the emptiness of cgroups | a judge of outcomes |
//! | [`spool`] | the files under /run/perilog | a cache: each read goes to the disk |
//! | [`link`] | the session with a controller | the wire's format (`perilog-proto`) |
//! | [`local`] | the Varlink socket | a way around the machine |
//! | [`logs`] | answers to questions about output | a log shipper |
//! | [`farewell`] | the wait of a node that shuts down | part of the daemon: a process of its own |
//! | [`config`] | agent.toml to plans | a watcher: a reload reads the file |
//!
//! The daemon uses one thread. While idle, the daemon has no timer and makes no system call.

#![cfg(feature = "daemon")]

pub mod arguments;
pub mod config;
pub mod daemon;
pub mod farewell;
#[doc(hidden)]
pub mod fuzz;
pub mod inotify;
pub mod link;
pub mod local;
pub mod logs;
pub mod spool;
pub mod systemd;
#[cfg(test)]
mod testing;
pub mod wakeups;
