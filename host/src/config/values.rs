//! Types of values that the configurations of several daemons have. Each type accepts only valid values.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Least severe level to log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Returns the name of the level as [`crate::journal::init`] expects it, for example `warn`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// An absolute path. A relative path would depend on the daemon's working directory, which no administrator knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// Returns the default of a key: a path that the code has, and that is absolute.
    pub fn fixed(path: &'static str) -> Self {
        Self(path.into())
    }
}

impl std::ops::Deref for AbsolutePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<PathBuf> for AbsolutePath {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        if path.is_absolute() { Ok(Self(path)) } else { Err("expected an absolute path") }
    }
}

impl From<AbsolutePath> for PathBuf {
    fn from(path: AbsolutePath) -> Self {
        path.0
    }
}
