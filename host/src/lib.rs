//! What any daemon on a host needs, and nothing about jobs.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`clock`] | the only place that reads a clock | a source of timers |
//! | [`command`] | the command line of a daemon, and what comes before it serves | what it serves |
//! | [`config`] | TOML files and drop-ins, with errors that point | a schema: that is the daemon's |
//! | [`journal`] | where log lines go | what is logged |
//! | [`notify`], [`activation`] | what we and systemd tell each other | D-Bus |
//! | [`shutdown`] | the signals that end or reload a daemon | a supervisor |
//! | [`fault`] | moments at which tests kill a daemon | in a build for sites: there it is nothing |
//! | [`trust`], [`scripts`] | who can write what root executes; the scripts of a directory | what is run, and when |
//! | [`accounts`] | users and groups of this host | a cache |
//! | [`tls`] | certificates, mutual TLS 1.3, whom a certificate names | a certificate authority |
//! | [`authority`] | makes keys, certificates and revocation lists | a decision about who gets one |
//! | [`enroll`] | the door at which a node asks for its certificate, both sides of it | that decision |
//! | [`munge`] | munge's two programs: makes a credential, reads one | what a credential is good for |
//! | [`program`] | a program that is asked something, within limits | a shell; what it says |
//! | [`link`] | frames over TCP or TLS | messages: a frame is bytes |
//! | [`varlink`] | the local socket: server and blocking client | interfaces: these are the daemon's |
//!
//! This crate knows no job, no rank and no message. It does no work when nothing happens: no module runs a timer when idle.

pub mod accounts;
pub mod activation;
pub mod authority;
pub mod clock;
pub mod command;
pub mod complaints;
pub mod config;
#[cfg(feature = "defects")]
pub mod defect;
pub mod enroll;
pub mod fault;
pub mod journal;
pub mod link;
pub mod munge;
pub mod notify;
pub mod program;
pub mod scripts;
pub mod shutdown;
pub mod tls;
pub mod trust;
pub mod varlink;
