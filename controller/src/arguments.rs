//! The command line of perilog-controller.

use perilog_host::command::{LOG, Program};

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-controller [OPTIONS]

Runs the prologs, epilogs and housekeeping of a cluster's jobs through the agents, and records how each ended.

  --config FILE     the configuration [/etc/perilog/controller.toml]; drop-ins are in controller.d/ beside it
  --log LEVEL       error, warn, info, debug or trace; overrides `log` of the configuration, and PERILOG_LOG
  --check-config    print the problems of the configuration, and exit
  --print-config    print the configuration that is in force, each value with the line that it is from, and exit
  --export STORE    print the jobs of a store or a copy of one as JSON lines, and exit (perilog export --store)
    --job JOB         print only this job
    --since-ms MS     print only jobs that changed at this time or later (milliseconds since 1970)
    --until-ms MS     print only jobs that began before this time
  --check-store FILE  check that a file is a whole store of this version or of an earlier one, and exit
                      (perilog controller restore)
    --copy-to NEW     then write a copy of it to NEW; a controller that starts with NEW begins a recovery
  --version, --help

Exit status: 0 ended on request, 1 it cannot run, 2 wrong usage or configuration.
";

pub const PROGRAM: Program = Program {
    name: "perilog-controller",
    version: env!("CARGO_PKG_VERSION"),
    usage: USAGE,
    config: config::FILE,
    options: &[LOG, CHECK_STORE, COPY_TO, EXPORT, JOB, SINCE, UNTIL],
};

pub const CHECK_STORE: &str = "--check-store";
pub const COPY_TO: &str = "--copy-to";
pub const EXPORT: &str = "--export";
pub const JOB: &str = "--job";
pub const SINCE: &str = "--since-ms";
pub const UNTIL: &str = "--until-ms";
