//! The agent's machine: everything a node decides about its tasks, and nothing of how it is done. One value, `handle(input, now) ->
//! effects`: the daemon waits for an edge, hands in an [`Input`], carries out the [`Effect`]s. Whatever can fail comes back as an input;
//! whatever must be durable before the next step is confirmed before that step is asked for.
//!
//! ```text
//!   Start, Exec                                        found at start: intent, no claim, no unit
//!        |                                                     |
//!        v                                                     v
//!    RECORDING --cannot be written: refused, forgotten     UNCONFIRMED
//!        | IntentWritten: Accepted                             | Begin, Start, Exec
//!        v                                                     |
//!     QUEUED <-------------------------------------------------+
//!        | nobody holds the host (guard)  \
//!        v                                 \ cancelled, too late, released, other boot
//!    STARTING --Rejected------------------> WITHDRAWING --the claim is ours--+
//!        |  \                                 ^     \                        |
//!        |   \ Exists, Unknown, bus lost      |      \ a runner has it       |
//!        |    v                               |       v                      |
//!        |   DOUBT --not there, no claim: QUEUED, or after six starts        |
//!        |    | it is ours                            |                      |
//!        v    v                                       |                      |
//!        LIVE <---------------------------------------+                      |
//!        | main process gone, nothing lingers                                |
//!        v                                                                   |
//!    CONCLUDING <------------------------------------------------------------+
//!        | OutcomeWritten: unload the unit, Finished (again with each session)
//!        v
//!      ENDED --Ack--> BURYING --Buried--> a tombstone, until it is forgotten
//! ```
//!
//! What must stay true: the intent is on disk before anybody is told; no unit is asked for while nobody wants its task; of a task that
//! nobody claimed no end is written before the claim is ours; an end is told only after it is on disk. Told without a file are only those
//! that were never taken on (refused here, or meant for another boot), and tombstones.
//!
//! The rooms: `machine` (state and dispatch), `start` (taking on), `guard` (whose turn it is), `unit` (what systemd says), `claim`
//! (withdrawing, cancelling, signals), `watch` (limits behind the runner's), `ending` (outcome to tombstone), `tombs`, `join` (coming up), `session` and `hello` (the
//! controller), `boot` (a boot that a script announced), `exec` (the host's own tasks), `orphan` (those of them whose hook is
//! gone), `phase` and `status` (what is shown), `task` and `backoff` (the values they share).

mod backoff;
mod boot;
mod claim;
mod ending;
mod exec;
mod guard;
mod hello;
pub mod io;
mod join;
mod machine;
mod marks;
mod orphan;
mod phase;
mod session;
mod start;
mod status;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod tombs;
mod unit;
mod watch;

pub use io::{Effect, Input, Node, Now, Policy};
pub use machine::Machine;
