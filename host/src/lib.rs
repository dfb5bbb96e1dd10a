//! Foundation of a daemon on a host, without any knowledge of jobs.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`clock`] | the only place that reads a clock | a source of timers |
//! | [`command`] | the command line of a daemon, and acts other than serving | the service |
//! | [`config`] | TOML files and drop-ins, with errors that point | a schema: each daemon has its own |
//! | [`journal`] | the output of log lines | the content of log lines |
//! | [`complaints`] | limits on log lines about each peer | the log lines |
//! | [`notify`], [`activation`], [`watchdog`] | messages between a daemon and systemd | D-Bus |
//! | [`signals`] | the signals that end or reload a daemon | a supervisor |
//! | [`fault`] | points at which tests kill a daemon | in a build for sites |
//! | [`trust`] | the users who can write files that root executes | a decision to run a file |
//! | [`scripts`] | the scripts of a directory | a decision to run a script |
//! | [`accounts`] | users and groups of this host | a cache |
//! | [`limited`] | a look, within a limit, at what may never answer | a cache of answers |
//! | [`tls`] | certificates, mutual TLS 1.3, the hosts that a certificate names | a certificate authority |
//! | [`authority`] | makes keys, certificates and revocation lists | a decision about who gets one |
//! | [`durable`] | files and directories that outlive a power cut | an owner or a mode of choice |
//! | [`enroll`] | both sides of a node's request for a certificate | a decision about who gets one |
//! | [`mount`] | whether a file system is mounted on a directory | a list of mounts |
//! | [`munge`] | munge's two programs: makes a credential, reads one | a decision about a credential's use |
//! | [`program`] | a child program with one question, within limits | a shell |
//! | [`terminal`] | foreign text that no terminal interprets | the length of a text |
//! | [`link`] | frames over TCP or TLS | messages: a frame is bytes |
//! | [`varlink`] | the local socket: server and blocking client | interfaces: each daemon has its own |
//!
//! The crate knows no job, no rank and no message. The crate does no work in an idle daemon: no module runs a timer
//! when idle.
//!
//! Without the feature `daemon`, only the modules that the runner needs are left: no runtime, no TLS, no C.

pub mod accounts;
#[cfg(feature = "daemon")]
pub mod activation;
#[cfg(feature = "daemon")]
pub mod authority;
pub mod clock;
#[cfg(feature = "daemon")]
pub mod command;
#[cfg(feature = "daemon")]
pub mod complaints;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "defects")]
pub mod defect;
pub mod durable;
#[cfg(feature = "daemon")]
pub mod enroll;
#[cfg(feature = "daemon")]
pub mod fault;
#[cfg(feature = "daemon")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "daemon")]
pub mod journal;
#[cfg(feature = "daemon")]
pub mod limited;
#[cfg(feature = "daemon")]
pub mod link;
#[cfg(feature = "daemon")]
pub mod mount;
#[cfg(feature = "daemon")]
pub mod munge;
#[cfg(feature = "daemon")]
pub mod notify;
pub mod process_stat;
#[cfg(feature = "daemon")]
pub mod program;
pub mod scripts;
#[cfg(feature = "daemon")]
pub mod signals;
#[cfg(feature = "daemon")]
pub mod terminal;
#[cfg(feature = "daemon")]
pub mod tls;
pub mod trust;
#[cfg(feature = "daemon")]
pub mod varlink;
#[cfg(feature = "daemon")]
pub mod watchdog;
