//! JSON and a NUL byte: messages out of a byte stream, and what a request looks like.

use std::io;
use std::os::fd::AsFd;

use bytes::{Buf, Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// The largest request. The largest reasonable one, an action over all ranks of a large cluster with its environment, is a tenth of it.
pub const MAX_REQUEST: usize = 1024 * 1024;
/// What an idle connection keeps for reading.
const READ_BUFFER: usize = 1024;

/// A method call as it comes (varlink.org/Method-Call).
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub method: String,
    pub parameters: Option<Value>,
    pub more: Option<bool>,
    pub oneway: Option<bool>,
    pub upgrade: Option<bool>,
}

impl Request {
    /// None if they are no object.
    pub(super) fn take_parameters(&mut self) -> Option<Value> {
        match self.parameters.take() {
            None | Some(Value::Null) => Some(Value::Object(Map::new())),
            Some(object @ Value::Object(_)) => Some(object),
            Some(_) => None,
        }
    }
}

/// Why nothing more can be read from a client.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("sent a request larger than {MAX_REQUEST} bytes")]
    TooLarge,
    #[error("sent what is no Varlink request: {0}")]
    Garbage(#[from] serde_json::Error),
    #[error("went away: {0}")]
    Io(#[from] io::Error),
}

/// The requests of one client.
#[derive(Debug)]
pub(super) struct Requests {
    half: OwnedReadHalf,
    buffer: BytesMut,
    /// So much of the buffer has no NUL.
    searched: usize,
    ended: bool,
}

impl Requests {
    pub(super) fn new(half: OwnedReadHalf) -> Self {
        Self { half, buffer: BytesMut::new(), searched: 0, ended: false }
    }

    /// The next request; none at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Request>, WireError> {
        loop {
            if let Some(message) = self.take_message() {
                return Ok(Some(serde_json::from_slice(&message)?));
            }
            if self.buffer.len() > MAX_REQUEST {
                return Err(WireError::TooLarge);
            }
            if self.ended {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    /// Resolves when the client is gone. Reads on meanwhile, as far as one request goes; cancel safe.
    ///
    /// Two clients are not noticed here but when a reply cannot be written: one that pipelined more than that, and one that closed its writing
    /// half first (as `nc -N` does; it still waits for the answer) and the other half later.
    pub(super) async fn gone(&mut self) {
        while !self.ended && self.buffer.len() <= MAX_REQUEST {
            if self.read().await.is_err() {
                return;
            }
        }
        if !(self.ended && self.hung_up()) {
            std::future::pending::<()>().await;
        }
    }

    /// Whether both directions are closed.
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

    fn take_message(&mut self) -> Option<Bytes> {
        let Some(at) = self.buffer[self.searched..].iter().position(|&byte| byte == 0) else {
            self.searched = self.buffer.len();
            return None;
        };
        let message = self.buffer.split_to(self.searched + at).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        if self.buffer.is_empty() {
            // Nothing is kept between requests: most connections make one and then wait, or make none.
            self.buffer = BytesMut::new();
        }
        Some(message)
    }
}
