//! Fault points: points in a daemon's code at which a test can kill or stop the daemon. They exist only in builds with
//! the feature `fault-points`. In other builds [`point`] is empty, and an optimised build for sites cannot have the
//! feature.
//!
//! A test arms a point with a file, `/run/perilog-fault/<name>`. The file contains `kill` or `stop`, with a number for
//! a later passing (`kill 2`). The daemon removes the file before it dies, so a restarted daemon survives the same
//! point.

#[cfg(all(feature = "fault-points", not(debug_assertions)))]
compile_error!("fault-points are for tests: this build has no debug assertions, so it may be one for sites");

/// Directory with a file for each armed fault point.
pub const DIRECTORY: &str = "/run/perilog-fault";

/// A fault point: a place in a daemon's code at which a test can kill or stop the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub name: &'static str,
    /// Name of the program that passes the point, such as `perilog-agent`.
    pub daemon: &'static str,
    pub moment: &'static str,
}

/// All fault points of the daemons: places in the code where a test can kill or stop the process.
#[rustfmt::skip]
pub const POINTS: [Point; 11] = [
    agent("after-intent", "the intent is written; nothing was said of it, nothing started"),
    agent("before-accepted", "Accepted is the next message that leaves"),
    agent("after-start-call", "StartTransientUnit is on the bus; its reply was not read"),
    agent("claim-seen", "a look at a task found its claim; the machine does not know it yet"),
    agent("after-outcome", "the outcome is written; nothing was said of it, the unit is loaded"),
    agent("after-finished", "Finished was handed to the socket"),
    agent("mid-burial", "the tombstone is written; the directory is still there"),
    controller("before-commit", "a batch is handled; none of its records is on the disk"),
    controller("after-commit", "the batch is on the disk; none of its effects has left"),
    controller("mid-fan", "a Start is on its way to one more of its nodes, and not yet to all"),
    controller("before-ack",
               "an acknowledgement is the next message that leaves to its node; what it acknowledges is on the disk"),
];

const fn agent(name: &'static str, moment: &'static str) -> Point {
    Point { name, daemon: "perilog-agent", moment }
}

const fn controller(name: &'static str, moment: &'static str) -> Point {
    Point { name, daemon: "perilog-controller", moment }
}

#[cfg(not(feature = "fault-points"))]
mod inert {
    /// Does nothing, in place of a fault point: this build has no fault points.
    #[inline(always)]
    pub const fn point(_: &str) {}

    /// Does nothing and never calls `is`: this build has no fault points.
    #[inline(always)]
    pub fn point_if(_: &str, _: impl FnOnce() -> bool) {}

    /// Returns `call` unchanged: this build has no fault points. In other builds the daemon passes the point when
    /// `call` has to wait for the first time.
    #[inline(always)]
    pub fn point_when_waiting<F: Future>(_: &str, call: F) -> F {
        call
    }
}

#[cfg(not(feature = "fault-points"))]
pub use inert::{point, point_if, point_when_waiting};

#[cfg(feature = "fault-points")]
mod armed;

#[cfg(feature = "fault-points")]
pub use armed::{point, point_if, point_when_waiting};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_point() {
        let mut names: Vec<_> = POINTS.iter().map(|point| point.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), POINTS.len());
    }
}
