//! The local socket: Varlink on the wire (varlink.org), a small server and a small blocking client.
//!
//! ```text
//!   accept ── seat? ── connection ──┬─ request ─> Service::call ─> ReplySink ─┐
//!                          ^        └─ watches for the client's end           │
//!                          └──────────────────── the pen comes back ──────────┘
//! ```
//!
//! A message is JSON and a NUL byte. Whatever a client does, it does to itself: each connection is a task of its own, a request has a largest size, a
//! reply must be read within a limit, connections are counted per user, and an error of accept(2) makes a pause, not an end. There is no idle
//! timeout and no timer when nothing happens; a connection that is idle gives up its seat when a newcomer finds none.
//!
//! Not here: upgrades to another protocol, and who may do what. A [`Service`] sees the peer's credentials and decides, before the parameters of a call
//! are parsed.

mod call;
mod client;
mod connection;
mod introspect;
mod peer;
mod reply;
mod seats;
mod server;
mod socket;
mod wire;

use std::future::Future;

pub use self::call::Call;
pub use self::client::{CallError, Client, Replies};
pub use self::peer::PeerCred;
pub use self::reply::{Gone, ReplySink};
pub use self::seats::{Bounds, Waiting};
pub use self::server::serve;
pub use self::socket::{SocketError, bind};
pub use self::wire::{MAX_REQUEST, MAX_REQUEST_OF_STRANGERS};

/// One interface and its definition in the Varlink language.
#[derive(Debug, Clone, Copy)]
pub struct InterfaceDescription {
    /// `io.perilog.Agent`.
    pub name: &'static str,
    /// From `interface` to the last method; each `method` begins a line.
    pub text: &'static str,
}

/// What `org.varlink.service.GetInfo` says.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub vendor: &'static str,
    pub product: &'static str,
    pub version: &'static str,
    pub url: &'static str,
}

/// What a daemon offers on its local socket.
pub trait Service: Send + Sync + 'static {
    fn about(&self) -> About;

    /// All interfaces but `org.varlink.service`, which is served for you. Only methods that these texts define are ever called.
    fn describe(&self) -> &'static [InterfaceDescription];

    /// Is this peer root, or one that may change something? Its requests may be large and its seats are many; those of others are small and few.
    fn trusts(&self, peer: &PeerCred) -> bool {
        peer.is_root()
    }

    /// Lets `peer` call `method` (its name without the interface), or not. Nothing of the call but these two is known yet.
    ///
    /// # Errors
    /// Text for `PermissionDenied` of the method's interface.
    fn permit(&self, method: &str, peer: &PeerCred) -> Result<(), String>;

    /// One call that was let in. Runs in the task of its connection: a slow one blocks nobody else, and the connection's next request waits for it.
    ///
    /// It is not stopped when the client goes away: a stream selects on [`ReplySink::closed`], a single answer just fails with [`Gone`].
    fn call(&self, call: Call) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
