//! A seeded world around perilog's two machines.
pub mod rng;
