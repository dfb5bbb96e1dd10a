//! The command line of perilog-controller.

use std::path::PathBuf;

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-controller [OPTIONS]

Has the agents of a cluster run the prologs, epilogs and housekeeping of jobs, and keeps what became of them.

  --config FILE     the configuration [/etc/perilog/controller.toml]; drop-ins are in a directory controller.d beside it
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
}

/// Reads the arguments after the program's name; `--option VALUE` and `--option=VALUE` are the same.
///
/// # Errors
/// Text that names the argument.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { act: Act::Serve, config: PathBuf::from(config::FILE) };
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let act = match name {
            "--config" => {
                let value = attached.or_else(|| rest.next()).filter(|value| !value.is_empty());
                parsed.config = PathBuf::from(value.ok_or_else(|| format!("{name} needs a value"))?);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        let default = parse("").unwrap();
        assert_eq!((default.act, default.config.to_str()), (Act::Serve, Some("/etc/perilog/controller.toml")));
        let both = parse("--config=/a.toml --check-config").unwrap();
        assert_eq!((both.act, both.config.to_str()), (Act::CheckConfig, Some("/a.toml")));
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
