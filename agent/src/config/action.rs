//! `[action.NAME]`: the scripts that this node runs for an action, and their conversion to a [`Plan`].

use std::collections::BTreeMap;

use perilog_core::Span;
use perilog_core::ids::ActionName;
use perilog_core::task::{Empty, Lingering, OnError, OnTimeout, Plan, Retries, Run, ScriptPlan};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::values::{AbsolutePath, Limit, OwnVariable, ScriptName, Umask, UserName, VariableValue, Within};

/// Default limit of open descriptors of a script. The value is high enough for any script, and within the default of
/// fs.nr_open, so that the runner needs no privilege.
const NOFILE: i64 = 524_288;
/// A hundred years in milliseconds: the limit of a script whose own `timeout` is infinite. A script without a limit of
/// its own (`None`) would get the action's `script-timeout` instead.
const FOREVER_MS: u64 = 3_155_760_000_000;

/// The table `[action.NAME]` as written. This type, and no other place, defines the defaults of absent keys.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default, remote = "Self")]
pub struct Action {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<Vec<AbsolutePath>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    pub user: UserName,
    pub cwd: AbsolutePath,
    pub path: String,
    pub umask: Umask,
    pub timeout: Span,
    pub script_timeout: Span,
    pub on_timeout: OnTimeout,
    pub on_error: OnError,
    pub empty: Empty,
    pub lingering: Lingering,
    pub nofile: Within<64, 1_073_741_816>,
    pub memory_max: Limit,
    pub tasks_max: Limit,
    /// CPU weight of the unit, 1 to 10000; without the key, systemd's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_weight: Option<Within<1, 10_000>>,
    pub oom_score_adjust: Within<-1000, 1000>,
    pub retries: Tries,
    pub env: BTreeMap<OwnVariable, VariableValue>,
    pub script: BTreeMap<ScriptName, Script>,
}

impl Default for Action {
    fn default() -> Self {
        Self {
            directories: None,
            command: None,
            user: UserName("root".to_owned()),
            cwd: AbsolutePath("/".to_owned()),
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            umask: Umask(0o022),
            timeout: Span::INFINITE,
            script_timeout: Span::INFINITE,
            on_timeout: OnTimeout::default(),
            on_error: OnError::default(),
            empty: Empty::default(),
            lingering: Lingering::default(),
            nofile: Within(NOFILE),
            memory_max: Limit(None),
            tasks_max: Limit(None),
            cpu_weight: None,
            oom_score_adjust: Within(0),
            retries: Tries::default(),
            env: BTreeMap::new(),
            script: BTreeMap::new(),
        }
    }
}

/// The table `retries`: how often, and after which pauses, the runner tries a failed script again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Tries {
    /// Maximum number of retries. The bound of 100 keeps the runner from retrying a script without end.
    pub count: Within<0, 100>,
    pub backoff: Span,
    pub ceiling: Span,
}

impl Default for Tries {
    fn default() -> Self {
        Self { count: Within(0), backoff: Span::from_secs(1), ceiling: Span::from_secs(30) }
    }
}

/// `[action.NAME.script."FILE"]`: settings of a script.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Script {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    pub tolerable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Tries>,
}

/// Reads the table with the derived reader, then checks the rules that concern several keys.
impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let action = Self::deserialize(deserializer)?;
        match (&action.directories, &action.command) {
            (Some(_), Some(_)) => {
                Err(de::Error::custom("`directories` and `command` exclude each other; keep one of them"))
            }
            (Some(directories), _) if directories.is_empty() => {
                Err(de::Error::custom("`directories` must name at least one directory"))
            }
            (_, Some(command)) if !command.first().is_some_and(|program| program.starts_with('/')) => {
                Err(de::Error::custom("the first word of `command` must be the absolute path of a program"))
            }
            _ => Ok(action),
        }
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl Action {
    /// Fills in defaults from the action's name: without `directories` and `command`, the directory is
    /// `/etc/perilog/NAME.d`.
    pub(super) fn complete(&mut self, name: &ActionName) {
        if self.directories.is_none() && self.command.is_none() {
            self.directories = Some(vec![AbsolutePath(format!("/etc/perilog/{name}.d"))]);
        }
    }

    /// Returns the plan that core and the runner execute.
    pub(super) fn plan(&self) -> Plan {
        let run = match (&self.command, &self.directories) {
            (Some(command), _) => Run::Command(command.clone()),
            (None, directories) => Run::Directories(directories.iter().flatten().map(|dir| dir.0.clone()).collect()),
        };
        Plan {
            run,
            user: self.user.0.clone(),
            cwd: self.cwd.0.clone(),
            path: self.path.clone(),
            umask: self.umask.0,
            env: self.env.iter().map(|(name, value)| (name.0.clone(), value.0.clone())).collect(),
            timeout_ms: limit(self.timeout),
            script_timeout_ms: limit(self.script_timeout),
            on_timeout: self.on_timeout,
            on_error: self.on_error,
            empty: self.empty,
            lingering: self.lingering,
            retries: self.retries.plan(),
            scripts: self.script.iter().map(|(name, script)| (name.0.clone(), script.plan())).collect(),
            nofile: self.nofile.unsigned(),
            memory_max: self.memory_max.0,
            tasks_max: self.tasks_max.0,
            cpu_weight: self.cpu_weight.map(Within::unsigned),
            // The key's bounds are within an i32.
            oom_score_adjust: i32::try_from(self.oom_score_adjust.0).unwrap_or(0),
        }
    }
}

impl Tries {
    fn plan(self) -> Retries {
        let millis = |span: Span| span.as_millis().unwrap_or(u64::MAX);
        // The key's bounds are within a u32.
        let count = u32::try_from(self.count.0).unwrap_or(0);
        Retries { count, backoff_ms: millis(self.backoff), ceiling_ms: millis(self.ceiling) }
    }
}

impl Script {
    fn plan(&self) -> ScriptPlan {
        ScriptPlan {
            user: self.user.as_ref().map(|user| user.0.clone()),
            timeout_ms: self.timeout.map(|span| limit(span).unwrap_or(FOREVER_MS)),
            retries: self.retries.map(Tries::plan),
            tolerable: self.tolerable,
        }
    }
}

/// Returns the limit in milliseconds; `None` for no limit. Zero means no limit, as with Flux and Slurm.
fn limit(span: Span) -> Option<u64> {
    span.as_millis().filter(|millis| *millis > 0)
}
