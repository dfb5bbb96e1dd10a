//! Connection to the runner over `$PERILOG_CONTROL`: sends one report and reads the answers.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use perilog_core::Span;
use perilog_core::task::Report;

use crate::protocol::{MAX_RECORD, Reply};
use crate::{REFUSED, UNACKNOWLEDGED, UNKNOWN, USAGE};

/// Longest wait for the runner's answer to a report. The runner usually answers at once. While it inspects a script
/// past its limit, the answer takes some seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Longest time in milliseconds for which the program waits on its socket: a year.
const MAX_WAIT_MS: u64 = 365 * 86_400_000;

/// Sends the report and waits until the runner has accepted it. For a reboot, then waits at most `wait_ms` until the
/// controller knows.
///
/// # Errors
/// The exit status of perilog-report, and the reason.
pub(crate) fn send(report: &Report, wait_ms: u64) -> Result<(), (u8, String)> {
    let mut record = serde_json::to_vec(report).map_err(|e| (USAGE, e.to_string()))?;
    record.push(b'\n');
    if record.len() > MAX_RECORD {
        return Err((USAGE, format!("the report has {} bytes, and the limit is {MAX_RECORD}", record.len())));
    }
    let path = env::var_os("PERILOG_CONTROL").ok_or_else(|| {
        (
            UNACKNOWLEDGED,
            "PERILOG_CONTROL is not set: perilog-report works only in a script that perilog runs".to_owned(),
        )
    })?;
    let unacknowledged = |e: io::Error| match e.kind() {
        // The socket belongs to the script's user.
        io::ErrorKind::PermissionDenied => {
            let uid = rustix::process::geteuid().as_raw();
            (REFUSED, format!("refused: uid {uid} is neither root nor the user of the script that runs"))
        }
        _ => (UNACKNOWLEDGED, format!("not acknowledged: {}: {e}", path.to_string_lossy())),
    };
    let mut runner = Runner::send(&path, &record).map_err(unacknowledged)?;
    let mut reply = runner.reply(ANSWER_WITHIN).map_err(unacknowledged)?;
    if reply == Reply::Recorded {
        let unknown = |e: io::Error| {
            let within = Span::from_millis(wait_ms);
            let why = format!("recorded on this node, but the controller did not acknowledge it within {within} ({e})");
            (UNKNOWN, format!("{why}: if the node reboots now, its task may count as lost"))
        };
        // A socket's timeout cannot be longer.
        let wait = Duration::from_millis(wait_ms.clamp(1, MAX_WAIT_MS));
        reply = runner.reply(wait).map_err(unknown)?;
    }
    match reply {
        Reply::Acknowledged => Ok(()),
        Reply::Recorded => Err((UNKNOWN, "the runner answered twice that the report is recorded".to_owned())),
        Reply::Refused { why } => Err((REFUSED, format!("refused: {why}"))),
    }
}

/// Connection to the runner, after the program has tried to send the report.
struct Runner {
    stream: BufReader<io::Take<UnixStream>>,
    /// The error of sending the report; `None`: the report was sent. The runner may answer with a refusal before it has
    /// read the report. So if an answer came, the program ignores this error.
    written: Option<io::Error>,
}

impl Runner {
    fn send(path: &std::ffi::OsStr, record: &[u8]) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let written = stream.write_all(record).err();
        // Room for two answers; the refusal of a record may quote the record.
        Ok(Self { stream: BufReader::new(stream.take(4 * MAX_RECORD as u64)), written })
    }

    fn reply(&mut self, within: Duration) -> io::Result<Reply> {
        self.stream.get_ref().get_ref().set_read_timeout(Some(within))?;
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            let hung_up =
                || io::Error::new(io::ErrorKind::UnexpectedEof, "the runner closed the connection without an answer");
            return Err(self.written.take().unwrap_or_else(hung_up));
        }
        serde_json::from_slice(&line).map_err(io::Error::from)
    }
}
