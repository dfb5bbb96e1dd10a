//! perilog-agent, the daemon of a node: reads the command line and the configuration, and runs the agent. With
//! `--await-tasks`, only waits for the node's scripts at a shutdown. All other code is in the library beside this file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use perilog_agent::arguments::{PROGRAM, await_tasks, run_dir};
use perilog_agent::config::{self, Config};
use perilog_agent::daemon::{self, Places};
use perilog_agent::farewell;
use perilog_core::task::RUNNER;
use perilog_host::command::{Act, Arguments};

fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    // The wait at shutdown must work with any configuration.
    if let Ok(arguments) = PROGRAM.parse(std::env::args().skip(1))
        && arguments.act == Act::Serve
    {
        match await_tasks(&arguments) {
            Ok(None) => {}
            Ok(Some(limit)) => return PROGRAM.end(farewell(&arguments, limit).map_err(|error| error.to_string())),
            Err(text) => return PROGRAM.misused(&text),
        }
    }
    let load = |arguments: &Arguments| Config::read(&arguments.config);
    match PROGRAM.begin(load, config::warnings) {
        Ok((arguments, loaded)) => PROGRAM.end(serve(arguments, loaded.value).map_err(|error| error.to_string())),
        Err(code) => code,
    }
}

fn farewell(arguments: &Arguments, limit: Duration) -> anyhow::Result<()> {
    perilog_host::journal::init("perilog-agent", "info")?;
    let run_dir = run_dir(arguments).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(farewell::wait(&run_dir, limit))?)
}

fn serve(arguments: Arguments, config: Config) -> anyhow::Result<()> {
    perilog_host::journal::init("perilog-agent", config.log.as_str())?;
    let run_dir = run_dir(&arguments).map_err(anyhow::Error::msg)?;
    let places = Places { config: arguments.config, run_dir, runner: PathBuf::from(RUNNER) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(daemon::run(places, config));
    // A file that does not answer keeps no agent from its end.
    runtime.shutdown_background();
    Ok(served?)
}
