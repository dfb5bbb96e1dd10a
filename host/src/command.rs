//! Command line of a daemon, and the daemon's acts beside serving: check or print the configuration, print version or
//! usage.
//!
//! Exit status of every daemon: 0 asked to end, 1 cannot run, 2 wrong usage or configuration.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::config::{ConfigError, Loaded};
use crate::journal;
use crate::limited::{Lookup, NoAnswer};

/// Exit status of a daemon that cannot run or had to end.
const CANNOT: u8 = 1;
/// Exit status for wrong usage or configuration: the daemon started nothing.
const WRONG: u8 = 2;

/// The option with the level of a daemon's log. It goes before `PERILOG_LOG` and the configuration.
pub const LOG: &str = "--log";

/// A daemon, as its command line describes it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    pub version: &'static str,
    pub usage: &'static str,
    /// Path of the configuration, unless `--config` names another.
    pub config: &'static str,
    /// Options of this daemon that take a value, such as `--run-dir`. The value of [`LOG`], if that is among them, is
    /// the level of the log.
    pub options: &'static [&'static str],
}

/// The act that the command line requests.
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
    own: BTreeMap<String, String>,
}

impl Arguments {
    /// Returns the value of one of [`Program::options`], such as `--run-dir`; `None` if the option was not given.
    pub fn own(&self, name: &str) -> Option<&str> {
        self.own.get(name).map(String::as_str)
    }
}

impl Program {
    /// Parses the arguments after the program's name. `--option VALUE` and `--option=VALUE` are the same; the last of
    /// several counts.
    ///
    /// # Errors
    /// Text that names the argument.
    pub fn parse(&self, arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut parsed = Arguments { act: Act::Serve, config: self.config.into(), own: BTreeMap::new() };
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let act = match name {
                name if name == "--config" || self.options.contains(&name) => {
                    let value = attached.or_else(|| rest.next()).filter(|value| !value.is_empty());
                    let value = value.ok_or_else(|| format!("{name} needs a value"))?;
                    if name == "--config" {
                        parsed.config = value.into();
                    } else {
                        parsed.own.insert(name.to_owned(), value);
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

    /// Parses the command line and carries out the act that it requests. To serve, returns the arguments and the
    /// configuration, which `load` reads. Any other act, such as printing the configuration, is complete on return.
    ///
    /// `warnings` returns sentences about values that are well formed but cannot work on this host; its error names a
    /// part of the host that does not answer. If the files of the configuration do not answer, the daemon ends: systemd
    /// starts the daemon again, and shows the reason.
    ///
    /// # Errors
    /// The exit status with which the daemon ends, after an error or any act but serving. All messages were printed.
    pub fn begin<T: Serialize + Send + 'static>(
        &self,
        load: impl FnOnce(&Arguments) -> Result<Loaded<T>, ConfigError> + Send + 'static,
        warnings: impl FnOnce(&T) -> Result<Vec<String>, NoAnswer>,
    ) -> Result<(Arguments, Loaded<T>), ExitCode> {
        let arguments = self.parse(std::env::args().skip(1)).map_err(|text| self.misused(&text))?;
        if let Some(level) = arguments.own(LOG) {
            journal::check_level(level).map_err(|error| self.misused(&error.to_string()))?;
            journal::insist(level);
        }
        match arguments.act {
            Act::Help => return Err(print(self.usage)),
            Act::Version => return Err(print(&format!("{} {}\n", self.name, self.version))),
            Act::Serve | Act::CheckConfig | Act::PrintConfig => {}
        }
        let file = arguments.clone();
        let loaded =
            Lookup::begin(format!("configuration {}", arguments.config.display()), move || load(&file)).answer();
        let loaded = loaded.map_err(|none| self.complain(&none.to_string(), CANNOT))?;
        let loaded = loaded.map_err(|error| self.complain(&error.to_string(), WRONG))?;
        match arguments.act {
            Act::CheckConfig => {
                for warning in warnings(&loaded.value).map_err(|none| self.complain(&none.to_string(), CANNOT))? {
                    let _ = writeln!(std::io::stderr(), "warning: {warning}");
                }
                Err(print(&format!("{}: ok\n", arguments.config.display())))
            }
            Act::PrintConfig => Err(match loaded.print() {
                Ok(text) => print(&text),
                Err(text) => self.complain(&text, CANNOT),
            }),
            _ => Ok((arguments, loaded)),
        }
    }

    /// Prints the mistake `text` in the command line, then the usage. Returns the exit status for wrong usage.
    pub fn misused(&self, text: &str) -> ExitCode {
        self.complain(&format!("{text}\n\n{}", self.usage), WRONG)
    }

    /// Prints the reason why serving ended, and converts it to an exit status.
    pub fn end(&self, served: Result<(), String>) -> ExitCode {
        served.map_or_else(|text| self.complain(&text, CANNOT), |()| ExitCode::SUCCESS)
    }

    /// Prints the text to standard error and returns `status`. Ignores errors, because standard error may be closed.
    fn complain(&self, text: &str, status: u8) -> ExitCode {
        let _ = writeln!(std::io::stderr(), "{}: {}", self.name, text.trim_end());
        ExitCode::from(status)
    }
}

/// Prints the text to standard output and returns success. Ignores errors, because standard output may be closed.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let program =
            Program { name: "d", version: "1", usage: "Usage: d", config: "/etc/d.toml", options: &["--run-dir"] };
        let parse = |line: &str| program.parse(line.split_whitespace().map(str::to_owned));
        let default = parse("").unwrap();
        assert_eq!((default.act, default.config.to_str()), (Act::Serve, Some("/etc/d.toml")));
        assert_eq!(default.own("--run-dir"), None);
        let both = parse("--config=/a.toml --run-dir /r --check-config").unwrap();
        assert_eq!((both.act, both.config.to_str()), (Act::CheckConfig, Some("/a.toml")));
        assert_eq!(both.own("--run-dir"), Some("/r"));
        for (line, part) in [
            ("--config", "--config needs a value"),
            ("--config=", "needs a value"),
            ("--run-dir", "--run-dir needs a value"),
            ("--help=x", "takes no value"),
            ("-x", "\"-x\""),
            ("serve", "\"serve\""),
        ] {
            assert!(parse(line).unwrap_err().contains(part), "{line}");
        }
    }
}
