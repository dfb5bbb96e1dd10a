//! State of the machine, in parts that own what they hold. A part has its look-ups, and acts that change it alone.
//!
//! | file | part |
//! |---|---|
//! | `context`, `change` | the batch that the machine handles now; what one part asks of another |
//! | `jobs` | all attempts and actions, with `table` (their maps and the index of the live ones) |
//! | `attempt`, `attempts`, `layout` | an attempt, the attempts of a job, the ranks and hosts of an attempt |
//! | `action`, `batches`, `expected` | an action with its rank states, batches of releases and awaited reboots |
//! | `nodes`, `node`, `session` | all nodes and the sessions of their agents; `by_host`, `spelling` look nodes up |
//! | `drains` | drained hosts and what waits for a drain |
//! | `outbox` | notices to the resource manager |
//! | `lists` | the lists of the edges |
//! | `recovery` | the gate, the grace, and what nodes hold that the store lacks |
//! | `quiesce` | the two states in which new actions are refused: quiesced, and the disk is full |
//! | `drain_order`, `quota` | operators' requests about many hosts, and how much of them one batch carries out |
//! | `away` | which jobs are in the store alone |
//!
//! All times are milliseconds. "(monotonic)" and "(wall clock)" name the clock ([`crate::controller`]).
//!
//! No part reaches another: it queues a [`change::Change`], which `Machine::react` carries out. The acts that need
//! several parts stand in the folders beside this one.

pub(crate) mod action;
pub(crate) mod attempt;
pub(crate) mod attempts;
pub(crate) mod away;
pub(crate) mod batches;
pub(crate) mod by_host;
pub(crate) mod change;
pub(crate) mod context;
pub(crate) mod drain_order;
pub(crate) mod drains;
pub(crate) mod expected;
pub(crate) mod jobs;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod quiesce;
pub(crate) mod quota;
pub(crate) mod recovery;
pub(crate) mod session;
pub(crate) mod spelling;
pub(crate) mod table;

pub(crate) use action::{Action, RankState};
pub(crate) use attempts::Job;
pub(crate) use jobs::Jobs;
pub(crate) use node::Node;
pub(crate) use nodes::Nodes;
