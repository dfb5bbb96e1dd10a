//! What every measurement shares: how much is measured, samples and what they come to, and the table.

pub mod options;
pub mod report;
pub mod stats;
