//! The accepting side: a task per connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::seats::Seats;
use super::{Bounds, PeerCred, Service, connection};

/// After an error of accept(2) such as EMFILE, which would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves for ever; an error means that it could not begin. Dropping the future ends all connections. Needs a running tokio runtime.
pub async fn serve<S: Service>(
    listener: std::os::unix::net::UnixListener,
    service: Arc<S>,
    bounds: Bounds,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let seats = Seats::new(bounds);
    let mut connections = JoinSet::new();
    let mut failing = false;
    loop {
        tokio::select! {
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Err(error) = ended {
                    // A bug of ours: it ends one connection, and must be seen.
                    tracing::error!(%error, "a connection of the local socket ended in a panic");
                }
            }
            accepted = listener.accept(), if connections.len() < bounds.connections => match accepted {
                Ok((stream, _)) => {
                    failing = false;
                    admit(stream, &seats, &service, &mut connections);
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "cannot accept connections on the local socket; trying on");
                    }
                    failing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn admit<S: Service>(stream: UnixStream, seats: &Seats, service: &Arc<S>, connections: &mut JoinSet<()>) {
    let peer = match PeerCred::of(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "a client of the local socket has no credentials; it is sent away");
            return;
        }
    };
    let Some(seat) = seats.take(peer.uid) else {
        tracing::warn!(uid = peer.uid, pid = peer.pid, "too many connections to the local socket; one is sent away");
        return;
    };
    let service = service.clone();
    connections.spawn(async move {
        connection::serve(stream, peer, service).await;
        drop(seat);
    });
}
