//! Shared parts of all measurements: options, samples and statistics, and the table.

pub mod options;
pub mod report;
pub mod stats;
