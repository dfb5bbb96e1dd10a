//! `cargo xtask sim --seed S` prints one history to read; `--for FSD` searches fresh seeds on all cores.

mod commands;
mod defects;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask sim --seed S         the history of a seed, line by line
                       --plan FILE      the history of a plan that was kept (sim/regressions)
                       --for FSD        histories of fresh seeds on all cores, for so long
                       --count N        of so many seeds
                       --replay FILE    the trace in a log of perilog-controller --log trace, played again
                       --shrink S FILE  the smallest plan that fails as seed S does, into FILE
with --for and --count: --from S        seeds from S on
                        --json FILE     the report for programs
                        --keep DIR      the smallest plans of what failed (sim/regressions)
                        --first         no further than the first violation
0: everything held; 1: something did not; 2: this was not understood; 3: it could not be done
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match commands::run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(commands::Trouble::Usage(why)) => {
            eprintln!("perilog-sim: {why}\n{HELP}");
            ExitCode::from(2)
        }
        Err(commands::Trouble::Failed(why)) => {
            eprintln!("perilog-sim: {why}");
            ExitCode::from(3)
        }
    }
}
