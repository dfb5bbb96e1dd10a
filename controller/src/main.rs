//! Entry point of perilog-controller: parses the command line, reads the configuration and runs the daemon. The library
//! beside this file describes the rest.

use std::path::Path;
use std::process::ExitCode;

use perilog_controller::arguments::{CHECK_STORE, EXPORT, PROGRAM};
use perilog_controller::config::{self, Config};
use perilog_controller::daemon;
use perilog_controller::export::{check_store, export};
use perilog_host::command::Arguments;
use perilog_host::limited::{Lookup, NoAnswer};

/// Maximum number of worker threads. Only one thread writes; more workers would only wait for it.
const MAX_WORKERS: usize = 4;

fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    // `--export` and `--check-store` read a store without a configuration: the store may be a copy on another host.
    if let Ok(arguments) = PROGRAM.parse(std::env::args().skip(1)) {
        if let Some(store) = arguments.own(EXPORT) {
            return PROGRAM.end(export(Path::new(store), &arguments));
        }
        if let Some(store) = arguments.own(CHECK_STORE) {
            return PROGRAM.end(check_store(Path::new(store), &arguments));
        }
    }
    let load = |arguments: &Arguments| Config::read(&arguments.config);
    match PROGRAM.begin(load, warnings) {
        Ok((arguments, loaded)) => PROGRAM.end(serve(&arguments, loaded.value)),
        Err(code) => code,
    }
}

fn warnings(config: &Config) -> Result<Vec<String>, NoAnswer> {
    let config = config.clone();
    Lookup::begin("a group, program or directory that it names", move || config::warnings(&config)).answer()
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
    // Sleeping or reading tokio tasks have nothing left to do.
    runtime.shutdown_background();
    result.map_err(|fault| {
        tracing::error!("{fault}");
        fault.to_string()
    })
}
