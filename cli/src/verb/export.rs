//! `perilog export`: the controller's records of jobs, as JSON lines.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use perilog_core::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{text, values, when};

/// Path of the package's controller, on the host of the store.
const CONTROLLER: &str = "/usr/sbin/perilog-controller";

/// Jobs, attempts, actions, ranks that are not ok, and event logs, as JSON lines
///
/// Each line is an object whose `kind` is export, job, attempt, action, rank or event (operate.md in
/// /usr/share/doc/perilog). Each job is exported completely or not at all. The controller keeps working meanwhile; if
/// it is down, --store reads its file.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    /// Only this job.
    #[arg(value_name = "JOB", value_parser = values::job)]
    job: Option<JobId>,
    /// Only jobs with an event since this time: how long ago (90s, 5m, 2h, 7d, 1w; infinity), a date, or a date and
    /// time.
    #[arg(long = "since", value_name = "TIME", value_parser = when::parse)]
    since_ms: Option<u64>,
    /// Only jobs that began before this time.
    #[arg(long = "until", value_name = "TIME", value_parser = when::parse)]
    until_ms: Option<u64>,
    /// Read this store, or this copy of a store, on this host, without a controller.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    store: Option<PathBuf>,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if let Some(store) = &args.store {
        let mut command = Command::new(CONTROLLER);
        command.arg("--export").arg(store);
        for (name, value) in [
            ("--job", args.job.as_ref().map(ToString::to_string)),
            ("--since-ms", args.since_ms.map(|ms| ms.to_string())),
            ("--until-ms", args.until_ms.map(|ms| ms.to_string())),
        ] {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        }
        // Becomes the controller's program, whose exit status then counts.
        return Err(Fault::File { what: "cannot run", path: CONTROLLER.into(), source: command.exec() });
    }
    let mut client = endpoint.open()?;
    endpoint.follow(&mut client, "Export", &args, |answer: Answer<Lines>| {
        answer.body.lines.into_iter().try_for_each(|line| out.show(&Line(line)))
    })?;
    Ok(Exit::Ok)
}

#[derive(Debug, Deserialize)]
struct Lines {
    lines: Vec<Value>,
}

/// A line of the export. Table, `--json` and `--quiet` all print it as JSON, on one line.
struct Line(Value);

impl Render for Line {
    fn table(&self, page: &mut Page) {
        page.line(text::json(&self.0));
    }

    fn json(&self) -> Option<Value> {
        Some(json!(self.0))
    }

    fn quiet(&self, page: &mut Page) {
        page.line(text::json(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: `perilog export` escaped control characters in text of scripts and users only with `--json`.
    /// The table and `--quiet` sent them to the terminal, which interpreted them.
    #[test]
    fn no_terminal_interprets_an_exported_reason() {
        let [table, json, quiet] = crate::out::tests::render(&Line(json!({ "reason": "csi \u{9b}2J" })), 0);
        assert_eq!(json, "{\"reason\":\"csi \\u009b2J\"}");
        assert_eq!([table.trim_end(), quiet.trim_end()], [&json, &json]);
    }
}
