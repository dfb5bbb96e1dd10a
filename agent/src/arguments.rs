//! The command line of perilog-agent.

use std::path::PathBuf;

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-agent [OPTIONS]

Runs the prologs, epilogs and housekeeping of jobs on this node, as systemd units that outlive it.

  --config FILE     the configuration [/etc/perilog/agent.toml]; drop-ins are in a directory agent.d beside it
  --run-dir DIR     what must outlive the agent, but not the boot [/run/perilog]
  --check-config    say what is wrong with the configuration, and end
  --print-config    print the configuration that is in force, and end
  --version, --help

Exit status: 0 it was told to end, 1 it cannot run, 2 wrong usage or configuration.
";

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Serve,
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
            "--config" | "--run-dir" => {
                let value = attached.or_else(|| rest.next()).filter(|value| !value.is_empty());
                let value = PathBuf::from(value.ok_or_else(|| format!("{name} needs a value"))?);
                if name == "--config" {
                    parsed.config = value
                } else {
                    parsed.run_dir = absolute(value)?
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
        for (line, part) in [
            ("--config", "--config needs a value"),
            ("--config=", "needs a value"),
            ("--help=x", "takes no value"),
            ("-x", "\"-x\""),
            ("serve", "\"serve\""),
        ] {
            assert!(parse(line).unwrap_err().contains(part), "{line}");
        }
    }
}
