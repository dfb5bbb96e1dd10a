//! Fault points: points in a daemon's code at which a test can kill or stop the daemon. They exist only in builds with
//! the feature `fault-points`. In other builds [`point`] is empty, and an optimised build for sites cannot have the
//! feature.
//!
//! A test arms a point with a file, `/run/perilog-fault/<name>`. The file contains `kill`, `stop` or `wait`, with a
//! number for a later passing (`kill 2`). The daemon removes the file before it dies, so a restarted daemon survives
//! the same point.

#[cfg(all(feature = "fault-points", not(debug_assertions)))]
compile_error!("fault-points are for tests: this build has no debug assertions, so it may be one for sites");

mod table;

pub use table::{DIRECTORY, POINTS, Point};

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
