//! Plan of an action on its node: what runs, as whom, within which limits, and what happens when a script fails, passes
//! its limit, or leaves processes behind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Lingering;

/// The plan of an action on this node: the node's configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub run: Run,
    /// The user who runs scripts, unless a script has a user of its own.
    pub user: String,
    pub cwd: String,
    pub path: String,
    pub umask: u32,
    /// The variables that the node sets for every script. They override variables of the requester.
    pub env: BTreeMap<String, String>,
    /// Limit in milliseconds of the whole task; `script_timeout_ms`: of each script. `None`: no limit.
    pub timeout_ms: Option<u64>,
    pub script_timeout_ms: Option<u64>,
    pub on_timeout: OnTimeout,
    pub on_error: OnError,
    /// The outcome of a task that has no script to run.
    #[serde(default)]
    pub empty: Empty,
    pub lingering: Lingering,
    pub retries: Retries,
    /// Settings of single scripts, by file name.
    pub scripts: BTreeMap<String, ScriptPlan>,
    pub nofile: u64,
    pub memory_max: Option<u64>,
    pub tasks_max: Option<u64>,
    pub cpu_weight: Option<u64>,
    pub oom_score_adjust: i32,
}

impl Default for Plan {
    /// Returns a plan that runs nothing: as root, without limits, and with `hold` for processes that linger.
    fn default() -> Self {
        Self {
            run: Run::Command(Vec::new()),
            user: "root".to_owned(),
            cwd: "/".to_owned(),
            path: "/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            umask: 0o022,
            env: BTreeMap::new(),
            timeout_ms: None,
            script_timeout_ms: None,
            on_timeout: OnTimeout::default(),
            on_error: OnError::default(),
            empty: Empty::default(),
            lingering: Lingering::Hold,
            retries: Retries::default(),
            scripts: BTreeMap::new(),
            nofile: 1024,
            memory_max: None,
            tasks_max: None,
            cpu_weight: None,
            oom_score_adjust: 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// Directories of scripts. The runner takes the directories in this order, and the scripts within one by the bytes
    /// of the names.
    Directories(Vec<String>),
    /// One command in place of directories: the program and its arguments.
    Command(Vec<String>),
}

/// The settings of one script. `None`: the setting of the plan counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScriptPlan {
    pub user: Option<String>,
    pub timeout_ms: Option<u64>,
    pub retries: Option<Retries>,
    /// Whether a non-zero exit of the script makes the task `tolerable` and not `failed`.
    #[serde(default)]
    pub tolerable: bool,
}

/// The retries of a failed script. The runner waits `backoff_ms` before the first retry, doubled each time up to
/// `ceiling_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retries {
    pub count: u32,
    pub backoff_ms: u64,
    pub ceiling_ms: u64,
}

/// The policy for a script that runs past its limit. Under either policy, the runner first sends TERM, at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// The script may run on, overdue, and perilog drains the node.
    #[default]
    Drain,
    /// The runner sends KILL after a grace of ten seconds.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    #[default]
    Continue,
    Stop,
}

/// The outcome of a task that has no script to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Empty {
    /// The task is `ok`, and its end says that no script ran.
    #[default]
    Ok,
    /// The task is `failed`, because the site requires a script on each node.
    Fail,
}
