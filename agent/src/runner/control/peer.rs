//! A connection to the control socket.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use perilog_core::task::Report;
use rustix::net::SendFlags;

use crate::protocol::{self, MAX_RECORD, Reply};

#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    /// The beginning of a record whose end has not arrived; at most [`MAX_RECORD`] bytes.
    buffer: Vec<u8>,
    gone: bool,
    /// Whether the peer announced a reboot, and waits until the controller knows of it.
    waits: bool,
}

impl Peer {
    /// Accepts a connection of root or `user`. Sends a refusal to any other user, and returns `None`.
    pub(super) fn admit(stream: UnixStream, user: Option<u32>) -> Option<Self> {
        let peer = Self { stream, buffer: Vec::new(), gone: false, waits: false };
        peer.stream.set_nonblocking(true).ok()?;
        let uid = rustix::net::sockopt::socket_peercred(&peer.stream).ok()?.uid.as_raw();
        if uid == 0 || Some(uid) == user {
            return Some(peer);
        }
        peer.answer(&Reply::Refused { why: format!("uid {uid} is neither root nor the user of the script that runs") });
        None
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Reads once from the peer, and answers every record that is complete. `handle` handles a report and returns the
    /// answer, or the reason of a refusal.
    pub(super) fn serve(&mut self, handle: &mut dyn FnMut(Report) -> Result<Reply, String>) {
        let mut chunk = [0; MAX_RECORD];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.gone = true,
            Ok(n) => self.take(&chunk[..n], handle),
            Err(error) => {
                self.gone = !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], handle: &mut dyn FnMut(Report) -> Result<Reply, String>) {
        while !self.gone {
            let end = bytes.iter().position(|b| *b == b'\n');
            let line = &bytes[..end.unwrap_or(bytes.len())];
            let whole = self.buffer.len() + line.len() + 1;
            if whole > MAX_RECORD {
                // The begin of the next record is unknown.
                self.gone = true;
                self.answer(&Reply::Refused { why: format!("the report has more than {MAX_RECORD} bytes") });
                return;
            }
            self.buffer.extend_from_slice(line);
            let Some(end) = end else {
                return;
            };
            let reply = match parse(&self.buffer).and_then(&mut *handle) {
                Ok(reply) => reply,
                Err(why) => Reply::Refused { why },
            };
            self.waits |= reply == Reply::Recorded;
            self.buffer.clear();
            bytes = &bytes[end + 1..];
            self.gone = !self.answer(&reply);
        }
    }

    /// Informs a waiting peer that the controller knows of the announced reboot.
    pub(super) fn known(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.gone |= !self.answer(&Reply::Acknowledged);
        }
    }

    /// Answers without waiting. Returns `false` if the peer does not read its answers: the runner does not store
    /// answers.
    fn answer(&self, reply: &Reply) -> bool {
        let Ok(mut line) = serde_json::to_vec(reply) else {
            return false;
        };
        line.push(b'\n');
        let sent = rustix::net::send(&self.stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.is_ok_and(|sent| sent == line.len())
    }
}

/// Parses a record, a line of JSON, and checks the name of its check or milestone. Other texts in the record may
/// contain anything.
///
/// # Errors
/// The reason, as a text for the script.
fn parse(record: &[u8]) -> Result<Report, String> {
    let report: Report = serde_json::from_slice(record).map_err(|e| format!("not a report: {e}"))?;
    let checked = match &report {
        Report::Tolerable { check, .. } => protocol::check_name("check name", check),
        Report::Milestone { name } => protocol::check_name("milestone name", name),
        Report::Progress { .. } | Report::ExpectReboot | Report::User { .. } => Ok(()),
    };
    checked.map_err(|e| e.to_string())?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    /// Feeds `chunks` to a peer; returns its answers, and `true` if the connection is still open.
    fn answers(chunks: &[&[u8]]) -> (Vec<String>, bool) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut peer = Peer::admit(theirs, None).unwrap();
        let mut acknowledged = 0;
        let mut handle = |_| {
            acknowledged += 1;
            if acknowledged > 2 { Err("enough".to_owned()) } else { Ok(Reply::Acknowledged) }
        };
        for chunk in chunks {
            for part in chunk.chunks(MAX_RECORD) {
                ours.write_all(part).unwrap();
                peer.serve(&mut handle);
            }
        }
        let stays = !peer.is_gone();
        drop(peer);
        let lines = BufReader::new(ours).lines().map_while(Result::ok).collect();
        (lines, stays)
    }

    #[test]
    fn records_in_any_chunks_and_what_is_none() {
        let reboot = br#"{"report":"expect-reboot"}"#;
        let acknowledged = r#"{"reply":"acknowledged"}"#;
        let (two, stays) = answers(&[reboot, b"\n", &reboot[..5], &reboot[5..], b"\n{"]);
        assert_eq!((two, stays), (vec![acknowledged.to_owned(), acknowledged.to_owned()], true));

        let three = [&reboot[..], b"\n", reboot, b"\n", reboot, b"\n"].concat();
        let (lines, stays) = answers(&[&three]);
        assert_eq!(lines[2], r#"{"reply":"refused","why":"enough"}"#);
        assert!(stays && lines.len() == 3);

        for bad in [
            &b"\n"[..],
            b"hello\n",
            br#"{"report":"ok"}
"#,
            br#"{"report":"milestone","name":"a b"}
"#,
            b"\xff\xfe\n",
        ] {
            let (lines, stays) = answers(&[bad, reboot, b"\n"]);
            assert!(stays && lines.len() == 2 && lines[0].contains("refused") && lines[1] == acknowledged, "{lines:?}");
        }
    }

    #[test]
    fn a_record_over_the_limit_ends_the_connection() {
        let of = |length: usize| {
            let mut record = br#"{"report":"user","message":""#.to_vec();
            record.resize(length - 3, b'x');
            record.extend_from_slice(b"\"}\n");
            record
        };
        let (lines, stays) = answers(&[&of(MAX_RECORD)]);
        assert!(stays && lines == [r#"{"reply":"acknowledged"}"#], "{lines:?}");
        let (lines, stays) = answers(&[&of(MAX_RECORD + 1)]);
        assert!(!stays && lines.len() == 1 && lines[0].contains("more than 4096 bytes"), "{lines:?}");
    }
}
