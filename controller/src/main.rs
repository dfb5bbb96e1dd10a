//! perilog-controller: parse, configure, run, exit. What it does is told by the library beside it.

use std::io::Write as _;
use std::process::ExitCode;

use perilog_controller::arguments::{self, Act, Arguments, USAGE};
use perilog_controller::config::Config;
use perilog_controller::daemon;

/// Wrong usage, or a wrong configuration: nothing was started.
const WRONG: u8 = 2;
/// One thread writes; more than so many would only wait for it.
const MAX_WORKERS: usize = 4;

fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let arguments = match arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => return complain(&format!("{text}\n\n{USAGE}"), WRONG),
    };
    match arguments.act {
        Act::Help => return say(USAGE),
        Act::Version => return say(concat!("perilog-controller ", env!("CARGO_PKG_VERSION"), "\n")),
        Act::Serve | Act::CheckConfig | Act::PrintConfig => {}
    }
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    match arguments.act {
        Act::CheckConfig => say(&format!("{}: ok\n", arguments.config.display())),
        Act::PrintConfig => say(&config.to_toml()),
        _ => match serve(&arguments, config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => complain(&text, 1),
        },
    }
}

fn serve(arguments: &Arguments, config: Config) -> Result<(), String> {
    perilog_host::journal::init("perilog-controller", config.log.as_str()).map_err(|error| error.to_string())?;
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_WORKERS));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let result = runtime.block_on(daemon::run(&arguments.config, config));
    // Whatever still sleeps or reads has nothing left to say.
    runtime.shutdown_background();
    result.map_err(|fault| {
        tracing::error!("{fault}");
        fault.to_string()
    })
}

/// Standard output may be closed; then nobody wants to know.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(text: &str, status: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "perilog-controller: {}", text.trim_end());
    ExitCode::from(status)
}
