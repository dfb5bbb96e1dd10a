//! Listener for agents: accepts connections, makes the TLS handshake, and refuses invalid peers. The listener only
//! passes messages on; the machine handles them.
//!
//! ```text
//!   accept ── TLS ── preambles ── Hello ── open: both ways until one side ends
//!                 └────── within a limit ─┘
//! ```
//! When a reload revokes a certificate, its sessions end. The listener refuses an invalid peer (garbage, a frame over
//! the limit, another version, a wrong certificate), and logs the peer's address.

mod complaints;
mod expiries;
mod greeting;
mod names;
mod places;
mod rate;
mod session;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perilog_core::controller::io::SessionId;
use perilog_host::link::Listener;
use perilog_host::tls::ServerTls;
use tokio::sync::watch;

use crate::daemon::Inlet;
pub(crate) use complaints::{Complaints, ComplaintsOfEach};
pub(crate) use expiries::{By, Expiries, Soonest};

/// State that all sessions share.
#[derive(Debug)]
pub(crate) struct Sessions {
    inlet: Inlet,
    /// Version of this program, which the peer logs.
    release: &'static str,
    last: AtomicU64,
    complaints: Complaints,
    names: names::Names,
    greetings: greeting::Greetings,
    expiries: Expiries,
    rate: rate::Rate,
    places: places::Places,
}

impl Sessions {
    pub(crate) fn new(inlet: Inlet, release: &'static str, expiries: Expiries) -> Arc<Self> {
        Arc::new(Self {
            inlet,
            release,
            last: AtomicU64::new(0),
            complaints: Complaints::default(),
            names: names::Names::default(),
            greetings: greeting::Greetings::default(),
            expiries,
            rate: rate::Rate::new(),
            places: places::Places::new(),
        })
    }

    /// Logs that the listener refused a peer. `host`: the name in the peer's certificate; `None`: the peer has not
    /// shown one.
    fn refused(&self, peer: SocketAddr, host: Option<&str>, why: &dyn Display) {
        self.complaints.refused_by_name(peer, host, &self.names.who(peer, host), why);
    }

    fn next_id(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Waits until the last session has ended.
    pub(crate) async fn ended(&self) {
        self.places.all_free().await;
    }
}

/// Accepts connections for ever; a change of `tls` applies to later connections.
pub(crate) async fn accept(
    mut listener: Listener,
    sessions: Arc<Sessions>,
    mut tls: watch::Receiver<Option<ServerTls>>,
) {
    let mut plain = tls.borrow().is_none();
    loop {
        let Some(place) = sessions.places.take().await else { return };
        let incoming = tokio::select! {
            // A connection after a reload uses the new certificates.
            biased;
            Ok(()) = tls.changed() => {
                let new = tls.borrow_and_update().clone();
                plain = new.is_none();
                listener.set_tls(new);
                continue;
            }
            incoming = listener.next() => incoming,
        };
        // Subscribes the session to later reloads.
        let (sessions, tls) = (sessions.clone(), tls.clone());
        let (peer, handshake) = (incoming.peer, Box::pin(incoming.handshake()));
        tokio::spawn(async move {
            session::serve(peer, handshake, plain, tls, &sessions).await;
            drop(place);
        });
    }
}
