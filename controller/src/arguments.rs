//! The command line of perilog-controller.

use perilog_host::command::{LOG, Program};

use crate::config;

pub const USAGE: &str = "\
Usage: perilog-controller [OPTIONS]

Has the agents of a cluster run the prologs, epilogs and housekeeping of jobs, and keeps what became of them.

  --config FILE     the configuration [/etc/perilog/controller.toml]; drop-ins are in a directory controller.d beside it
  --log LEVEL       error, warn, info, debug or trace; goes before the configuration's log, and before PERILOG_LOG
  --check-config    say what is wrong with the configuration, and end
  --print-config    print the configuration that is in force, each value with the line that it is from, and end
  --export STORE    write what a store knows of jobs as JSON lines, and end; also of a copy (perilog export --store)
    --job JOB         only this one
    --since-ms MS     jobs of which something happened then or later, in milliseconds since 1970
    --until-ms MS     jobs that began before then
  --check-store FILE  say whether a file is a whole store of this version, or of an earlier one, and end
                      (perilog controller restore)
    --copy-to NEW     and make NEW a whole copy of it, which a controller takes for a copy
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
