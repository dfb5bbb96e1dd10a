//! Encodes the Starts of one action for many ranks. Encodes the part that all these Starts have in common only once.

use bytes::{Buf, Bytes};
use perilog_core::task::Start;
use perilog_core::{BootId, Rank};
use prost::Message;

use crate::frame::seal;
use crate::to_agent::START;
use crate::wire;

/// Encoder for the Starts of one action, which differ only in rank, boot and commit.
#[derive(Debug, Clone)]
pub struct StartFan {
    of: Start,
    common: Bytes,
}

impl StartFan {
    /// Encodes the common part of this action's Starts: all of `start` except its rank, boot and commit.
    pub fn new(start: &Start) -> Self {
        let common = wire::Common::of(start).encode_to_vec();
        Self { of: start.clone(), common: common.into() }
    }

    /// Returns `true` if this encoder can also encode `start`, which then differs from the Start given to `new` at most
    /// in rank, boot and commit. The controller asks this when it sends an action's Starts at different times.
    pub fn is_for(&self, start: &Start) -> bool {
        let Start {
            task,
            job,
            attempt,
            action,
            boot: _,
            not_after_ms,
            ranks,
            hosts,
            userid,
            env,
            timeout_ms,
            after,
            milestones,
            commit: _,
        } = start;
        let of = &self.of;
        (task.action, attempt, not_after_ms, userid, timeout_ms, after)
            == (of.task.action, &of.attempt, &of.not_after_ms, &of.userid, &of.timeout_ms, &of.after)
            && (job, action, ranks, hosts) == (&of.job, &of.action, &of.ranks, &of.hosts)
            && (env, milestones) == (&of.env, &of.milestones)
    }

    /// Returns the frame of the Start for one rank, the same bytes as from [`crate::encode_to_agent`]. `commit`: as in
    /// [`Start::commit`].
    pub fn for_rank(&self, rank: Rank, boot: &BootId, commit: u64) -> Bytes {
        debug_assert!(self.common.has_remaining(), "a Start has ids");
        seal(START, &wire::Start { common: self.common.clone(), rank: rank.0, boot: boot.to_string(), commit })
    }
}
