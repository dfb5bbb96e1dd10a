//! Table of the fault points: the names by which tests and daemons know them.
//!
//! `perilog-tests` has this file, too, but not this crate: every `cargo xtask` builds `perilog-tests` first, and then
//! needs neither tokio nor TLS.

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
pub const POINTS: [Point; 12] = [
    agent("after-intent", "the intent is written; it is not reported, and nothing is started"),
    agent("before-accepted", "Accepted is the next message that leaves"),
    agent("after-start-call", "StartTransientUnit is on the bus; its reply was not read"),
    agent("claim-seen", "a look at a task found its claim; the machine does not know it yet"),
    agent("after-outcome", "the outcome is written; it is not reported, and the unit is loaded"),
    agent("after-finished", "Finished was handed to the socket"),
    agent("mid-burial", "the tombstone is written; the directory is still there"),
    controller("mid-migration", "tables of an older release are migrated; nothing of that is on the disk"),
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
