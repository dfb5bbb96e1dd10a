//! Memory: which jobs the machine holds. It holds a job while the job has pending work; a job that has ended is in the
//! store alone, until a batch needs it.
//!
//! ```text
//!   in memory --ended, and unchanged for a while--> in the store alone
//!       ^                                                  |
//!       +---- the driver reads its rows before a batch ----+
//! ```
//!
//! A batch must not notice the difference. So the driver asks, before each batch, what the batch needs
//! ([`Writer::needs`]), reads it from the store in one question, and hands it over ([`Writer::take_in`]). No code of
//! the machine reads the store, and none has to know whether a job was away.
//!
//! | a batch needs | because |
//! |---|---|
//! | the jobs that a request names | it is about them |
//! | the jobs and actions that a message of a node names | the node's tasks are compared with the store |
//! | the jobs of the longest unchanged attempts | retention forgets them |
//! | a page of the outbox | a reader asks for it |
//!
//! The notices to the resource manager about a job leave memory with it: if no program reads the outbox, they are as
//! many as the jobs.
//!
//! Some jobs that have ended stay, because the state in memory refers to them ([`Facts::pinned`]): to forget them would
//! change what the machine decides or shows.

mod away;
mod evict;
mod needs;

pub(crate) use away::Away;
pub use needs::{Needs, Oldest};

use serde::{Deserialize, Serialize};

use crate::controller::overview::MAX_VERDICTS;

#[cfg(doc)]
use crate::controller::facts::Facts;
#[cfg(doc)]
use crate::controller::writer::Writer;

/// Number of jobs, attempts and actions that the store has and the machine does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    pub jobs: usize,
    pub attempts: usize,
    pub actions: usize,
    /// The lowest and the highest sequence number of the notices to the resource manager about these jobs; `None`:
    /// there are none.
    pub notices: Option<(u64, u64)>,
}

/// Which jobs stay in memory although they have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Time (ms) after the job has ended, or after a batch has needed it. Nodes that connect again name the same job
    /// within seconds of each other.
    pub ms: u64,
    /// Number of the newest verdicts whose jobs stay: the overview shows them.
    pub verdicts: usize,
}

impl Default for Holding {
    fn default() -> Self {
        Self { ms: 60_000, verdicts: MAX_VERDICTS }
    }
}

impl Holding {
    /// For tests: jobs leave memory at the end of the batch in which they end, and the overview lacks their verdicts.
    pub const NONE: Self = Self { ms: 0, verdicts: 0 };
}
