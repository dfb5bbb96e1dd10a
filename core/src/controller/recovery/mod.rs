//! Recovery: what the controller does with a store that is behind what its nodes have accepted, for example after a
//! restore from a backup. The store's facts stay. Its pending work is dropped: the controller *abandons* each attempt
//! that is not fully released. It begins, sends and releases nothing of an abandoned attempt, until a request for that
//! attempt arrives again and so *takes it up*: an edge's list, a hook or `perilog run` that waits, or an operator.
//!
//! ```text
//!   start --> gate shut --all nodes said Hello, or a time passed--> gate open
//!      \                                                               |
//!       evidence: a copy's stamp, the anchor, or nodes with commits that this store never made
//!                \------> new generation, grace begins <--------------/
//!                              \--the grace is over--> hosts are judged: unknown tasks, missing clean-ups
//! ```
//!
//! * **The gate.** After every start, the attempts of the store are *suspended* until the gate opens: the controller
//!   begins, sends and releases no pending work of the store. A request for an attempt lets it proceed at once.
//! * **A generation** is one commit that abandons all attempts ([`generation`]). Abandoned attempts are suspended too.
//! * **The grace** is the time in which hooks, edges and users ask for their jobs again. Drains for unknown tasks and
//!   missing clean-ups wait until it is over.
//! * **A lost epoch** is an epoch of the controller whose commits this store lacks. Tasks of a lost epoch may run on
//!   nodes.
//! * **An unknown task** is a task that a node holds and the store lacks, or of an attempt that no request has taken
//!   up.
//!
//! Files: `evidence` (is the store behind?), `gate` (the wait after a start), `generation` (abandoning and taking up),
//! `held_back` (why a task waits), `unknown` (tasks that the store lacks), `missing` (clean-ups that may not have run),
//! `give_up` (ranks whose hosts another job has).

mod evidence;
mod gate;
mod generation;
mod give_up;
mod held_back;
mod missing;
mod unknown;

pub(super) use held_back::suspended;
