//! perilog-controller: beside the resource manager's rank 0 it fans actions out to agents, collects what became of them, and tells.
//!
//! | room | is | is not |
//! |---|---|---|
//! | [`config`], [`arguments`] | what a site can say | policy |
//! | [`store`] | what is durable | what it means |
//! | [`daemon`] | the one writer, and the ways to and from it | decisions: `perilog_core::controller` |
//! | `listener` | sessions with agents, up to whole messages | what messages do |
//! | `enroll` | who is given a certificate, and against what | the door itself: `perilog_host::enroll` |
//! | `metrics` | figures for Prometheus | an opinion on them |
//! | `api` | `io.perilog.Controller` on the local socket | who holds what |

mod api;
pub mod arguments;
pub mod config;
pub mod daemon;
mod enroll;
pub mod export;
mod hooks;
mod listener;
mod metrics;
pub mod store;
