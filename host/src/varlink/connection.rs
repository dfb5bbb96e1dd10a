//! One client: its requests in turn, each answered before the next is looked at.

use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::watch;

use super::introspect::dispatch;
use super::reply::{Pen, PenState};
use super::wire::{Request, Requests, WireError};
use super::{Call, PeerCred, ReplySink, Service};

/// Serves until the client goes away, or is sent away.
pub(super) async fn serve<S: Service>(stream: UnixStream, peer: PeerCred, service: Arc<S>) {
    let (read, write) = stream.into_split();
    let mut requests = Requests::new(read);
    let mut pen = Pen::new(write);
    loop {
        let request = match requests.next().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error @ WireError::Io(_)) => {
                tracing::debug!(uid = peer.uid, pid = peer.pid, %error, "a client of the local socket");
                return;
            }
            Err(error) => {
                tracing::warn!(uid = peer.uid, pid = peer.pid, %error, "a client of the local socket is sent away");
                return;
            }
        };
        match answer(request, &mut requests, pen, &peer, &*service).await {
            Some(returned) => pen = returned,
            None => return,
        }
    }
}

/// One call, from its request to the pen that comes back; none if nothing can follow.
async fn answer<S: Service>(
    mut request: Request,
    requests: &mut Requests,
    pen: Pen,
    peer: &PeerCred,
    service: &S,
) -> Option<Pen> {
    let (say_gone, gone) = watch::channel(false);
    let modes = (request.more.unwrap_or(false), request.oneway.unwrap_or(false));
    let (reply, mut back) = ReplySink::new(&request.method, modes, pen, gone);
    let upgrade = request.upgrade.unwrap_or(false);
    let parameters = request.take_parameters();
    let method = request.method;
    let handled = async {
        match parameters {
            // There is no protocol to upgrade to.
            _ if upgrade => drop(reply.invalid_parameter("upgrade").await),
            None => drop(reply.invalid_parameter("parameters").await),
            Some(parameters) => {
                let call = Call { method: method.clone(), parameters, more: modes.0, peer: peer.clone(), reply };
                dispatch(service, call).await;
            }
        }
    };
    tokio::pin!(handled);
    let (mut running, mut watching) = (true, true);
    let mut returned = None;
    while running || returned.is_none() {
        tokio::select! {
            biased;
            () = &mut handled, if running => running = false,
            pen = &mut back, if returned.is_none() => match pen {
                Ok(pen) => returned = Some(pen),
                // A sink that was forgotten (not dropped) keeps the pen.
                Err(_) => return None,
            },
            () = requests.gone(), if watching => {
                watching = false;
                // Nobody listens if the sink is used up already.
                let _ = say_gone.send(true);
            }
        }
    }
    let mut pen = returned?;
    match pen.state {
        PenState::Finished => Some(pen),
        PenState::Unused => pen.not_implemented(&method).await.is_ok().then_some(pen),
        // A stream without an end: the client must not wait for it.
        PenState::Streaming | PenState::Broken => None,
    }
}
