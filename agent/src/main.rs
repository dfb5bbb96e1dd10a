//! perilog-agent: parse, configure, run, exit. What it does is told by the library beside it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use perilog_agent::arguments::{self, Act, Arguments, USAGE};
use perilog_agent::config::{self, Config};
use perilog_agent::daemon::{self, Places};
use perilog_agent::farewell;

/// Wrong usage, or a wrong configuration: nothing was started.
const WRONG: u8 = 2;
const RUNNER: &str = "/usr/libexec/perilog/perilog-runner";

fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let arguments = match arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => return complain(&format!("{text}\n\n{USAGE}"), WRONG),
    };
    match arguments.act {
        Act::Help => return say(USAGE),
        Act::Version => return say(concat!("perilog-agent ", env!("CARGO_PKG_VERSION"), "\n")),
        Act::AwaitTasks(limit) => return exit(farewell(&arguments, limit)),
        Act::Serve | Act::CheckConfig | Act::PrintConfig => {}
    }
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    match arguments.act {
        Act::CheckConfig => {
            config::warnings(&config).iter().for_each(|warning| eprintln!("warning: {warning}"));
            say(&format!("{}: ok\n", arguments.config.display()))
        }
        Act::PrintConfig => match config.print() {
            Ok(text) => say(&text),
            Err(text) => complain(&text, 1),
        },
        _ => exit(serve(arguments, config)),
    }
}

fn exit(result: anyhow::Result<()>) -> ExitCode {
    result.map_or_else(|error| complain(&format!("{error:#}"), 1), |()| ExitCode::SUCCESS)
}

fn farewell(arguments: &Arguments, limit: Duration) -> anyhow::Result<()> {
    perilog_host::journal::init("perilog-agent", "info")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(farewell::wait(&arguments.run_dir, limit))?)
}

fn serve(arguments: Arguments, config: Config) -> anyhow::Result<()> {
    perilog_host::journal::init("perilog-agent", config.log.as_str())?;
    let places = Places { config: arguments.config, run_dir: arguments.run_dir, runner: PathBuf::from(RUNNER) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(daemon::run(places, config))?;
    Ok(())
}

/// Standard output may be closed; then nobody wants to know.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(text: &str, status: u8) -> ExitCode {
    eprintln!("perilog-agent: {}", text.trim_end());
    ExitCode::from(status)
}
