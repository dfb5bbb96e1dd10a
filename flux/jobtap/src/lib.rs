//! A jobtap plugin of Flux's job manager on rank 0. The plugin holds a prolog reference of each job from the job's
//! allocation on, and an epilog reference from the job's end on. The edge (`perilog-flux`) finishes the references. On
//! a site that runs epilogs as housekeeping, the plugin holds no epilog reference. The references are in the job's
//! eventlog, so they outlive rank 0, the edge and the controller. README.md is the wire contract.
//!
//! The plugin decides nothing about a job, opens no file and no socket, and has no timer and no thread. A panic of the
//! plugin would kill rank 0. So every function that Flux calls catches panics (`abi.rs`, the one file with `unsafe`),
//! and the lints deny code that panics.

// A test program cannot be linked against job-manager: only the pure part is tested without Flux.
#[cfg(not(test))]
mod abi;
#[cfg(not(test))]
mod plugin;
#[cfg_attr(test, allow(dead_code))]
mod references;
