//! The agent of a node: one loop around `perilog_core::agent::Machine`, and the edges that bring it inputs and carry out its effects.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`daemon`] | the loop: wait for an edge, make an `Input`, carry out effects in order | a place for decisions: they are in the core |
//! | [`systemd`] | everything D-Bus, and the emptiness of cgroups | a judge of what a unit means |
//! | [`spool`] | the files under /run/perilog | a cache: each look reads them again |
//! | [`link`] | the session with a controller | the wire's format: that is `perilog-proto` |
//! | [`local`] | the Varlink socket | a way around the machine |
//! | [`logs`] | answers to questions about output | a log shipper |
//! | [`farewell`] | what a node that goes down waits for | part of the daemon: it is a process of its own |
//! | [`config`] | agent.toml to plans | a watcher: it is read when asked to |
//!
//! The daemon uses one thread. When nothing happens it has no timer and makes no system call.

pub mod arguments;
pub mod config;
pub mod daemon;
pub mod farewell;
pub mod inotify;
pub mod link;
pub mod local;
pub mod logs;
pub mod spool;
pub mod stir;
pub mod systemd;
#[cfg(test)]
mod testing;
