//! Cluster of real systemd nodes on one machine, and the shared parts of the tests.
//!
//! * [`Bed`]: named nodes in namespaces, each with the real systemd as PID 1, a real D-Bus and journald. A test can cut
//!   the network of a node and fail the power of a node. The bed knows of perilog only the [`Layer`] over `/`.
//! * [`Layer`]: the installed product, as a directory; [`Release`]: the product as packages.
//! * [`Cluster`]: a bed with a controller and agents, configured as a site would.
//! * [`ledger`]: the scripts' own records, and the comparison of the controller's view with these records.
//! * [`book`]: executable pages of docs/, and the expected output.
//! * [`manager`]: a stand-in for the resource manager, with a ledger of notices, and a check for impossible notices.
//! * [`failover`]: two hosts for the controller, under the real Pacemaker.
//! * [`flux`]: the real Flux on a cluster, with perilog's plugin.
//! * [`slurm`]: the real Slurm on a cluster, with perilog's hooks.
//! * [`soak`]: jobs and faults at random for a long time.
//! * [`Armed`]: a moment at which a daemon will die or stop. `cargo xtask test` builds daemons with fault points. To
//!   run one test manually, build with the features: `cargo build --workspace --bins --features
//!   perilog-agent/fault-points,perilog-controller/fault-points`.
//! * [`wait_until`]: waits for a condition, never for a fixed time. At the limit, the error shows the observed state.
//!
//! Beds need root; `cargo xtask test` and `cargo xtask demo` provide root.

mod authority;
mod base;
mod bed;
pub mod book;
mod browser;
mod clock;
mod cluster;
mod command;
pub mod corpus;
mod draws;
pub mod failover;
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
pub mod soak;
mod stores;
mod wait;

pub use base::{BASE_VARIABLE, BASES_VARIABLE, Base};
pub use bed::{Bed, Builder};
pub use browser::Browser;
pub use clock::Stopwatch;
pub use cluster::{CONTROLLER, Cluster, ClusterBuilder};
pub use command::{Output, Running};
pub use faults::{AT_GATE, LIMIT};
pub use layer::{BINARIES_VARIABLE, LAYER_VARIABLE, Layer};
pub use node::Node;
pub use packages::{PACKAGES_VARIABLE, Release, package};
pub use points::{Armed, Order};
pub use wait::wait_until;
