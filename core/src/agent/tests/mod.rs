//! Rules of the machine, one test each, named after the behaviour. A test states an input, and *all* effects that the
//! input must have ([`bed`]).

mod bed;
mod boot;
mod cancel;
mod effect_text;
mod ending;
mod exec;
mod fuzz;
mod guard;
mod leftovers;
mod marks;
mod orphan;
mod reconcile;
mod removed;
mod session;
mod stall;
mod start;
mod starting;
mod status;
mod unit;
pub(crate) mod values;
mod watch;
