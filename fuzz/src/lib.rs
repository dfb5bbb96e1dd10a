//! Fuzz targets: one for each parser of bytes that another program, another host or a file brings.
//!
//! A target parses its input, within bounds of memory ([`bounds`]), and then asks what must hold of any input: what was
//! parsed is printed as a text that parses as the same; a list has no more than its bound; an error is one line. A
//! target panics if that is not so. `cargo xtask fuzz` searches for such inputs with libFuzzer; the tests replay
//! `corpus/` and `regressions/`, and measure the work on inputs of the worst shapes that are known (`tests/work.rs`).

mod bounds;
mod memory;
#[allow(dead_code, reason = "the runner uses the rest")]
#[path = "../../agent/src/runner/control/peer.rs"]
mod peer;
#[path = "../../agent/src/report/protocol.rs"]
mod protocol;
mod targets;

pub use bounds::{EXCEPTIONS, Exception};
pub use memory::peak;
pub use targets::{TARGETS, Target};
