//! Environment of a script, built from nothing. Later layers override earlier ones:
//!
//! 1. `LANG=C.UTF-8`
//! 2. variables from outside that passed the node's list (`intent.env`)
//! 3. the script's user: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`
//! 4. the node's own (`plan.env`)
//! 5. `PERILOG_*`, which no layer overrides
//!
//! Variables from systemd to the runner never pass, even if a configuration names them: with `NOTIFY_SOCKET`, a script
//! could report in the unit's name.

use std::collections::BTreeMap;
use std::path::Path;

use perilog_core::environment::is_own;
use perilog_core::task::Intent;

use crate::lists::Lists;
use crate::users::User;

pub(crate) type Environment = BTreeMap<String, String>;

/// Variables between systemd and the runner, which no script gets (systemd.exec(5), sd_notify(3), sd_listen_fds(3)).
const NEVER: &[&str] = &[
    "NOTIFY_SOCKET",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    "SYSTEMD_EXEC_PID",
    "MAINPID",
    "MANAGERPID",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "FDSTORE",
    "CREDENTIALS_DIRECTORY",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
];

/// Builds the environment of this task's scripts as `user`. `control` is the runner's socket, if the runner has one.
pub(crate) fn build(intent: &Intent, user: &User, control: Option<&Path>, lists: &Lists) -> Environment {
    let start = &intent.start;
    let mut env = Environment::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("LANG", "C.UTF-8".to_owned());
    for (name, value) in &intent.env {
        set(name, value.clone());
    }
    set("PATH", intent.plan.path.clone());
    set("HOME", user.home.clone());
    set("USER", user.name.clone());
    set("LOGNAME", user.name.clone());
    set("SHELL", user.shell.clone());
    for (name, value) in &intent.plan.env {
        set(name, value.clone());
    }
    env.retain(|name, _| !is_own(name) && !NEVER.contains(&name.as_str()));

    let mut own = |name: &str, value: String| env.insert(name.to_owned(), value);
    own("PERILOG_JOB", start.job.to_string());
    own("PERILOG_RANK", start.task.rank.to_string());
    for (name, value) in &lists.variables {
        own(name, value.clone());
    }
    own("PERILOG_ACTION", start.action.to_string());
    own("PERILOG_ATTEMPT", start.attempt.to_string());
    if let Some(userid) = start.userid {
        own("PERILOG_USERID", userid.to_string());
    }
    if let Some(control) = control {
        own("PERILOG_CONTROL", control.to_string_lossy().into_owned());
    }
    env
}
