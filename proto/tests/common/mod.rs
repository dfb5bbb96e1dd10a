//! Messages to test with: any that proptest thinks of, and one fixed sample of every kind.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod any;
pub(crate) mod samples;
