//! Tests that need a peer on a bus.

mod release_239;
