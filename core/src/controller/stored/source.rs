//! Sources of attempts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::controller::parameters::name;

/// Source of attempts: one instance of a resource manager. The source's edge adds attempts, and lists the existing
/// attempts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The kind of resource manager, such as `flux`.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Instance of the resource manager, for example `system`. Its name keeps the jobs of a test instance apart from
    /// the jobs of the real one.
    #[serde(deserialize_with = "name")]
    pub instance: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (instance {})", self.name, self.instance)
    }
}
