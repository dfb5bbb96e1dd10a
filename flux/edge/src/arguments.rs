//! The command line of perilog-flux.

use perilog_host::command::Program;

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-flux [OPTIONS]

Has perilog's controller run the prologs and epilogs of Flux's jobs, drains nodes, and tells users why a job failed.

  --config FILE     the configuration [/etc/perilog/edge.toml]; drop-ins are in a directory edge.d beside it
  --check-config    say what is wrong with the configuration, and end
  --print-config    print the configuration that is in force, each value with the line that it is from, and end
  --drop-hold JOB   release a job that perilog holds in Flux, whatever perilog knows of it, and end; all: every job
  --version, --help

Exit status: 0 ended on request, 1 it cannot run, 2 wrong usage or configuration.
";

pub const DROP_HOLD: &str = "--drop-hold";

pub const PROGRAM: Program = Program {
    name: "perilog-flux",
    version: env!("CARGO_PKG_VERSION"),
    usage: USAGE,
    config: config::FILE,
    options: &[DROP_HOLD],
};
