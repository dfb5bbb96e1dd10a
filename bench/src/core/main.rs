//! `perilog-bench-core`: time of the controller's machine for one action over thousands of ranks, without I/O
//! (`cases`).
//!
//! A separate program, because the counting of allocations would slow down the other measurements. Prints like
//! `bench/src/main.rs`.

mod cases;
mod disk;
mod history;
mod nodes;
mod site;
mod size;
mod slowest;
mod yardstick;

use std::alloc::System;
use std::io::Write as _;
use std::process::ExitCode;

use perilog_bench::options::Options;
use perilog_bench::report;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments).and_then(|options| report::print(&cases::run(&options, ALLOCATOR)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "perilog-bench-core: {error:#}");
            ExitCode::FAILURE
        }
    }
}
