//! Frame of a message: the message number and the body. The module counts the fields of a body, and refuses too many,
//! before it decodes the body.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::error::{At, DecodeError, Fault};

/// Maximum size of a frame in bytes.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// Maximum number of fields in a record (a protobuf message, whole or nested) that has a list. An empty list element
/// takes two bytes on the wire and some hundred in memory: this bound keeps a hostile peer from filling the memory with
/// one frame.
pub const MAX_FIELDS: usize = 16_384;

/// The contents of a decoded frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded<T> {
    Known(T),
    /// Contains a message number: that of a message that this version does not know, or that of a known message with an
    /// unknown kind of content. The receiver answers `Unsupported`, and the session goes on.
    Unknown(u32),
}

/// Encodes a message as a frame: its number and its body.
pub(crate) fn seal(number: u16, body: &impl Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(2 + body.encoded_len());
    frame.put_u16(number);
    body.encode_raw(&mut frame);
    debug_assert!(frame.len() <= MAX_MESSAGE, "message {number} of {} bytes", frame.len());
    frame.freeze()
}

/// Decodes a frame. `name`: maps a message number to the message's name, or to `None` if this version does not know it.
/// `read`: decodes the body of the message with the given number.
pub(crate) fn open<T>(
    frame: &[u8],
    name: impl Fn(u16) -> Option<&'static str>,
    read: impl Fn(u16, &[u8]) -> Result<T, Fault>,
) -> Result<Decoded<T>, DecodeError> {
    let error = |why: String| DecodeError { message: "frame", field: String::new(), why };
    if frame.len() > MAX_MESSAGE {
        return Err(error(format!("{} bytes, at most {MAX_MESSAGE} are taken", frame.len())));
    }
    let Some((number, body)) = frame.split_first_chunk::<2>() else {
        return Err(error(format!("{} bytes, at least 2 are needed", frame.len())));
    };
    let number = u16::from_be_bytes(*number);
    let Some(message) = name(number) else {
        return Ok(Decoded::Unknown(number.into()));
    };
    match read(number, body) {
        Ok(known) => Ok(Decoded::Known(known)),
        Err(fault) => fault.in_message(message).map_or(Ok(Decoded::Unknown(number.into())), Err),
    }
}

/// Decodes a record, after checking that it has at most [`MAX_FIELDS`] fields.
pub(crate) fn record<M: Message + Default>(bytes: &[u8]) -> Result<M, Fault> {
    let fields = count_fields(bytes)?;
    if fields > MAX_FIELDS {
        return Err(Fault::bad(format!("{fields} fields, at most {MAX_FIELDS} are taken")));
    }
    Ok(M::decode(bytes)?)
}

/// Decodes a record that is a field of another record as bytes, as [`record`] does. `field`: the field's name, for
/// errors.
pub(crate) fn nested<M: Message + Default>(bytes: &[u8], field: &'static str) -> Result<M, Fault> {
    record(bytes).at(field)
}

/// Counts the fields of an encoded record (protobuf, "Message Structure"); a nested record counts as one field.
///
/// # Errors
/// A [`Fault`] if the bytes are no record, or use a group, which the protocol does not have.
fn count_fields(mut bytes: &[u8]) -> Result<usize, Fault> {
    let cut = || Fault::bad("ends within a field");
    let mut count = 0;
    while !bytes.is_empty() {
        let key = prost::decode_length_delimiter(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                prost::decode_length_delimiter(&mut bytes)?;
                0
            }
            1 => 8,
            2 => prost::decode_length_delimiter(&mut bytes)?,
            5 => 4,
            other => return Err(Fault::bad(format!("wire type {other} in field {}", key >> 3))),
        };
        bytes = bytes.get(length..).ok_or_else(cut)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_without_being_read() {
        for (bytes, expect) in [
            (&b""[..], Some(0)),
            (b"\x08\x01", Some(1)),
            (b"\x0a\x02ab\x10\x96\x01", Some(2)),
            (b"\x09\0\0\0\0\0\0\0\0\x0d\0\0\0\0", Some(2)),
            (b"\x0a\x03ab", None),
            (b"\x0b", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ] {
            assert_eq!(count_fields(bytes).ok(), expect, "{bytes:x?}");
        }
    }

    #[test]
    fn a_frame_of_empty_list_elements_is_refused_before_it_is_read() {
        let frame =
            b"\0\x01".iter().copied().chain(std::iter::repeat_n([0x32, 0], 400_000).flatten()).collect::<Vec<_>>();
        let error = crate::decode_from_agent(&frame).unwrap_err();
        assert_eq!(error.to_string(), "malformed Hello: 400000 fields, at most 16384 are taken");
    }
}
