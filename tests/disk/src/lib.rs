//! Disks that lose power or fail.
//!
//! A program runs with the shim (`tests/shim`), which records every call that changes its files. This library reads the
//! record ([`record`]), and builds from the record the images that a power cut may leave on the disk ([`disk`]).
//! [`run`] starts programs so, and [`power`] chooses the moments of the cuts.
//!
//! The program of this package commits batches to a real store. The other programs are those that a site gets.

pub mod disk;
pub mod image;
pub mod power;
#[path = "../../shim/src/record.rs"]
pub mod record;
pub mod run;
