//! Frames: a length in four bytes, big endian, then as many bytes.

use std::net::SocketAddr;

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_util::codec::length_delimited::LengthDelimitedCodecError;
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use super::{LinkError, Shared};

/// Maximum size of a frame in bytes. Senders split larger content into pages.
pub const MAX_FRAME: usize = 1024 * 1024;

/// Size in bytes of the read buffer of an idle connection: larger than nearly every message. (The codec's own 8 KiB
/// would be 80 MB at ten thousand connections.)
const READ_BUFFER: usize = 512;

pub(super) fn split(peer: SocketAddr, stream: Shared) -> (FrameReader, FrameWriter) {
    let (read, write) = (stream.clone(), stream);
    let frames = FramedRead::with_capacity(read, codec(), READ_BUFFER);
    (FrameReader { peer, frames }, FrameWriter { peer, half: write, rest: None })
}

/// Returns the codec that finds the frames in the bytes of a peer.
pub(crate) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().big_endian().length_field_length(4).max_frame_length(MAX_FRAME).new_codec()
}

/// The reading half of a link: reads whole frames.
#[derive(Debug)]
pub struct FrameReader {
    peer: SocketAddr,
    frames: FramedRead<Shared, LengthDelimitedCodec>,
}

impl FrameReader {
    /// Returns the next frame; `None`: the peer has ended the connection in an orderly way. Cancel safe. After an error
    /// the connection is useless.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LinkError> {
        // The codec frees a large frame's memory together with the frame.
        match self.frames.next().await {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame.freeze())),
            Some(Err(error)) => {
                let too_large = error.get_ref().is_some_and(|inner| inner.is::<LengthDelimitedCodecError>());
                let peer = self.peer.to_string();
                Err(match too_large {
                    true => LinkError::FrameTooLarge { peer, limit: MAX_FRAME },
                    false => LinkError::of(peer, error),
                })
            }
        }
    }

    #[cfg(test)]
    pub(super) fn buffer_capacity(&self) -> usize {
        self.frames.read_buffer().capacity()
    }
}

/// The writing half of a link: writes frames without copying them, so that one encoding of a message serves every
/// connection.
#[derive(Debug)]
pub struct FrameWriter {
    peer: SocketAddr,
    half: Shared,
    /// Unwritten part of the last frame and its length; `None` if the frame was written completely.
    rest: Option<Chain<Bytes, Bytes>>,
}

impl FrameWriter {
    /// Writes one frame. If the caller drops the future half-way, the next call first writes the rest: frames are never
    /// torn.
    ///
    /// The kernel (TCP_USER_TIMEOUT), or the caller, limits the time of this call.
    pub async fn send(&mut self, frame: Bytes) -> Result<(), LinkError> {
        let length = match u32::try_from(frame.len()) {
            Ok(length) if frame.len() <= MAX_FRAME => length,
            _ => {
                return Err(LinkError::FrameTooLarge { peer: self.peer.to_string(), limit: MAX_FRAME });
            }
        };
        self.write_rest().await?;
        self.rest = Some(Bytes::copy_from_slice(&length.to_be_bytes()).chain(frame));
        self.write_rest().await?;
        self.half.flush().await.map_err(|error| LinkError::of(self.peer, error))
    }

    /// Ends the connection in an orderly way (TLS close_notify, FIN).
    pub async fn close(&mut self) -> Result<(), LinkError> {
        self.write_rest().await?;
        self.half.shutdown().await.map_err(|error| LinkError::of(self.peer, error))
    }

    async fn write_rest(&mut self) -> Result<(), LinkError> {
        if let Some(rest) = &mut self.rest {
            // Advances `rest` by the written bytes, even if the caller drops the future.
            self.half.write_all_buf(rest).await.map_err(|error| LinkError::of(self.peer, error))?;
            self.rest = None;
        }
        Ok(())
    }
}
