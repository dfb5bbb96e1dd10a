//! perilog-controller, beside the resource manager's rank 0: it fans actions out to agents, collects the outcomes, and
//! notifies the resource manager.
//!
//! | module | is | is not |
//! |---|---|---|
//! | [`config`], [`arguments`] | a site's settings | decisions about jobs |
//! | [`store`] | durable records | their meaning |
//! | [`daemon`] | the one writer, and its queues | decisions: `perilog_core::controller` |
//! | `listener` | sessions with agents, up to whole messages | their handling |
//! | `enroll` | certificates for nodes, and their proofs | the server that nodes ask: `perilog_host::enroll` |
//! | `metrics` | figures for Prometheus | alerts on them |
//! | `http` | the figures, and a page, for browsers | a state of its own |
//! | `api` | `io.perilog.Controller` on the local socket | the state of jobs |

mod api;
pub mod arguments;
pub mod config;
pub mod daemon;
mod enroll;
pub mod export;
mod hooks;
mod http;
mod listener;
mod metrics;
pub mod store;
