//! Reads requests from a client's socket: splits the byte stream at the NUL that ends each message, and parses the
//! message's JSON.

use std::io;
use std::os::fd::AsFd;

use bytes::{Buf, Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// Maximum size of a request in bytes. The largest reasonable request, an action over all ranks of a large cluster with
/// its environment, takes a tenth of this size.
pub const MAX_REQUEST: usize = 1024 * 1024;
/// Maximum size in bytes of a request of an untrusted peer: a method and a job's id, or some nodes.
pub const MAX_REQUEST_OF_STRANGERS: usize = 8 * 1024;
/// Size in bytes of the read buffer of an idle connection.
const READ_BUFFER: usize = 1024;

/// A method call from the wire (varlink.org/Method-Call); the parameters are unparsed text.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Text of the parameters, a JSON object; `{}` if the client sent none. `None` if the client sent a value that is
    /// no object.
    pub(super) parameters: Option<Box<RawValue>>,
    pub(super) more: bool,
    pub(super) oneway: bool,
    pub(super) upgrade: bool,
}

impl Request {
    pub(super) fn parse(message: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Written<'a> {
            method: String,
            #[serde(borrow)]
            parameters: Option<&'a RawValue>,
            more: Option<bool>,
            oneway: Option<bool>,
            upgrade: Option<bool>,
        }
        let written: Written<'_> = serde_json::from_slice(message)?;
        let parameters = match written.parameters.map(RawValue::get) {
            None | Some("null") => Some(RawValue::from_string("{}".to_owned())?),
            Some(text) if text.starts_with('{') => written.parameters.map(ToOwned::to_owned),
            Some(_) => None,
        };
        Ok(Self {
            method: written.method,
            parameters,
            more: written.more.unwrap_or(false),
            oneway: written.oneway.unwrap_or(false),
            upgrade: written.upgrade.unwrap_or(false),
        })
    }
}

/// The reason why the server cannot read further requests of a client.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("sent a request larger than {0} bytes")]
    TooLarge(usize),
    #[error("sent an invalid Varlink request: {0}")]
    Garbage(#[from] serde_json::Error),
    #[error("went away: {0}")]
    Io(#[from] io::Error),
}

/// Reader of a client's requests from the socket.
#[derive(Debug)]
pub(super) struct Requests {
    half: OwnedReadHalf,
    /// Maximum size of a request in bytes.
    most: usize,
    buffer: BytesMut,
    /// Number of bytes at the buffer's beginning that are known to contain no NUL.
    searched: usize,
    ended: bool,
}

impl Requests {
    pub(super) fn new(half: OwnedReadHalf, most: usize) -> Self {
        Self { half, most, buffer: BytesMut::new(), searched: 0, ended: false }
    }

    /// Waits for the client's next request and returns it; `None` once the client has closed its writing half. Cancel
    /// safe.
    pub(super) async fn next(&mut self) -> Result<Option<Request>, WireError> {
        loop {
            let message = self.take_message();
            if message.as_ref().map_or(self.buffer.len(), Bytes::len) > self.most {
                return Err(WireError::TooLarge(self.most));
            }
            if let Some(message) = message {
                return Ok(Some(Request::parse(&message)?));
            }
            if self.ended {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    /// Removes and returns the next request, if the client has already sent all of it and `fits` returns `true` for it.
    /// Otherwise returns `None` and leaves it for [`Self::next`]. Never waits.
    pub(super) fn take_if(&mut self, fits: impl FnOnce(&Request) -> bool) -> Option<Request> {
        let end = loop {
            match self.end_of_message() {
                Some(end) => break end,
                None if self.buffer.len() > self.most => return None,
                None => self.buffer.reserve(READ_BUFFER),
            }
            if !matches!(self.half.try_read_buf(&mut self.buffer), Ok(1..)) {
                return None;
            }
        };
        let request = Request::parse(&self.buffer[..end]).ok().filter(|request| end <= self.most && fits(request))?;
        self.take_message();
        Some(request)
    }

    /// Resolves when the client has disconnected. Meanwhile reads ahead, up to one request; cancel safe.
    ///
    /// For two kinds of client this never resolves; the server notices their end only when it cannot write a reply. One
    /// kind has sent more than a whole request ahead. The other kind closed its writing half first, as `nc -N` does
    /// while it waits for the answer.
    pub(super) async fn gone(&mut self) {
        while !self.ended && self.buffer.len() <= self.most {
            if self.read().await.is_err() {
                return;
            }
        }
        if !(self.ended && self.hung_up()) {
            std::future::pending::<()>().await;
        }
    }

    /// Returns `true` if both directions of the connection are closed.
    fn hung_up(&self) -> bool {
        let stream: &tokio::net::UnixStream = self.half.as_ref();
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_err() || fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    async fn read(&mut self) -> io::Result<()> {
        self.buffer.reserve(READ_BUFFER);
        if self.half.read_buf(&mut self.buffer).await? == 0 {
            self.ended = true;
        }
        Ok(())
    }

    fn end_of_message(&mut self) -> Option<usize> {
        let end = self.buffer[self.searched..].iter().position(|&byte| byte == 0).map(|at| self.searched + at);
        self.searched = end.unwrap_or(self.buffer.len());
        end
    }

    fn take_message(&mut self) -> Option<Bytes> {
        let end = self.end_of_message()?;
        let message = self.buffer.split_to(end).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        if self.buffer.is_empty() {
            // Frees the buffer between requests: most connections send one request and then wait, or send none.
            self.buffer = BytesMut::new();
        }
        Some(message)
    }
}
