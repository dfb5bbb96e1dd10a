//! `perilog-controller --export STORE`: prints a store without a running controller, or a copy of a store, as JSON
//! lines on standard output. `perilog export --store` runs this command.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use perilog_core::JobId;
use perilog_host::command::Arguments;
use perilog_host::{clock, terminal};

use crate::arguments::{COPY_TO, JOB, SINCE, UNTIL};
use crate::store::{Exporter, Wanted, export_head};

/// Checks that `store` is a complete store. With the option `--copy-to NEW`, also writes a copy to NEW; a controller
/// that starts with it begins a recovery.
///
/// # Errors
/// A text for standard error: `store` is no whole store, or NEW exists or cannot be made.
pub fn check_store(store: &Path, arguments: &Arguments) -> Result<(), String> {
    crate::store::check(store).map_err(|error| format!("{}: {error}", store.display()))?;
    let Some(to) = arguments.own(COPY_TO) else { return Ok(()) };
    crate::store::install(store, Path::new(to)).map_err(|error| format!("{to}: {error}"))
}

/// Prints the jobs of the store as lines of JSON. The options `--job`, `--since-ms` and `--until-ms` select jobs.
///
/// # Errors
/// A text for standard error: an option is malformed; the store cannot be opened, is not of this version or has a
/// malformed row; the output cannot be written; or the store lacks the job of `--job`.
pub fn export(store: &Path, arguments: &Arguments) -> Result<(), String> {
    let millis = |name: &str| {
        let parse = |text: &str| text.parse().map_err(|_| format!("{name} {text}: expected milliseconds since 1970"));
        arguments.own(name).map(parse).transpose()
    };
    let job = arguments.own(JOB).map(|text| text.parse::<JobId>().map_err(|error| error.to_string())).transpose()?;
    let named = job.clone();
    let wanted = Wanted { job, since_ms: millis(SINCE)?, until_ms: millis(UNTIL)? };
    let reported = |error: &dyn std::fmt::Display| format!("{}: {error}", store.display());
    let mut exporter = Exporter::open(store, wanted).map_err(|error| reported(&error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut line = |value: &serde_json::Value| writeln!(out, "{}", terminal::json(value));
    let written = |result: io::Result<()>| result.map_err(|error| format!("cannot write the output: {error}"));
    written(line(&export_head(clock::wall_ms())))?;
    let mut none = true;
    while let Some(lines) = exporter.next_job().map_err(|error| reported(&error))? {
        none = false;
        written(lines.iter().try_for_each(&mut line))?;
    }
    written(out.flush())?;
    match named {
        Some(job) if none => Err(reported(&format!("no job {job}"))),
        _ => Ok(()),
    }
}
