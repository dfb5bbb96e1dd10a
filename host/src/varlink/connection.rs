//! The connection of a client: the server answers requests in order. Two requests that arrived together, and get one
//! reply each, also begin together, so that a service can carry out both at once.

use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::watch;

use super::introspect::dispatch;
use super::limits::{Slot, Waiters};
use super::reply::{self, Pen, PenState};
use super::server::Warnings;
use super::wire::{MAX_REQUEST, MAX_REQUEST_OF_STRANGERS, Request, Requests, WireError};
use super::{Call, PeerCred, ReplySink, Service};

/// The text for a client whose idle connection the server closes.
const GIVEN_AWAY: &str = "this connection was idle, and the server gave its place to another client: connect again";

/// Serves a client's connection until the client disconnects or misbehaves, or the server gives the connection's seat
/// to another.
pub(super) async fn serve<S: Service>(
    stream: UnixStream,
    peer: PeerCred,
    mut slot: Slot,
    service: Arc<S>,
    warnings: Arc<Warnings>,
) {
    let most = if service.trusts(&peer) { MAX_REQUEST } else { MAX_REQUEST_OF_STRANGERS };
    let (read, write) = stream.into_split();
    let mut requests = Requests::new(read, most);
    let mut pen = Pen::new(write);
    loop {
        slot.idle();
        let next = tokio::select! {
            biased;
            () = slot.lost() => return pen.send_now(&reply::busy(&*service, GIVEN_AWAY)),
            next = requests.next() => next,
        };
        let request = match next {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error @ WireError::Io(_)) => {
                tracing::debug!(uid = peer.uid, pid = peer.pid, %error, "a client of the local socket");
                return;
            }
            Err(error) => {
                if let WireError::TooLarge(_) = error {
                    pen.send_now(&reply::invalid_parameter(&error.to_string()));
                }
                return warnings.warn(&peer, &format!("a client of the local socket is disconnected: it {error}"));
            }
        };
        if !slot.busy() {
            return pen.send_now(&reply::busy(&*service, GIVEN_AWAY));
        }
        let next = if is_plain(&request) { requests.take_if(is_plain) } else { None };
        let (set_gone, gone) = watch::channel(false);
        let first = answer(request, pen, &peer, slot.waiters(), gone.clone(), &*service);
        let second = async {
            let next = next?;
            Some(answer(next, Pen::keeping(), &peer, slot.waiters(), gone, &*service).await)
        };
        let both = async { tokio::join!(biased; first, second) };
        tokio::pin!(both);
        let answered = tokio::select! {
            biased;
            answered = &mut both => answered,
            () = requests.gone() => {
                // The receivers are gone if the sinks were already used up.
                let _ = set_gone.send(true);
                both.await
            }
        };
        let (Some(returned), second) = answered else { return };
        pen = returned;
        if let Some(kept) = second
            && !pen.send_kept(kept).await
        {
            return;
        }
    }
}

/// Returns `true` for a request that gets exactly one reply.
fn is_plain(request: &Request) -> bool {
    !(request.more || request.oneway || request.upgrade)
}

/// Has the service handle one call, and waits until the call returns `pen`, the writing half of the connection. Returns
/// the pen; `None` if the connection must end.
async fn answer<S: Service>(
    request: Request,
    pen: Pen,
    peer: &PeerCred,
    waiters: Waiters,
    gone: watch::Receiver<bool>,
    service: &S,
) -> Option<Pen> {
    let Request { method, parameters, more, oneway, upgrade } = request;
    let (reply, back) = ReplySink::new(&method, (more, oneway), pen, gone, waiters);
    let handled = async {
        match parameters {
            // perilog has no protocol to upgrade to.
            _ if upgrade => drop(reply.invalid_parameter("upgrade").await),
            None => drop(reply.invalid_parameter("parameters").await),
            Some(parameters) => {
                let call = Call { method: method.clone(), parameters, more, peer: peer.clone(), reply };
                dispatch(service, call).await;
            }
        }
    };
    // The service may hand the sink, with the pen, to another tokio task.
    let ((), returned) = tokio::join!(handled, back);
    let mut pen = returned.ok()?;
    match pen.state {
        PenState::Finished => Some(pen),
        PenState::Unused => pen.not_implemented(&method).await.is_ok().then_some(pen),
        // The stream has no end: the client must not wait for one.
        PenState::Streaming | PenState::Broken => None,
    }
}
