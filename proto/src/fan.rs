//! One Start to many ranks: what they have in common is encoded once.

use bytes::{Buf, Bytes};
use perilog_core::task::Start;
use perilog_core::{BootId, Rank};
use prost::Message;

use crate::frame::seal;
use crate::to_agent::START;
use crate::wire;

/// Makes the frames of one action's Starts.
#[derive(Debug, Clone)]
pub struct StartFan {
    common: Bytes,
}

impl StartFan {
    /// What the Starts of this action have in common: all of `start` but its rank and boot.
    pub fn new(start: &Start) -> Self {
        let common = wire::Common::of(start).encode_to_vec();
        Self { common: common.into() }
    }

    /// The frame for one rank, as [`crate::encode_to_agent`] would make it.
    pub fn for_rank(&self, rank: Rank, boot: &BootId) -> Bytes {
        debug_assert!(self.common.has_remaining(), "a Start has ids");
        seal(START, &wire::Start { common: self.common.clone(), rank: rank.0, boot: boot.to_string() })
    }
}
