//! Messages of RFC 3 as the broker's local socket carries them (`local://PATH`).
//!
//! ```text
//!   the broker's first byte: 0, or an errno
//!   message: magic (u32 0xffee0012, host order), size (u32 BE), frames
//!   frame:   size (u8, or 0xff and u32 BE), bytes
//!   frames:  [route...] [empty: the routes' end] [topic] [payload: JSON and NUL] proto
//!   proto:   0x8e, 1, type, flags, userid BE, rolemask BE, nodeid or errnum BE, matchtag BE: 20 bytes
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const MAGIC: u32 = 0xffee_0012;
const PROTO_MAGIC: u8 = 0x8e;
const VERSION: u8 = 1;
const PROTO_SIZE: usize = 20;
/// Maximum size of a message in bytes: room for R and the jobspec of a large job. The edge treats a larger message as
/// malformed.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;

/// Maximum room in bytes that the edge makes for what has not come yet.
const MAX_AHEAD: usize = 64 * 1024;

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

const TOPIC: u8 = 1;
const PAYLOAD: u8 = 2;
const NO_RESPONSE: u8 = 4;
const ROUTE: u8 = 8;
const STREAMING: u8 = 64;

/// The node id that lets Flux choose a rank.
pub const ANY: u32 = u32::MAX;
/// Bit of the instance owner's role (RFC 12).
pub const OWNER: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Request {
        nodeid: u32,
    },
    Response {
        errnum: u32,
    },
    /// An event, or a message of Flux's overlay network; the edge ignores both.
    Other(u8),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    pub flags: u8,
    pub userid: u32,
    pub rolemask: u32,
    pub matchtag: u32,
    pub routes: Vec<Bytes>,
    pub topic: String,
    /// The payload without its NUL; `None`: the message has no payload.
    pub payload: Option<Bytes>,
}

