//! The HTTP listener of `[metrics] listen`: figures for Prometheus, the controller's health, and, with
//! `[metrics] page`, a page for people. The listener changes nothing.
//!
//! | path | answer | with |
//! |---|---|---|
//! | `/metrics` | Prometheus' text format | |
//! | `/healthz` | 200 or 503, and one line | |
//! | `/` | the page, with `/page.css`, `/page.js` and `/icon.svg` | `page = true` |
//! | `/status.json` | [`perilog_core::controller::overview::Overview`] | `page = true` |
//! | `/job.json?job=ID` | [`perilog_core::controller::overview::Timeline`] | `page = true` |
//! | `/node.json?node=NAME` | [`perilog_core::controller::view::WhyView`] | `page = true` |
//!
//! | module | |
//! |---|---|
//! | `server` | connections: their number and their time |
//! | `answer` | a request and its answer: methods, paths, headers |
//! | `names` | the names that a visitor may call this host by |
//! | `page_cache` | questions to the machine, one answer for all visitors who ask the same |
//! | `page/` | the page itself, which loads nothing from other hosts |

mod answer;
mod names;
mod page_cache;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Page, Site};
pub(crate) use names::Names;
pub(crate) use page_cache::PageCache;
pub(crate) use server::{bind, serve};
