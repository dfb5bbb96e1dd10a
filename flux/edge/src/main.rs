//! perilog-flux: parse, configure, run, exit. The library beside this file documents the daemon.

use std::process::ExitCode;

use perilog_flux::arguments::{DROP_HOLD, PROGRAM};
use perilog_flux::config::{self, Config};
use perilog_flux::daemon;
use perilog_host::command::Arguments;

fn main() -> ExitCode {
    let load = |arguments: &Arguments| Config::read(&arguments.config);
    match PROGRAM.begin(load, |config| Ok(config::warnings(config))) {
        Ok((arguments, loaded)) => PROGRAM.end(run(&arguments, &loaded.value)),
        Err(code) => code,
    }
}

fn run(arguments: &Arguments, config: &Config) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    if let Some(job) = arguments.own(DROP_HOLD) {
        return runtime.block_on(daemon::release(config, job));
    }
    perilog_host::journal::init("perilog-flux", config.log.as_str()).map_err(|error| error.to_string())?;
    runtime.block_on(daemon::run(config)).map_err(|fault| {
        tracing::error!("{fault}");
        fault
    })
}
