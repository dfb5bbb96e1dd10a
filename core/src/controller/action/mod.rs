//! Actions: decides the order of ranks, their limits and ends, and the verdict of an action; external actions.

pub(crate) mod announced_reboot;
mod begin;
mod deadlines;
mod end;
pub(crate) mod external;
pub(crate) mod forgiveness;
pub(crate) mod limits;
pub(crate) mod order;
mod progress;
mod report;
mod reported_end;
pub(crate) mod verdict;
