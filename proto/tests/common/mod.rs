//! Messages for tests: arbitrary ones from proptest, and one fixed sample of every kind.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod any;
pub(crate) mod samples;
