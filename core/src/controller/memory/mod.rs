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
//! (`Writer::needs`), reads it from the store in one question, and hands it over (`Writer::take_in`). No code of
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
//! Some jobs that have ended stay, because the state in memory refers to them (`Facts::pinned`): to forget them would
//! change what the machine decides or shows.

mod evict;
mod needs;

pub use needs::Needs;
