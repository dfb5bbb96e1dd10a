//! The command line of perilog-agent.

use std::path::PathBuf;
use std::time::Duration;

use perilog_core::Span;

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-agent [OPTIONS]

Runs the prologs, epilogs and housekeeping of jobs on this node, as systemd units that outlive it.

  --config FILE     the configuration [/etc/perilog/agent.toml]; drop-ins are in a directory agent.d beside it
  --run-dir DIR     what must outlive the agent, but not the boot [/run/perilog]
  --await-tasks LIMIT
                    wait until no script runs on this node and the controller has every outcome; scripts get LIMIT (10m), then SIGTERM,
                    then SIGKILL. For a node that goes down: perilog-shutdown.service runs it
  --check-config    say what is wrong with the configuration, and end
  --print-config    print the configuration that is in force, and end
  --version, --help

Exit status: 0 it was told to end, 1 it cannot run, 2 wrong usage or configuration.
";

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Serve,
    /// At most so long for scripts that run.
    AwaitTasks(Duration),
    CheckConfig,
    PrintConfig,
    Version,
    Help,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    pub act: Act,
    pub config: PathBuf,
    pub run_dir: PathBuf,
}

/// Reads the arguments after the program's name; `--option VALUE` and `--option=VALUE` are the same.
///
/// # Errors
/// Text that names the argument.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed =
        Arguments { act: Act::Serve, config: PathBuf::from(config::FILE), run_dir: PathBuf::from("/run/perilog") };
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let act = match name {
            "--config" | "--run-dir" | "--await-tasks" => {
                let value = attached.or_else(|| rest.next()).filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| format!("{name} needs a value"))?;
                match name {
                    "--config" => parsed.config = value.into(),
                    "--run-dir" => parsed.run_dir = absolute(value.into())?,
                    _ => parsed.act = Act::AwaitTasks(limit(name, &value)?),
                }
                continue;
            }
            "--check-config" => Act::CheckConfig,
            "--print-config" => Act::PrintConfig,
            "--version" | "-V" => Act::Version,
            "--help" | "-h" => Act::Help,
            _ => return Err(format!("unknown argument {argument:?}")),
        };
        if attached.is_some() {
            return Err(format!("{name} takes no value"));
        }
        parsed.act = act;
    }
    Ok(parsed)
}

/// A Flux Standard Duration (RFC 23).
fn limit(name: &str, value: &str) -> Result<Duration, String> {
    let span = Span::parse(value).map_err(|error| format!("{name} {value}: {error}"))?;
    Ok(span.as_duration().unwrap_or(Duration::MAX))
}

/// The runner is told this path, and has another working directory.
fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|error| format!("--run-dir {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        let default = parse("").unwrap();
        assert_eq!((default.act, default.run_dir.to_str()), (Act::Serve, Some("/run/perilog")));
        let both = parse("--config=/a.toml --run-dir /r --check-config").unwrap();
        assert_eq!(
            (both.act, both.config.to_str(), both.run_dir.to_str()),
            (Act::CheckConfig, Some("/a.toml"), Some("/r"))
        );
        assert_eq!(parse("--await-tasks 1.5m").unwrap().act, Act::AwaitTasks(Duration::from_secs(90)));
        for (line, part) in [
            ("--config", "--config needs a value"),
            ("--config=", "needs a value"),
            ("--help=x", "takes no value"),
            ("--await-tasks", "--await-tasks needs a value"),
            ("--await-tasks soon", "--await-tasks soon: "),
            ("-x", "\"-x\""),
            ("serve", "\"serve\""),
        ] {
            assert!(parse(line).unwrap_err().contains(part), "{line}");
        }
    }
}
