//! `cargo run -p perilog-sim -- --seed S`: one history to read; `--for FSD`: fresh ones on all cores.

mod commands;

use std::process::ExitCode;

const HELP: &str = "\
usage: perilog-sim --seed S             the history of a seed, line by line
       perilog-sim --plan FILE          the history of a plan that was kept (sim/regressions)
       perilog-sim --for FSD [--from S] histories of fresh seeds on all cores, for so long
       perilog-sim --count N [--from S] of so many seeds
       perilog-sim --shrink S FILE      the smallest plan that fails as seed S does, into FILE
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match commands::run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("perilog-sim: {why}\n{HELP}");
            ExitCode::from(2)
        }
    }
}
