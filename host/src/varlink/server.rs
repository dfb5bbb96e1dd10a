//! The accepting side of the local socket: a tokio task per connection.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::limits::ConnectionLimits;
use super::{Bounds, PeerCred, Service, connection, reply};
use crate::clock;
use crate::complaints::{Each, LINES, WINDOW_MS, Window};

/// Pause after an error of accept(2) such as EMFILE, which would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the local socket until the future is dropped, which ends all connections. Needs a running tokio runtime.
///
/// # Errors
/// The server could not begin, because the listener cannot be used.
pub async fn serve<S: Service>(
    listener: std::os::unix::net::UnixListener,
    service: Arc<S>,
    bounds: Bounds,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let limits = ConnectionLimits::new(bounds);
    let warnings = Arc::new(Warnings::default());
    let mut connections = JoinSet::new();
    let mut failing = false;
    loop {
        tokio::select! {
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Err(error) = ended {
                    // A bug in perilog: the panic ends one connection and must be visible.
                    tracing::error!("a connection of the local socket ended in a panic: {error}");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    failing = false;
                    admit(stream, &limits, &service, &warnings, &mut connections);
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(
                            "cannot accept connections on the local socket ({error}); the server keeps trying"
                        );
                    }
                    failing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn admit<S: Service>(
    stream: UnixStream,
    limits: &ConnectionLimits,
    service: &Arc<S>,
    warnings: &Arc<Warnings>,
    connections: &mut JoinSet<()>,
) {
    let peer = match PeerCred::of(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!("the credentials of a client of the local socket cannot be read ({error}): disconnected");
            return;
        }
    };
    match limits.take(peer.uid, service.trusts(&peer)) {
        Ok(slot) => {
            connections.spawn(connection::serve(stream, peer, slot, service.clone(), warnings.clone()));
        }
        Err(full) => {
            // Sends the reason; without an answer the client would wait.
            if let Some(bytes) = reply::framed(&reply::busy(&**service, &full.to_string())) {
                let _ = stream.try_write(&bytes);
            }
            warnings.warn(&peer, &format!("a client of the local socket is refused: {full}"));
        }
    }
}

/// Maximum number of users whose warnings are limited for each user alone; all others share one limit.
const MOST_USERS: usize = 1_024;

/// Warnings about clients that misbehave. Each user has a limited number of journal lines in a time window, so that no
/// user fills the journal.
#[derive(Debug)]
pub(super) struct Warnings {
    each: Each<u32>,
    /// Time window shared by the users for whom `each` has no room, because [`MOST_USERS`] others have open windows.
    others: Mutex<Window>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { each: Each::new(MOST_USERS), others: Mutex::default() }
    }
}

impl Warnings {
    pub(super) fn warn(&self, peer: &PeerCred, text: &str) {
        let (uid, pid) = (peer.uid, peer.pid);
        let admitted = self.each.admit(uid, text);
        let (is_logged, suppressed) = admitted.unwrap_or_else(|| {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            others.admit(clock::mono_ms(), LINES, WINDOW_MS)
        });
        if suppressed > 0 {
            tracing::warn!(uid, "uid {uid}: {suppressed} more such lines were not logged");
        }
        if is_logged {
            tracing::warn!(uid, pid, "uid {uid}, pid {pid}: {text}");
        }
    }
}
