//! Port of the agents: accepts, shakes hands, and refuses invalid peers. It only reads messages; the machine handles
//! them.
//!
//! ```text
//!   accept ── TLS ── preambles ── Hello ── open: both ways until one side ends
//!                └────── within a limit ─┘
//! ```
//! When certificates are reloaded, sessions of revoked ones end. An invalid peer (garbage, a frame over the limit,
//! another version, a wrong certificate) is refused, and logged with its address.

mod complaints;
mod greeting;
mod names;
mod session;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perilog_core::controller::io::SessionId;
use perilog_host::link::Listener;
use perilog_host::tls::ServerTls;
use tokio::sync::{Semaphore, watch};

use crate::daemon::Inlet;
pub(crate) use complaints::{Complaints, ComplaintsOfEach};

/// Most connections at once: all nodes of the largest planned cluster, and nodes that return before their old
/// connection ends. The unit's LimitNOFILE is above this number.
const MAX_SESSIONS: u32 = 100_000;

/// State that all sessions share.
#[derive(Debug)]
pub(crate) struct Sessions {
    inlet: Inlet,
    /// The version of this program, for the peer's log.
    release: &'static str,
    last: AtomicU64,
    complaints: Complaints,
    names: names::Names,
    greetings: greeting::Greetings,
    places: Arc<Semaphore>,
}

impl Sessions {
    pub(crate) fn new(inlet: Inlet, release: &'static str) -> Arc<Self> {
        Arc::new(Self {
            inlet,
            release,
            last: AtomicU64::new(0),
            complaints: Complaints::default(),
            names: names::Names::default(),
            greetings: greeting::Greetings::default(),
            places: Arc::new(Semaphore::new(MAX_SESSIONS as usize)),
        })
    }

    /// Logs that a peer was refused; `host` comes from its certificate.
    fn refused(&self, peer: SocketAddr, host: Option<&str>, why: &dyn Display) {
        self.complaints.refused_by_name(peer, host, &self.names.who(peer, host), why);
    }

    fn next_id(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Waits until the last session is over.
    pub(crate) async fn ended(&self) {
        // This code never closes the semaphore.
        let _ = self.places.acquire_many(MAX_SESSIONS).await;
    }
}

/// Accepts for ever; `tls` may change for the connections from then on.
pub(crate) async fn accept(
    mut listener: Listener,
    sessions: Arc<Sessions>,
    mut tls: watch::Receiver<Option<ServerTls>>,
) {
    let mut plain = tls.borrow().is_none();
    loop {
        let Ok(place) = sessions.places.clone().acquire_owned().await else { return };
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
        tokio::spawn(async move {
            session::serve(incoming, plain, tls, &sessions).await;
            drop(place);
        });
    }
}
