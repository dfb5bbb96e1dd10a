//! Machine of the agent: decides everything about the tasks of a node, without any I/O. The machine has one entry,
//! `handle(input, now) -> effects`. The daemon around the machine waits for an event, hands in an [`Input`], and
//! carries out the [`Effect`]s. The result of a fallible effect comes back as an input. A step that relies on a file
//! follows only after an input has confirmed the file.
//!
//! ```text
//!   Start, Exec                                        found at start: intent, no claim, no unit
//!        |                                                     |
//!        v                                                     v
//!    RECORDING --cannot be written: refused, forgotten     UNCONFIRMED
//!        | IntentWritten: Accepted                             | Begin, Start, Exec
//!        v                                                     |
//!     QUEUED <-------------------------------------------------+
//!        | no other task in the way (guard) \
//!        v                                 \ cancelled, too late, released, other boot
//!    STARTING --Rejected------------------> WITHDRAWING --the claim is ours--+
//!        |  \                                 ^     |                        |
//!        |   \ Exists, Unknown, bus lost      |     | the claim is not ours  |
//!        |    v                               |     v                        |
//!        |   DOUBT --no unit, no claim--------+   DOUBT                      |
//!        |    |      (QUEUED again, up to six starts)                        |
//!        |    | the unit is the task's                                       |
//!        v    v                                                              |
//!        LIVE                                                                |
//!        | main process gone, nothing lingers                                |
//!        v                                                                   |
//!    CONCLUDING <------------------------------------------------------------+
//!        | OutcomeWritten: unload the unit, Finished (again with each session)
//!        v
//!      ENDED --Ack--> WRITING TOMBSTONE --TombstoneWritten--> a tombstone, until it is forgotten
//! ```
//!
//! Invariants: the intent is on disk before the agent reports the task. The agent starts no unit for an unconfirmed
//! task. The agent writes the end of an unclaimed task only after it has taken the claim. The agent reports an end only
//! after the end is on disk, in an outcome or a tombstone. Exception: for a task that it never accepted (refused here,
//! or meant for another boot) the agent reports an end without a file.
//!
//! The files: `machine` (state and dispatch), `start` (acceptance), `guard` (turns), `unit` (systemd's answers),
//! `claim` (withdrawing, cancelling, signals), `stall` (first scripts that do not begin), `watch` (limits that a deaf
//! runner misses), `ending` (outcome to tombstone), `tombstones` (tombstones), `reconcile` (what the host has at
//! start, and when the bus is lost and comes back), `session` and `hello` (the controller), `boot` (announced
//! reboots), `exec` (local tasks, which a caller on the node's own socket requests), `orphan` (local tasks whose hook
//! has died), `marks` (commits that the host knows), `phase` and `status` (views), `task` and `backoff` (shared
//! values).

mod backoff;
mod boot;
mod claim;
mod ending;
mod exec;
mod guard;
mod hello;
pub mod io;
mod machine;
mod marks;
mod orphan;
mod phase;
mod reconcile;
mod session;
mod stall;
mod start;
mod status;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod tombstones;
mod unit;
mod watch;

pub use io::{Effect, Input, Node, Now, Policy};
pub use machine::Machine;
