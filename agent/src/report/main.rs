//! perilog-report: what a script says about itself. Connects to the runner that runs the script ($PERILOG_CONTROL), says one thing, and
//! ends with 0 only when the runner has recorded it: a script that reports and is not heard must know.

mod args;
mod protocol;

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use args::Command;
use perilog_core::task::Report;
use protocol::{MAX_RECORD, Reply};

const USAGE: u8 = 2;
const UNHEARD: u8 = 7;
const REFUSED: u8 = 8;

/// How long the runner may take to answer. It answers at once but for the seconds in which it looks at a script past its limit.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let told = match args::parse(env::args_os().skip(1)) {
        Ok(Command::Say(report)) => return say(&report).map_or_else(fail, |()| ExitCode::SUCCESS),
        Ok(Command::Help) => io::stdout().write_all(args::HELP.as_bytes()),
        Ok(Command::Version) => writeln!(io::stdout(), "perilog-report {}", env!("CARGO_PKG_VERSION")),
        Err(wrong) => return fail((USAGE, format!("{wrong} (see perilog-report --help)"))),
    };
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn fail((status, why): (u8, String)) -> ExitCode {
    // Without a stderr the status still tells.
    let _ = writeln!(io::stderr(), "perilog-report: {why}");
    ExitCode::from(status)
}

fn say(report: &Report) -> Result<(), (u8, String)> {
    let mut record = serde_json::to_vec(report).map_err(|e| (USAGE, e.to_string()))?;
    record.push(b'\n');
    if record.len() > MAX_RECORD {
        return Err((USAGE, format!("the report has {} bytes, at most {MAX_RECORD} are taken", record.len())));
    }
    let path = env::var_os("PERILOG_CONTROL").ok_or_else(|| {
        (UNHEARD, "PERILOG_CONTROL is not set: not called from a script that perilog runs".to_owned())
    })?;
    let unheard = |e: io::Error| (UNHEARD, format!("not heard: {}: {e}", path.to_string_lossy()));
    match exchange(&path, &record).map_err(unheard)? {
        Reply::Heard => Ok(()),
        Reply::Refused { why } => Err((REFUSED, format!("refused: {why}"))),
    }
}

fn exchange(path: &std::ffi::OsStr, record: &[u8]) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    // Whoever is refused at the door finds the answer there and the door shut: what counts is what can be read.
    let written = stream.write_all(record);
    let mut line = Vec::new();
    // Twice a record: the refusal of a record may quote it.
    BufReader::new(stream.take(2 * MAX_RECORD as u64)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        written?;
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the runner hung up without an answer"));
    }
    serde_json::from_slice(&line).map_err(io::Error::from)
}
