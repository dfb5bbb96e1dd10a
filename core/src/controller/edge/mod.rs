//! Edges: what the machine does for the resource managers that list their jobs. An edge is the daemon beside a resource
//! manager; a *source* is the name and the instance of that resource manager.
//!
//! Files: `requests` (which requests an edge may make), `sync` (applies an edge's list of all its attempts), `pages`
//! (the pages of such a list), `unlisted` (attempts that an edge's list lacks).

mod pages;
mod requests;
mod sync;
mod unlisted;

pub(super) use pages::Lists;
