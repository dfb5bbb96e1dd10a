//! Cluster of real systemd nodes on one machine, and the shared parts of its tests.
//!
//! * [`Bed`]: named nodes in namespaces, each with the real systemd as PID 1, a real D-Bus and journald, a network that
//!   can be cut and a power supply that can fail. It knows nothing of perilog but the [`Layer`] laid over `/`.
//! * [`Layer`]: the installed product, as a directory; [`Release`]: as packages.
//! * [`Cluster`]: a bed with a controller and agents on it, configured as a site would.
//! * [`ledger`]: the scripts' own records, and the comparison of the controller's view with them.
//! * [`book`]: executable pages of docs/, and their expected output.
//! * [`manager`]: a stand-in for the resource manager, with a ledger of its notices, and a check for impossible ones.
//! * [`flux`]: the real Flux on a cluster, with perilog's plugin.
//! * [`slurm`]: the real Slurm on a cluster, with perilog's hooks.
//! * [`Browser`]: a real browser on a node, for the controller's page.
//! * [`Armed`]: a moment at which a daemon will die or stop. `cargo xtask test` builds daemons with fault points; to
//!   run one test by hand, build them so: `cargo build --workspace --bins --features
//!   perilog-agent/fault-points,perilog-controller/fault-points`.
//! * [`wait_until`]: waits for a condition, never for a time, and reports what it saw if the condition does not come.
//!
//! Beds need root; `cargo xtask test` and `cargo xtask demo` provide that.

mod authority;
mod bed;
pub mod book;
mod browser;
mod clock;
mod cluster;
mod command;
mod faults;
pub mod flux;
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
pub use browser::Browser;
pub use clock::Stopwatch;
pub use cluster::{CONTROLLER, Cluster, ClusterBuilder};
pub use command::{Output, Running};
pub use faults::AT_GATE;
pub use layer::{BINARIES_VARIABLE, LAYER_VARIABLE, Layer};
pub use node::Node;
pub use packages::{PACKAGES_VARIABLE, Release, package};
pub use points::{Armed, Order};
pub use wait::wait_until;
