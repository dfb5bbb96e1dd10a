//! The power of the controller's host is cut at any moment of a run. What was acknowledged is on the disk, and every
//! program starts again.
//!
//! The programs are those that a site gets. `nodes` plays the agents, `tour` the clients; `image` examines what a cut
//! leaves. `PERILOG_POWER_CUTS` is the number of cuts of a test, in place of the number that fits into minutes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../../../../controller/tests/daemon/authority.rs"]
#[allow(dead_code, reason = "the controller's tests need more of it")]
mod authority;
#[path = "../../../../controller/tests/daemon/bed.rs"]
#[allow(dead_code, reason = "the controller's tests need more of it")]
mod bed;
mod ca;
mod controller;
mod enrolment;
mod faults;
mod image;
#[path = "../../../../controller/tests/daemon/log.rs"]
#[allow(dead_code, reason = "the controller's tests need more of it")]
mod log;
mod migration;
mod nodes;
mod spool;
#[path = "../../../../agent/tests/daemon/systemd.rs"]
mod systemd;
#[path = "../../../../agent/src/testing.rs"]
mod testing;
mod tour;

use std::path::PathBuf;
use std::time::Duration;

/// Returns the path of the controller that the tests start.
fn program() -> PathBuf {
    perilog_disk::run::program("perilog-controller").unwrap().get_program().into()
}

/// Returns the number of power cuts of a test, which is `few` unless the environment has another.
fn cuts(few: usize) -> usize {
    std::env::var("PERILOG_POWER_CUTS").map_or(few, |text| text.parse().expect("PERILOG_POWER_CUTS is a number"))
}

/// Pause before something is tried again: the controller may be away.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes a directory in memory where there is one for that, because images need no disk.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
