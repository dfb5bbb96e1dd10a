//! `/etc/perilog/edge.toml` and the drop-ins of `edge.d/`: every key with its default. `edge.toml.example` documents
//! the keys for people; a test compares the two.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perilog_core::{ActionName, ResourceName, Span};
use perilog_host::config::{AbsolutePath, ConfigError, Loaded, LogLevel, MainFile};
use serde::{Deserialize, Serialize};

use crate::plan::view::Site;
use crate::plan::{External, Reference};

/// The configuration file, unless `--config` names another.
pub const FILE: &str = "/etc/perilog/edge.toml";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    pub log: LogLevel,
    pub flux: AbsolutePath,
    pub controller: AbsolutePath,
    /// Name of this instance of Flux, which distinguishes it from other instances that the controller serves.
    pub instance: Name,
    pub online_patience: Limit,
    /// External actions, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub external: BTreeMap<Own, Service>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log: LogLevel::Info,
            flux: AbsolutePath::fixed("/run/flux/local"),
            controller: AbsolutePath::fixed("/run/perilog/controller.sock"),
            instance: Name("system".to_owned()),
            online_patience: Limit(120_000),
            external: BTreeMap::new(),
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
        let externals = self.external.iter().map(|(name, service)| (name.0.clone(), service.external(&name.0)));
        Site { online_patience_ms: self.online_patience.0, externals: externals.collect() }
    }
}

/// An external action: the jobs that have it (`when`), the named resources that it covers, and the time within which
/// its service must report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Service {
    pub when: Field,
    #[serde(default)]
    pub at: At,
    /// Named resources that the action covers; `None`: one resource, with the action's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<BTreeSet<ResourceName>>,
    #[serde(default)]
    pub nodes: bool,
    #[serde(default = "Service::lease")]
    pub lease: Lease,
}

impl Service {
    const fn lease() -> Lease {
        Lease(Limit(300_000))
    }

    fn external(&self, name: &ActionName) -> External {
        // Every action's name is also valid as the name of a resource.
        let own = || ResourceName::new(name.as_str()).into_iter().collect();
        External {
            when: self.when.pointer(),
            at: match self.at {
                At::Prolog => Reference::Prolog,
                At::Epilog => Reference::Epilog,
            },
            resources: self.resources.clone().unwrap_or_else(own),
            nodes: self.nodes,
            lease_ms: self.lease.0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    #[default]
    Prolog,
    Epilog,
}

/// The name of an external action in the configuration. Reading refuses the names that perilog uses itself, such as
/// `prolog`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "ActionName", into = "ActionName")]
pub struct Own(ActionName);

impl TryFrom<ActionName> for Own {
    type Error = &'static str;

    fn try_from(name: ActionName) -> Result<Self, Self::Error> {
        match name.as_str() {
            "prolog" | "epilog" | "housekeeping" | "refused" | "tolerated" => Err("expected a name that perilog does \
             not use itself (prolog, epilog, housekeeping, refused, tolerated)"),
            _ => Ok(Self(name)),
        }
    }
}

impl From<Own> for ActionName {
    fn from(own: Own) -> Self {
        own.0
    }
}

/// A field of a jobspec, such as `attributes.system.dw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Field(String);

impl Field {
    /// Returns the JSON pointer (RFC 6901) to this field, for example `/attributes/system/dw`.
    fn pointer(&self) -> String {
        let escaped = self.0.split('.').map(|name| name.replace('~', "~0").replace('/', "~1"));
        escaped.map(|name| format!("/{name}")).collect()
    }
}

impl TryFrom<String> for Field {
    type Error = &'static str;

    fn try_from(field: String) -> Result<Self, Self::Error> {
        let is_field = field.len() <= 256 && field.split('.').all(|name| !name.is_empty());
        if is_field { Ok(Self(field)) } else { Err("expected names joined by dots, such as attributes.system.dw") }
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.0
    }
}

/// The lease of an external action: a length of time above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Limit", into = "Limit")]
pub struct Lease(Limit);

impl TryFrom<Limit> for Lease {
    type Error = &'static str;

    fn try_from(limit: Limit) -> Result<Self, Self::Error> {
        if limit.0 > 0 { Ok(Self(limit)) } else { Err("expected a duration above zero") }
    }
}

impl From<Lease> for Limit {
    fn from(lease: Lease) -> Self {
        lease.0
    }
}

/// Returns warnings for people about settings that are well formed but will not work here.
pub fn warnings(config: &Config) -> Vec<String> {
    let missing = |(key, socket): (&str, &AbsolutePath)| {
        (!socket.exists()).then(|| format!("{key}: there is no socket {}", socket.display()))
    };
    [("flux", &config.flux), ("controller", &config.controller)].into_iter().filter_map(missing).collect()
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
    fn an_external_action_is_read() {
        let text = "[external.rabbit]\nwhen = 'attributes.system.dw'\n\
            [external.out]\nwhen = 'attributes.system.a/b'\nat = 'epilog'\nresources = []\nnodes = true\nlease = \
            '1m'\n";
        let site = parse(text).unwrap().site();
        let external = |name: &str| &site.externals[&ActionName::new(name).unwrap()];
        let rabbit = External {
            when: "/attributes/system/dw".to_owned(),
            at: Reference::Prolog,
            resources: [ResourceName::new("rabbit").unwrap()].into(),
            nodes: false,
            lease_ms: 300_000,
        };
        assert_eq!(external("rabbit"), &rabbit);
        let out = External {
            when: "/attributes/system/a~1b".to_owned(),
            at: Reference::Epilog,
            resources: BTreeSet::new(),
            nodes: true,
            lease_ms: 60_000,
        };
        assert_eq!(external("out"), &out);
        // The example of the manual page.
        let example = include_str!("../edge.toml.example");
        let lines = example.lines().map(|line| line.strip_prefix("#! ").unwrap_or(line));
        let shown: String = lines.flat_map(|line| [line, "\n"]).collect();
        let shown = parse(&shown).unwrap();
        assert_eq!(shown.site().externals, [(ActionName::new("rabbit").unwrap(), rabbit)].into());
        let jobspec = |dw: serde_json::Value| serde_json::json!({"attributes": {"system": {"dw": dw}}});
        for (dw, count) in [(serde_json::json!("#DW"), 1), (serde_json::json!(null), 0), (serde_json::json!(false), 0)]
        {
            assert_eq!(site.externals_of(&jobspec(dw)).len(), count);
        }
        assert!(site.externals_of(&serde_json::json!({})).is_empty());
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, expect) in [
            ("flux = 'run/flux'", "edge.toml:1:8: flux: expected an absolute path"),
            ("online-patience = 'infinity'", "expected a duration that ends"),
            ("instance = ''", "expected 1 to 64 of"),
            ("[external.prolog]\nwhen = 'a'", "expected a name that perilog does not use itself"),
            ("[external.Rabbit]\nwhen = 'a'", "malformed action name"),
            ("[external.rabbit]\nwhen = 'a..b'", "expected names joined by dots"),
            ("[external.rabbit]\nwhen = 'a'\nlease = '0s'", "expected a duration above zero"),
            ("[external.rabbit]\nlease = '1m'", "missing key `when`"),
            ("online_patience = '1m'", "did you mean `online-patience`?"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
