//! A cluster of real systemd nodes on one machine, and what the tests on it share.
//!
//! * [`Bed`]: named nodes in namespaces, each with the real systemd as PID 1, a real D-Bus and journald, a network
//!   that can be cut and a power supply that can fail. It knows nothing of perilog but the [`Layer`] laid over `/`.
//! * [`Layer`]: the installed product, as a directory; [`Release`]: as packages.
//! * [`Cluster`]: a bed with a controller and agents on it, configured as a site would.
//! * [`ledger`]: what scripts write about themselves, and the comparison of the controller's word with it.
//! * [`book`]: pages of docs/ as something to do, and what they say that comes of it.
//! * [`manager`]: a stand-in for the resource manager, with a ledger of what it was told, and what cannot be true of that.
//! * [`slurm`]: the real Slurm on a cluster, with perilog's hooks.
//! * [`Armed`]: a moment at which a daemon will die or stand still. `cargo xtask test` builds daemons that can; to run one test by hand, build
//!   them so: `cargo build --workspace --bins --features perilog-agent/fault-points,perilog-controller/fault-points`.
//! * [`wait_until`]: waits for a condition, never for a while, and says what it saw when the condition does not come.
//!
//! Beds need root; `cargo xtask test` and `cargo xtask demo` see to that.

mod authority;
mod bed;
pub mod book;
mod clock;
mod cluster;
mod command;
mod faults;
mod layer;
pub mod ledger;
pub mod manager;
mod node;
mod packages;
mod points;
mod rootfs;
pub mod slurm;
mod stores;
mod wait;

pub use bed::{Bed, Builder};
pub use clock::Stopwatch;
pub use cluster::{CONTROLLER, Cluster, ClusterBuilder};
pub use command::{Output, Running};
pub use faults::AT_GATE;
pub use layer::{BINARIES_VARIABLE, LAYER_VARIABLE, Layer};
pub use node::Node;
pub use packages::{PACKAGES_VARIABLE, Release, package};
pub use points::{Armed, Order};
pub use wait::wait_until;
