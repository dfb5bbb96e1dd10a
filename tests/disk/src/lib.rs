//! A disk that fails once, and power cuts after that.
//!
//! The program of this package commits batches to a real store, and records every call that changes the store's files.
//! The program can let one fsync fail. This library reads the record ([`record`]), and builds from the record the
//! images that a power cut may leave on the disk ([`disk`]).
//!
//! The program replaces functions of the C library in itself (`calls`), because SQLite and Rust's standard library are
//! linked into it. A preloaded library would do the same for any program, but cargo builds no such library for a test.

pub mod disk;
pub mod record;
