//! Distribution of a bed's nodes: the directory tree that a node's files lie over.

use std::path::{Path, PathBuf};

/// Environment variable: the root directory of another distribution, such as one that mmdebstrap has filled. Without
/// it, nodes have this machine's files.
pub const BASE_VARIABLE: &str = "PERILOG_BASE";
/// Environment variable: root directories of several distributions with the product installed, separated by colons, for
/// a cluster whose nodes differ.
pub const BASES_VARIABLE: &str = "PERILOG_BASES";
/// File of the installed product, by which a root is known to have it.
const OF_PRODUCT: &str = "/usr/sbin/perilog-agent";

/// Distribution of a node: the root directory of an installed system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base(PathBuf);

impl Base {
    /// Returns the distribution of nodes that name none: by [`BASE_VARIABLE`], otherwise this machine's.
    pub(crate) fn common() -> Self {
        Self(std::env::var_os(BASE_VARIABLE).map_or_else(|| "/".into(), PathBuf::from))
    }

    /// Returns the distributions of [`BASES_VARIABLE`].
    pub fn several() -> Vec<Self> {
        let list = std::env::var_os(BASES_VARIABLE).unwrap_or_default();
        std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).map(Self).collect()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the place of a node's file in its distribution. `path` is absolute.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns `true` if packages have installed the product below the root of another distribution: nodes then take
    /// it from there. What is installed on this machine itself is not under test.
    pub(crate) fn has_product(&self) -> bool {
        self.0 != Path::new("/") && self.file(OF_PRODUCT).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_root_has_the_product() {
        let root = std::env::temp_dir().join(format!("perilog-base-{}", std::process::id()));
        std::fs::create_dir_all(root.join("usr/sbin")).unwrap();
        let base = Base(root.clone());
        assert!(!base.has_product());
        std::fs::write(base.file(OF_PRODUCT), "").unwrap();
        assert!(base.has_product());
        assert!(!Base("/".into()).has_product());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
