//! perilog-report: a script's report about itself. The program connects to the script's runner ($PERILOG_CONTROL),
//! sends one report, and exits with 0 only after the runner has recorded the report. So a script notices a lost report.
//! A reboot would destroy the record: `expect-reboot` exits with 0 only after the controller knows, too.

mod args;
mod protocol;
mod runner;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use args::Command;

const USAGE: u8 = 2;
const UNACKNOWLEDGED: u8 = 7;
const REFUSED: u8 = 8;
const UNKNOWN: u8 = 9;

fn main() -> ExitCode {
    let reported = match args::parse(env::args_os().skip(1)) {
        Ok(Command::Send { report, wait_ms }) => {
            return runner::send(&report, wait_ms).map_or_else(fail, |()| ExitCode::SUCCESS);
        }
        Ok(Command::Help) => io::stdout().write_all(args::HELP.as_bytes()),
        Ok(Command::Version) => writeln!(io::stdout(), "perilog-report {}", env!("CARGO_PKG_VERSION")),
        Err(wrong) => return fail((USAGE, format!("{wrong} (see perilog-report --help)"))),
    };
    reported.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn fail((status, why): (u8, String)) -> ExitCode {
    // Without a stderr the exit status still shows the failure.
    let _ = writeln!(io::stderr(), "perilog-report: {why}");
    ExitCode::from(status)
}
