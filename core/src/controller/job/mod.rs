//! Jobs: decides when an attempt begins, hands over, is superseded and is forgotten, and which failures it forgives.

mod finish;
mod hand_over;
pub(crate) mod milestones;
mod retention;
mod run;
mod supersede;
pub(crate) mod tolerance;
mod withdraw;
pub(crate) use finish::no_job;
pub(crate) use retention::keeps_less;
