//! The command line of perilog-agent.

use std::path::PathBuf;
use std::time::Duration;

use perilog_core::Span;
use perilog_host::command::{Arguments, LOG, Program};

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-agent [OPTIONS]

Runs the prologs, epilogs and housekeeping of jobs on this node, as systemd units that outlive the agent.

  --config FILE     the configuration [/etc/perilog/agent.toml]; drop-ins are in a directory agent.d beside it
  --run-dir DIR     the directory of files that must outlive the agent, but not the boot [/run/perilog]
  --await-tasks LIMIT
                    wait until no script runs on this node and the controller has every outcome; scripts get
                    LIMIT (10m), then SIGTERM, then SIGKILL. For a node that goes down: perilog-shutdown.service
                    runs it
  --log LEVEL       error, warn, info, debug or trace; overrides `log` of the configuration, and PERILOG_LOG
  --check-config    say what is wrong with the configuration, and end
  --print-config    print the configuration that is in force, each value with the line that it is from, and end
  --version, --help

Exit status: 0 ended on request, 1 it cannot run, 2 wrong usage or configuration.
";

pub const PROGRAM: Program = Program {
    name: "perilog-agent",
    version: env!("CARGO_PKG_VERSION"),
    usage: USAGE,
    config: config::FILE,
    options: &[LOG, RUN_DIR, AWAIT_TASKS],
};

const RUN_DIR: &str = "--run-dir";
const AWAIT_TASKS: &str = "--await-tasks";

/// Returns the directory of `--run-dir`, for files that must outlive the agent. The path is absolute, because the
/// runner has another working directory.
///
/// # Errors
/// Text: the path is empty, or there is no working directory to resolve a relative path.
pub fn run_dir(arguments: &Arguments) -> Result<PathBuf, String> {
    let given = arguments.own(RUN_DIR).unwrap_or("/run/perilog");
    std::path::absolute(given).map_err(|error| format!("{RUN_DIR} {given}: {error}"))
}

/// Returns how long a node that shuts down waits for its scripts, if `--await-tasks` is given: a Flux Standard Duration
/// (RFC 23).
///
/// # Errors
/// Text: the value is no duration.
pub fn await_tasks(arguments: &Arguments) -> Result<Option<Duration>, String> {
    let Some(value) = arguments.own(AWAIT_TASKS) else { return Ok(None) };
    let span = Span::parse(value).map_err(|error| format!("{AWAIT_TASKS} {value}: {error}"))?;
    Ok(Some(span.as_duration().unwrap_or(Duration::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_absolute() {
        let parse = |line: &str| run_dir(&PROGRAM.parse(line.split_whitespace().map(str::to_owned)).unwrap()).unwrap();
        assert_eq!(parse("").to_str(), Some("/run/perilog"));
        assert!(parse("--run-dir=here").is_absolute());
    }

    #[test]
    fn the_limit_is_a_duration() {
        let parse = |line: &str| PROGRAM.parse(line.split_whitespace().map(str::to_owned));
        let limit = |line: &str| await_tasks(&parse(line).unwrap());
        assert_eq!(limit(""), Ok(None));
        assert_eq!(limit("--await-tasks 1.5m"), Ok(Some(Duration::from_secs(90))));
        assert!(limit("--await-tasks soon").unwrap_err().starts_with("--await-tasks soon: "));
        assert!(parse("--await-tasks").unwrap_err().contains("--await-tasks needs a value"));
    }
}
