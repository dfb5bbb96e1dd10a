//! Flux's broker, over its local socket and without libflux: [`wire`] is RFC 3's messages as bytes, [`client`] calls
//! and streams.

pub mod client;
pub mod wire;

pub use client::{Broker, RpcError};
