//! The command line of perilog-flux.

use perilog_host::command::Program;

use crate::config;

const USAGE: &str = "\
usage: perilog-flux [--config FILE] [ACTION]

Between a Flux instance and perilog's controller: runs prologs and epilogs for Flux's jobs, drains, and tells users. systemd starts it on the node of
rank 0 (perilog-flux.service). See perilog-flux(8).

  --config FILE       the configuration, instead of /etc/perilog/edge.toml; beside it the drop-ins of edge.d
  --check-config      say whether the configuration can be used, and end
  --print-config      the configuration with all defaults and where each value is from, and end
  --let-go JOB        finish what perilog holds of a job, whatever perilog makes of it, and end. `all`: of every job
  --version, --help

Exit status: 0 it was told to end, 1 it cannot run, 2 wrong usage or configuration.
";

pub const LET_GO: &str = "--let-go";

pub const PROGRAM: Program = Program {
    name: "perilog-flux",
    version: env!("CARGO_PKG_VERSION"),
    usage: USAGE,
    config: config::FILE,
    options: &[LET_GO],
};