/// The bytes from the broker are no message: the connection is of no further use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the broker's message cannot be read: {0}")]
pub struct Malformed(&'static str);

impl Message {
    pub fn request(topic: &str, payload: &str, nodeid: u32, matchtag: u32, is_streaming: bool) -> Self {
        Self {
            kind: Kind::Request { nodeid },
            flags: TOPIC | PAYLOAD | ROUTE | if is_streaming { STREAMING } else { 0 },
            // The broker overwrites `userid` and `rolemask` with the identity of the edge.
            userid: u32::MAX,
            rolemask: 0,
            matchtag,
            routes: Vec::new(),
            topic: topic.to_owned(),
            payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
        }
    }

    /// Returns the answer that refuses this request; `None` if this message is no request, or its
    /// sender wants no answer.
    pub fn refusal(&self, errnum: u32) -> Option<Self> {
        let wants_one = matches!(self.kind, Kind::Request { .. }) && self.flags & NO_RESPONSE == 0;
        wants_one.then(|| Self {
            kind: Kind::Response { errnum },
            flags: (self.flags & !(PAYLOAD | STREAMING)) | ROUTE,
            payload: None,
            ..self.clone()
        })
    }

    /// Returns `true` if the instance's owner sent this message.
    pub const fn is_of_owner(&self) -> bool {
        self.rolemask & OWNER != 0
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut frames = BytesMut::new();
        if self.flags & ROUTE != 0 {
            self.routes.iter().for_each(|route| frame(&mut frames, route));
            frame(&mut frames, b"");
        }
        if self.flags & TOPIC != 0 {
            frame(&mut frames, self.topic.as_bytes());
        }
        if let Some(payload) = &self.payload {
            frame(&mut frames, &[payload, &b"\0"[..]].concat());
        }
        let (kind, aux) = match self.kind {
            Kind::Request { nodeid } => (REQUEST, nodeid),
            Kind::Response { errnum } => (RESPONSE, errnum),
            Kind::Other(kind) => (kind, 0),
        };
        let mut proto = vec![PROTO_MAGIC, VERSION, kind, self.flags];
        [self.userid, self.rolemask, aux, self.matchtag].iter().for_each(|number| proto.extend(number.to_be_bytes()));
        frame(&mut frames, &proto);
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend(u32::try_from(frames.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(&frames);
        bytes
    }

    /// Takes the next message from the front of the buffer; `None`: the buffer has no whole message yet.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn decode(from: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        let Some((head, _)) = from.split_first_chunk::<8>() else { return Ok(None) };
        let (magic, size) = ([head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        if u32::from_ne_bytes(magic) != MAGIC {
            return Err(Malformed("no magic"));
        }
        let size = u32::from_be_bytes(size) as usize;
        if size > MAX_MESSAGE {
            return Err(Malformed("too large"));
        }
        if from.len() < 8 + size {
            // Eight bytes of a header are no reason for the room of a whole message.
            from.reserve((8 + size - from.len()).min(MAX_AHEAD));
            return Ok(None);
        }
        from.advance(8);
        Self::of(from.split_to(size).freeze()).map(Some)
    }

    fn of(mut bytes: Bytes) -> Result<Self, Malformed> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            frames.push(take_frame(&mut bytes)?);
        }
        let proto = frames.pop().filter(|proto| proto.len() == PROTO_SIZE).ok_or(Malformed("no proto frame"))?;
        if proto[0] != PROTO_MAGIC || proto[1] != VERSION {
            return Err(Malformed("another version"));
        }
        let (kind, flags) = (proto[2], proto[3]);
        let mut numbers = proto.slice(4..);
        let (userid, rolemask, aux, matchtag) =
            (numbers.get_u32(), numbers.get_u32(), numbers.get_u32(), numbers.get_u32());
        let kind = match kind {
            REQUEST => Kind::Request { nodeid: aux },
            RESPONSE => Kind::Response { errnum: aux },
            other => Kind::Other(other),
        };
        let mut rest = frames.into_iter();
        let mut routes = Vec::new();
        if flags & ROUTE != 0 {
            loop {
                match rest.next() {
                    Some(route) if route.is_empty() => break,
                    Some(route) => routes.push(route),
                    None => return Err(Malformed("routes without an end")),
                }
            }
        }
        let topic = if flags & TOPIC != 0 { rest.next().ok_or(Malformed("no topic"))? } else { Bytes::new() };
        let topic = String::from_utf8(topic.into()).map_err(|_| Malformed("a topic that is no text"))?;
        let payload = if flags & PAYLOAD != 0 { Some(rest.next().ok_or(Malformed("no payload"))?) } else { None };
        let payload = payload.map(|payload| match payload.strip_suffix(b"\0") {
            Some(text) => payload.slice(..text.len()),
            None => payload,
        });
        if rest.next().is_some() {
            return Err(Malformed("a frame too many"));
        }
        Ok(Self { kind, flags, userid, rolemask, matchtag, routes, topic, payload })
    }
}

fn frame(into: &mut BytesMut, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(size) if size < u8::MAX => into.put_u8(size),
        _ => {
            into.put_u8(u8::MAX);
            into.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
    }
    into.put_slice(bytes);
}

fn take_frame(bytes: &mut Bytes) -> Result<Bytes, Malformed> {
    let size = match bytes.get_u8() {
        u8::MAX if bytes.len() < 4 => return Err(Malformed("a frame without its size")),
        u8::MAX => bytes.get_u32() as usize,
        size => size.into(),
    };
    if size > bytes.len() {
        return Err(Malformed("a frame that is larger than its message"));
    }
    Ok(bytes.split_to(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways(message: &Message) {
        let bytes = message.encode();
        let mut buffer = BytesMut::new();
        // Adds byte by byte: decoding consumes nothing before the message is complete.
        for byte in &bytes[..bytes.len() - 1] {
            buffer.put_u8(*byte);
            assert_eq!(Message::decode(&mut buffer), Ok(None));
        }
        buffer.put_u8(bytes[bytes.len() - 1]);
        assert_eq!(Message::decode(&mut buffer).as_ref(), Ok(&Some(message.clone())));
        assert!(buffer.is_empty());
    }

    #[test]
    fn messages_come_back_as_they_were() {
        both_ways(&Message::request("attr.get", r#"{"name":"rank"}"#, ANY, 7, false));
        // Past the short form of a frame's size, and at its edge.
        for size in [253, 254, 255, 256, 70_000] {
            both_ways(&Message::request("x", &"a".repeat(size), 0, 1, true));
        }
        let request = Message {
            routes: vec![Bytes::from_static(b"c0ffee"), Bytes::from_static(b"1")],
            rolemask: 2,
            userid: 1000,
            ..Message::request("perilog.x", "{}", 0, 3, true)
        };
        both_ways(&request);
        let refusal = request.refusal(1).unwrap();
        both_ways(&refusal);
        assert_eq!((&refusal.routes, refusal.matchtag, refusal.payload.is_none()), (&request.routes, 3, true));
        assert!(!request.is_of_owner() && refusal.refusal(1).is_none());
    }

    #[test]
    fn a_header_makes_no_room_for_a_message_that_has_not_come() {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&MAGIC.to_ne_bytes());
        bytes.put_u32(MAX_MESSAGE as u32);
        assert_eq!(Message::decode(&mut bytes), Ok(None));
        assert!(bytes.capacity() < 4 * MAX_AHEAD, "{}", bytes.capacity());
    }

    /// Bytes that are no message end the connection, not the process.
    #[test]
    fn what_is_no_message_is_refused() {
        let good = Message::request("x", "{}", 0, 1, false).encode();
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                let _ = Message::decode(&mut BytesMut::from(&bytes[..]));
            }
        }
        let mut wrong = good;
        wrong[0] ^= 1;
        assert_eq!(Message::decode(&mut BytesMut::from(&wrong[..])), Err(Malformed("no magic")));
    }
}
