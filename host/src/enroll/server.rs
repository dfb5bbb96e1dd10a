//! Enrolment server of the controller: reads a visitor's question, has the registrar decide, and sends the answer. A
//! visitor is a peer that connects, normally a node.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

use super::{Answer, Ask, MAX_ASK, line, plain, read_line};
use crate::link::{Incoming, LinkError, Listener, Stream};
use crate::tls::{ServerTls, dns_names, serial_number};

/// Maximum number of visitors (connected peers) at once. Further peers wait in the listen queue.
const MAX_CLIENTS: usize = 64;
/// Maximum number of visitors from one address at once: a host with silent connections cannot keep other hosts out.
const MAX_FROM_ONE: usize = 4;
/// Limit for a visitor's handshake and question together, and again for sending the answer.
const VISIT_LIMIT: Duration = Duration::from_secs(10);
/// Limit for the registrar's decision, which waits for other threads and a disk.
const DECISION_LIMIT: Duration = Duration::from_secs(15);
/// Shortest time between the begins of two visits: at most 250 begin in a second. A handshake and two signatures take a
/// millisecond, so strangers use at most a quarter of a processor. Ten thousand nodes that boot at once pass within a
/// minute.
const PACE: Duration = Duration::from_millis(4);

/// A certificate that a visitor (a peer that connects, normally a node) showed in its TLS handshake. An accepted
/// authority signed the certificate, and it has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// DNS names in canonical form.
    pub names: Vec<String>,
    /// The serial number in hexadecimal, two digits a byte.
    pub serial: String,
}

/// Registrar of the controller: decides whether a visitor gets a certificate. A visitor is a peer that connects to the
/// enrolment port, normally a node.
pub trait Registrar: Send + Sync + 'static {
    /// Returns the certificate (PEM), or a refusal to show the visitor. On return, a granted certificate is recorded on
    /// disk. The server drops this future after [`DECISION_LIMIT`]; work that the future began may still finish.
    ///
    /// # Errors
    /// The reason of the refusal, as a sentence for the visitor.
    fn decide(
        self: Arc<Self>,
        peer: SocketAddr,
        shown: Option<Shown>,
        ask: Ask,
    ) -> impl Future<Output = Result<String, String>> + Send;

    /// Reports a failed visit, such as a refused handshake, a malformed question, or a passed limit. A refusal by
    /// [`Self::decide`] is not reported here.
    fn turned_away(&self, peer: SocketAddr, why: &dyn Display);
}

/// Accepts visitors on `listener` and answers them, until `tls` is closed or becomes `None`. A new value of `tls`
/// applies to later connections.
pub async fn serve<R: Registrar>(
    mut listener: Listener,
    mut tls: watch::Receiver<Option<ServerTls>>,
    registrar: Arc<R>,
) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let clients = Arc::new(Clients::default());
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // No code closes the semaphore.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let incoming = tokio::select! {
            biased;
            changed = tls.changed() => {
                let new = tls.borrow_and_update().clone();
                // The server never serves plain text.
                if changed.is_err() || new.is_none() {
                    return;
                }
                listener.set_tls(new);
                continue;
            }
            incoming = listener.next() => incoming,
        };
        let Some(slot) = Clients::admit(&clients, incoming.peer.ip().to_canonical()) else {
            registrar
                .turned_away(incoming.peer, &format_args!("more than {MAX_FROM_ONE} connections from one address"));
            continue;
        };
        pace.tick().await;
        let registrar = registrar.clone();
        tokio::spawn(async move {
            let peer = incoming.peer;
            if let Err(why) = visit(incoming, &registrar).await {
                registrar.turned_away(peer, &why);
            }
            drop((place, slot));
        });
    }
}

async fn visit<R: Registrar>(incoming: Incoming, registrar: &Arc<R>) -> Result<(), String> {
    let late = |what: &str| format!("it {what} within {VISIT_LIMIT:?}");
    let request = tokio::time::timeout(VISIT_LIMIT, read_request(incoming)).await;
    let request = request.map_err(|_| late("did not send its request"))??;
    let Some(Client { peer, mut stream, shown, ask }) = request else { return Ok(()) };
    // One form of an IPv4 address, also where the listener is one of IPv6.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let answer = match tokio::time::timeout(DECISION_LIMIT, registrar.clone().decide(peer, shown, ask)).await {
        Ok(Ok(cert)) => Answer::Cert(cert),
        Ok(Err(why)) => Answer::Refused(why),
        Err(_) => {
            registrar.turned_away(peer, &format_args!("no decision within {DECISION_LIMIT:?}; the node asks again"));
            Answer::Refused("the decision takes too long; ask again".to_owned())
        }
    };
    let report = async {
        stream.write_all(&line(&answer)).await?;
        stream.shutdown().await
    };
    let reported = tokio::time::timeout(VISIT_LIMIT, report).await.map_err(|_| late("did not take its answer"))?;
    reported.map_err(|source| plain(&LinkError::of(peer, source).to_string()))
}

/// A visitor that has sent its question.
struct Client {
    peer: SocketAddr,
    stream: BufReader<Stream>,
    shown: Option<Shown>,
    ask: Ask,
}

/// Reads the visitor's question. `None`: the visitor left before it asked anything, as a monitor or `perilog doctor`
/// does that only checks whether the port is open, and as `perilog init` does that learns the authority.
async fn read_request(incoming: Incoming) -> Result<Option<Client>, String> {
    let to_error = |error: LinkError| plain(&error.to_string());
    let peer = incoming.peer;
    let (peer, stream) = match incoming.shake().await {
        Err(LinkError::Cut { .. }) => {
            tracing::debug!("{peer} left before its handshake");
            return Ok(None);
        }
        shaken => shaken.map_err(to_error)?,
    };
    // An unreadable certificate counts as not shown.
    let shown = |cert| Some(Shown { names: dns_names(cert), serial: serial_number(cert)? });
    let shown = stream.peer_certificate().and_then(shown);
    let mut stream = BufReader::new(stream);
    let is_left = match stream.fill_buf().await {
        Ok(bytes) => bytes.is_empty(),
        Err(source) => matches!(LinkError::of(peer, source), LinkError::Cut { .. }),
    };
    if is_left {
        tracing::debug!("{peer} left before it asked anything");
        return Ok(None);
    }
    let asked = read_line(&mut stream, MAX_ASK).await.map_err(|source| to_error(LinkError::of(peer, source)))?;
    let asked = asked.ok_or_else(|| format!("its request has more than {MAX_ASK} bytes"))?;
    let ask = serde_json::from_slice(&asked).map_err(|error| format!("its request is malformed: {error}"))?;
    Ok(Some(Client { peer, stream, shown, ask }))
}

/// Number of visitors that are connected now, by address.
#[derive(Default)]
struct Clients(Mutex<HashMap<IpAddr, usize>>);

struct Slot {
    clients: Arc<Clients>,
    address: IpAddr,
}

impl Clients {
    fn admit(clients: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let mut slots = clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = slots.entry(address).or_default();
        if *here >= MAX_FROM_ONE {
            return None;
        }
        *here += 1;
        Some(Slot { clients: clients.clone(), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = slots.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                slots.remove(&self.address);
            }
        }
    }
}
