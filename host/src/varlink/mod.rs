//! Local socket: Varlink on the wire (varlink.org), a small server and a small blocking client.
//!
//! ```text
//!   accept ── seat? ── connection ──┬─ request ─> Service::call ─> ReplySink ─┐
//!                          ^        └─ watches for the client's end           │
//!                          └───────────── the writing half comes back ────────┘
//! ```
//!
//! A message is JSON and a NUL byte. A client can harm only itself: each connection is a separate tokio task, requests
//! have a largest size, and the client must read a reply within a limit. Each connection takes a *seat*. Seats are
//! bounded in total, for trusted and for other users, and for each user who is not trusted. An error of accept(2)
//! causes a pause, not an end. The server has no idle timeout; an idle connection gives up its seat when a newcomer
//! finds none.
//!
//! Upgrades to another protocol are not part of this module. Permissions are not, either: a [`Service`] sees the peer's
//! credentials and decides before the parameters of a call are parsed.

mod call;
mod client;
mod connection;
mod introspect;
mod limits;
mod peer;
mod reply;
mod server;
mod socket;
mod wire;

use std::future::Future;

/// Parses a whole message as a request: the bytes between two NULs.
///
/// # Errors
/// A text for the client or the log: the message is no request, its parameters are no object, or they do not fit the
/// method.
pub(crate) fn parse_request<T: serde::de::DeserializeOwned>(message: &[u8]) -> Result<T, String> {
    let request = wire::Request::parse(message).map_err(|error| error.to_string())?;
    let parameters = request.parameters.ok_or("no object")?;
    call::request(&request.method, &parameters).map_err(|wrong| wrong.to_string())
}

pub use self::call::{Call, WrongParameter};
pub use self::client::{CallError, Client, Replies};
pub use self::limits::{Bounds, Waiting};
pub use self::peer::PeerCred;
pub use self::reply::{Gone, ReplySink};
pub use self::server::serve;
pub use self::socket::{SocketError, bind};
pub use self::wire::{MAX_REQUEST, MAX_REQUEST_OF_STRANGERS};

/// An interface and its definition in the Varlink language.
#[derive(Debug, Clone, Copy)]
pub struct InterfaceDescription {
    /// The name, such as `io.perilog.Agent`.
    pub name: &'static str,
    /// The definition: the text from the keyword `interface` on. Each `method` begins a line.
    pub text: &'static str,
}

/// Product and version that the service names in its answer to `org.varlink.service.GetInfo`.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub vendor: &'static str,
    pub product: &'static str,
    pub version: &'static str,
    pub url: &'static str,
}

/// A service that a daemon offers on its local socket.
pub trait Service: Send + Sync + 'static {
    fn about(&self) -> About;

    /// Returns all interfaces but `org.varlink.service`, which the server answers. The server calls only methods that
    /// these texts define.
    fn describe(&self) -> &'static [InterfaceDescription];

    /// Returns `true` if the service trusts this peer; by default, only root. Trusted peers may send large requests and
    /// have many connections; other peers may send small requests and have few connections.
    fn trusts(&self, peer: &PeerCred) -> bool {
        peer.is_root()
    }

    /// Decides whether `peer` may call `method` (its name without the interface). The server asks before it parses the
    /// call's parameters.
    ///
    /// # Errors
    /// Text for `PermissionDenied` of the method's interface.
    fn permit(&self, method: &str, peer: &PeerCred) -> Result<(), String>;

    /// Handles a permitted call. The call runs in the tokio task of its connection: a slow call blocks no other client.
    /// The next request of the same connection waits, unless both arrived together and get one reply each.
    ///
    /// A client's disconnection does not drop this future. A call with several replies watches [`ReplySink::closed`] to
    /// notice it; sending to the lost client fails with [`Gone`].
    fn call(&self, call: Call) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
