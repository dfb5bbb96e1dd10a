//! Parsers of bytes from other programs that are private otherwise, for the fuzz targets of the workspace.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use tokio_util::codec::Decoder as _;

use crate::config::{ConfigError, parse_files};
use crate::enroll::Ask;
use crate::{enroll, link, munge, tls, varlink};

/// Returns whether the answer of `unmunge` is well formed.
pub fn is_unmunged(output: &[u8]) -> bool {
    munge::read(output).is_ok()
}

/// Returns the frames in these bytes, which arrive in pieces of at most `piece` bytes; ends at the first frame that is
/// too large.
pub fn frames(bytes: &[u8], piece: usize) -> Vec<Bytes> {
    let (mut codec, mut buffer, mut frames) = (link::codec(), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame.freeze()),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}

/// Parses a message of Varlink as a request `T`: an enum with a variant for each method.
///
/// # Errors
/// A text for the client or the log: the message is no request, or its parameters do not fit `T`.
pub fn request<T: DeserializeOwned>(message: &[u8]) -> Result<T, String> {
    varlink::parse_request(message)
}

/// Parses the line that a node sends to enrol.
pub fn question(line: &[u8]) -> Option<Ask> {
    serde_json::from_slice(line).ok()
}

/// Parses the line with which the controller answers a node that enrols: the certificate, or the reason of a refusal.
///
/// # Errors
/// The reason why the line is no answer.
pub fn answer(line: &[u8]) -> Result<Result<String, String>, String> {
    enroll::parse_answer(line)
}

/// Parses several configuration files as one: the main file, then its drop-ins.
///
/// # Errors
/// [`ConfigError`]
pub fn configuration<T: DeserializeOwned>(files: &[(&Path, &str)]) -> Result<T, ConfigError> {
    parse_files(files)
}

/// Returns the DNS names and the serial number of a certificate (DER).
pub fn certificate(der: &[u8]) -> (Vec<String>, Option<String>) {
    let der = rustls::pki_types::CertificateDer::from(der);
    (tls::dns_names(&der), tls::serial_number(&der))
}
