//! Flux's broker over its local socket, without libflux: [`wire`] encodes the messages of RFC 3, [`client`] makes calls
//! and streams.

pub mod client;
pub mod wire;

pub use client::{Broker, RpcError};
