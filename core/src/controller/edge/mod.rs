//! Edges: what the machine does for the resource managers that list their jobs. An edge is the daemon beside a resource
//! manager; a *source* is the name and the instance of that resource manager.
//!
//! Files: `requests` (which requests an edge may make), `sync` (applies an edge's list of all its attempts), `unlisted`
//! (attempts that such a list lacks).

mod requests;
mod sync;
mod unlisted;
