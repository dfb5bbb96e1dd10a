//! Distribution of a bed's nodes: the directory tree that every node's files lie over.

use std::path::PathBuf;

/// Environment variable: the root directory of another distribution, such as one that mmdebstrap has filled. Without
/// it, nodes have this machine's files.
pub const BASE_VARIABLE: &str = "PERILOG_BASE";

/// Returns the directory below which the nodes' distribution lies.
pub(crate) fn base() -> PathBuf {
    std::env::var_os(BASE_VARIABLE).map_or_else(|| "/".into(), PathBuf::from)
}

/// Returns the place of a node's file in its distribution. `path` is absolute.
pub(crate) fn in_base(path: &str) -> PathBuf {
    base().join(path.trim_start_matches('/'))
}
