//! `/etc/perilog/edge.toml` and the drop-ins of `edge.d/`: every key with its default. `edge.toml.example` documents
//! the keys for people; a test compares the two.

use std::path::{Path, PathBuf};

use perilog_core::Span;
use perilog_host::config::{ConfigError, Loaded, MainFile};
use serde::{Deserialize, Serialize};

use crate::plan::view::Site;

/// The configuration file, unless `--config` names another.
pub const FILE: &str = "/etc/perilog/edge.toml";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    pub log: Log,
    pub flux: Socket,
    pub controller: Socket,
    /// Distinguishes this instance of Flux from others that the controller serves.
    pub instance: Name,
    pub online_patience: Limit,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log: Log::Info,
            flux: Socket(PathBuf::from("/run/flux/local")),
            controller: Socket(PathBuf::from("/run/perilog/controller.sock")),
            instance: Name("system".to_owned()),
            online_patience: Limit(120_000),
        }
    }
}

impl Config {
    /// Reads `file` and the drop-ins of the directory beside it; without a file, every key has its default.
    ///
    /// # Errors
    /// [`ConfigError`]: all mistakes, with their lines.
    pub fn read(file: &Path) -> Result<Loaded<Self>, ConfigError> {
        perilog_host::config::load(file, MainFile::Optional, Some(&file.with_extension("d")))
    }

    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts are always TOML")
    }

    pub fn site(&self) -> Site {
        Site { online_patience_ms: self.online_patience.0 }
    }
}

/// Returns warnings for people about settings that are well formed but will not work here.
pub fn warnings(config: &Config) -> Vec<String> {
    let missing = |(key, socket): (&str, &Socket)| {
        (!socket.0.exists()).then(|| format!("{key}: there is no socket {}", socket.0.display()))
    };
    [("flux", &config.flux), ("controller", &config.controller)].into_iter().filter_map(missing).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Log {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Log {
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

/// The absolute path of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct Socket(PathBuf);

impl Socket {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<PathBuf> for Socket {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        if path.is_absolute() { Ok(Self(path)) } else { Err("expected an absolute path") }
    }
}

impl From<Socket> for PathBuf {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

/// A name: 1 to 64 of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=64).contains(&name.len()) && name.bytes().all(fits);
        if is_name { Ok(Self(name)) } else { Err("expected 1 to 64 of [A-Za-z0-9._-]") }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// A finite length of time (RFC 23), in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Span", into = "Span")]
pub struct Limit(u64);

impl TryFrom<Span> for Limit {
    type Error = &'static str;

    fn try_from(span: Span) -> Result<Self, Self::Error> {
        span.as_millis().map(Self).ok_or("expected a duration that ends")
    }
}

impl From<Limit> for Span {
    fn from(limit: Limit) -> Self {
        Self::from_millis(limit.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        perilog_host::config::parse("edge.toml", text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_has_every_key_and_its_default() {
        let example = include_str!("../edge.toml.example");
        assert_eq!(parse(example), Ok(Config::default()));
        let keys: toml::Table = Config::default().to_toml().parse().unwrap();
        for key in keys.keys() {
            assert!(example.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is not in the example");
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, expect) in [
            ("flux = 'run/flux'", "edge.toml:1:8: flux: expected an absolute path"),
            ("online-patience = 'infinity'", "expected a duration that ends"),
            ("instance = ''", "expected 1 to 64 of"),
            ("online_patience = '1m'", "did you mean `online-patience`?"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
