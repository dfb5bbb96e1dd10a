//! Bytes from sockets.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use perilog_core::controller::io::Request;
use perilog_core::task::Report;
use perilog_host::authority::Requested;
use perilog_host::fuzz as host;
use perilog_proto::{
    Decoded, Preamble, decode_from_agent, decode_to_agent, encode_from_agent, encode_to_agent, negotiate,
};
use serde_json::value::RawValue;

use super::{Input, one_line};
use crate::peer::Peer;
use crate::protocol::{MAX_RECORD, Reply};

pub(super) fn preamble(input: &Input<'_>) {
    match input.parse(|| (Preamble::decode(input.bytes), negotiate(input.bytes))) {
        (Ok(read), agreed) => {
            // A release that is no text grows as it becomes one, and is then cut.
            let again = Preamble::decode(&read.encode()).expect("a preamble as it is written");
            assert_eq!((again.lowest, again.highest), (read.lowest, read.highest));
            assert!(again == read || read.release.contains('\u{fffd}'), "{again:?} {read:?}");
            assert!(!read.release.chars().any(char::is_control));
            if let Ok(agreed) = agreed {
                assert!((read.lowest..=read.highest).contains(&agreed.version));
            }
        }
        (Err(error), agreed) => {
            one_line(&error.to_string());
            assert!(agreed.is_err());
        }
    }
}

/// The first byte is the size of the pieces in which the rest arrives.
pub(super) fn frames(input: &Input<'_>) {
    let Some((piece, bytes)) = input.bytes.split_first() else { return };
    let frames = input.parse(|| host::frames(bytes, usize::from(*piece)));
    assert_eq!(frames, host::frames(bytes, usize::MAX), "frames by how they arrive");
    let whole: usize = frames.iter().map(|frame| 4 + frame.len()).sum();
    assert!(whole <= bytes.len());
}

pub(super) fn from_agent(input: &Input<'_>) {
    match input.parse(|| decode_from_agent(input.bytes)) {
        Ok(Decoded::Known(message)) => {
            assert_eq!(decode_from_agent(&encode_from_agent(&message)), Ok(Decoded::Known(message)));
        }
        Ok(Decoded::Unknown(_)) => {}
        Err(error) => one_line(&error.to_string()),
    }
}

pub(super) fn to_agent(input: &Input<'_>) {
    match input.parse(|| decode_to_agent(input.bytes)) {
        Ok(Decoded::Known(message)) => {
            assert_eq!(decode_to_agent(&encode_to_agent(&message)), Ok(Decoded::Known(message)));
        }
        Ok(Decoded::Unknown(_)) => {}
        Err(error) => one_line(&error.to_string()),
    }
}

/// Messages that end with a NUL. Those that are requests to the machine are as the same request in a trace.
pub(super) fn varlink(input: &Input<'_>) {
    for message in input.parts(0) {
        match input.parse(|| host::request::<Request>(message)) {
            Ok(request) => {
                let text = serde_json::to_string(&request).expect("a request is JSON");
                let again: Request = serde_json::from_str(&text).expect("a request's own text");
                assert_eq!(again, request, "{text}");
            }
            Err(why) => one_line(&why),
        }
    }
}

/// A name of a method, a line break, its parameters.
pub(super) fn agent_parameters(input: &Input<'_>) {
    let Some((method, parameters)) = input.text().and_then(|text| text.split_once('\n')) else { return };
    let Ok(parameters) = serde_json::from_str::<&RawValue>(parameters) else { return };
    if let Some(Err(error)) = input.parse(|| perilog_agent::fuzz::parameters(method, parameters)) {
        one_line(&error.to_string());
    }
}

/// The first byte is the size of the pieces in which a script sends the rest; the runner's own connection reads them.
pub(super) fn reports(input: &Input<'_>) {
    let Some((piece, bytes)) = input.bytes.split_first() else { return };
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut peer = Peer::admit(theirs, None).expect("a peer of root");
    let mut reports: Vec<Report> = Vec::new();
    input.parse(|| {
        for piece in bytes.chunks(usize::from(*piece).max(1) * 16) {
            if peer.is_gone() || ours.write_all(piece).is_err() {
                break;
            }
            peer.serve(&mut |report| {
                reports.push(report);
                Ok(Reply::Acknowledged)
            });
        }
    });
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.len() < MAX_RECORD).count();
    assert!(reports.len() <= lines);
    for report in reports {
        let text = serde_json::to_string(&report).expect("a report is JSON");
        assert_eq!(serde_json::from_str::<Report>(&text).ok(), Some(report));
    }
}

pub(super) fn enrolment(input: &Input<'_>) {
    let (asked, answered) = input.parse(|| (host::question(input.bytes), host::answer(input.bytes)));
    if let Some(ask) = asked {
        let text = serde_json::to_vec(&ask).expect("a question is JSON");
        assert!(host::question(&text) == Some(ask), "a question is not as it was");
    }
    if let Ok(Err(why)) | Err(why) = answered {
        one_line(&why);
    }
}

pub(super) fn signing_request(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    if let Err(error) = input.parse(|| Requested::read(text)) {
        one_line(&error.to_string());
    }
}

pub(super) fn certificate(input: &Input<'_>) {
    let (names, serial) = input.parse(|| host::certificate(input.bytes));
    for text in names.iter().chain(serial.iter()) {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

pub(super) fn unmunged(input: &Input<'_>) {
    let is_good = input.parse(|| host::is_unmunged(input.bytes));
    // Without munge's own words nothing is a credential.
    let says = |part: &[u8]| input.bytes.windows(part.len()).any(|bytes| bytes == part);
    assert!(!is_good || (says(b"STATUS:") && says(b"UID:") && says(b"ENCODE_HOST:") && says(b"\n\n")));
}
