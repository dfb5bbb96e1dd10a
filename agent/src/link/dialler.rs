//! Dials the controllers, keeps the first that answers, and dials again when that session ends.
//!
//! The next controller is dialled when the one before has failed, or has not answered within half a second. So a
//! controller whose host is dead, or whose process stands still behind an open port, holds up no agent. A controller
//! that answers and then sends no Welcome is the last one to be dialled from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use perilog_host::clock;
use perilog_host::enroll::AskError;
use perilog_host::link::{Dial, Keepalive, LinkError};
use perilog_host::tls::{ClientTls, TlsError, TlsFault, TlsFiles};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::LinkEvent;
use super::enroll::{self, Enroll, EnrollError};
use super::session::{self, AgreedLink, SessionError};
use super::window::Window;

/// Time in which a controller has to answer before the next one is dialled too. A running controller answers within
/// some milliseconds, unless all its agents dial it at once.
const STAGGER: Duration = Duration::from_millis(500);
/// Time in which a connection has to come about. While an address moves to another host nothing answers there, and the
/// kernel repeats its packet ever less often: another dial finds the new host sooner.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Controllers to dial. A reload replaces this value; the next dial uses the new value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Addresses of the controllers as `host:port`. The agent resolves a host's name at each dial.
    pub addresses: Vec<String>,
    /// Certificate files for TLS; `None`: the connection is plain text. Each dial reads the files, so a renewed
    /// certificate needs no reload.
    pub tls: Option<TlsFiles>,
    /// The name in the controller's certificate, if not the host of the address.
    pub server_name: Option<String>,
    /// Settings by which the agent obtains a certificate; `None`: an administrator installs the certificate.
    pub enroll: Option<Enroll>,
}

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("not enrolled: {0}")]
    Enroll(#[from] EnrollError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Dials the controllers, and runs each session to its end. Returns when the receiver of `events` or the sender of
/// `controllers` is dropped.
pub async fn dial(
    mut controllers: watch::Receiver<Controllers>,
    events: mpsc::Sender<LinkEvent>,
    window: Arc<Window>,
    release: String,
) {
    let mut crew = JoinSet::new();
    let enrolled = Arc::new(Notify::new());
    crew.spawn(enroll::keep(controllers.clone(), enrolled.clone()));
    let mut last_counter = 0;
    let mut logged = Logged::new();
    let (mut named, mut order) = (Vec::new(), Vec::new());
    loop {
        let current = controllers.borrow_and_update().clone();
        let Some(first) = current.addresses.first() else {
            if controllers.changed().await.is_err() {
                return;
            }
            continue;
        };
        if named != current.addresses {
            named.clone_from(&current.addresses);
            order.clone_from(&current.addresses);
        }
        let answer = match prepare(&current, &enrolled).await {
            Ok(tls) => {
                let round = Round { tls, server_name: current.server_name.clone(), release: release.clone() };
                round.first_answer(&order, &mut logged).await
            }
            Err(error) => {
                complain(first, &error, &mut logged);
                None
            }
        };
        if let Some((address, agreed)) = answer {
            // Two sessions of one boot never share a number, even within a millisecond or across a restart of the
            // agent.
            let counter = clock::boottime_ms().max(last_counter + 1);
            last_counter = counter;
            let outcome = session::run(agreed, &events, counter).await;
            let welcomed = window.is_welcomed();
            if welcomed {
                logged.clear();
            } else {
                order.retain(|other| *other != address);
                order.push(address.clone());
            }
            match outcome {
                Ok(()) if welcomed => tracing::info!("the session with the controller {address} ended"),
                // The loop ended the session, or the controller turned the agent away; the log has the reason already.
                Ok(()) => {}
                Err(error) => complain(&address, &error.into(), &mut logged),
            }
        }
        if events.is_closed() {
            return;
        }
        window.close();
        tokio::select! {
            () = tokio::time::sleep(window.pause()) => {}
            changed = controllers.changed() => if changed.is_err() { return },
        }
    }
}

/// Obtains a certificate if the node has none that is valid, and loads the TLS settings. `None`: plain text.
async fn prepare(controllers: &Controllers, enrolled: &Notify) -> Result<Option<ClientTls>, DialError> {
    let Some(files) = &controllers.tls else { return Ok(None) };
    if let Some(enroll) = &controllers.enroll
        && enroll::ensure(enroll, files, controllers.server_name.as_deref()).await?
    {
        enrolled.notify_one();
    }
    // Beside the loop: the files may be on a file system that does not answer.
    let files = files.clone();
    match tokio::task::spawn_blocking(move || ClientTls::load(&files)).await {
        Ok(loaded) => Ok(Some(loaded?)),
        // The runtime ends, and the agent with it.
        Err(_) => std::future::pending().await,
    }
}

/// Settings that all dials of a round share.
#[derive(Debug, Clone)]
struct Round {
    tls: Option<ClientTls>,
    server_name: Option<String>,
    release: String,
}

impl Round {
    /// Dials the controllers one after the other, [`STAGGER`] apart or as soon as the one before has failed. Returns
    /// the first that answers, with its address; the other dials end then. `None`: none answers.
    async fn first_answer(&self, addresses: &[String], logged: &mut Logged) -> Option<(String, AgreedLink)> {
        let mut dials = JoinSet::new();
        let mut next = addresses.iter();
        loop {
            if let Some(address) = next.next() {
                let (round, address) = (self.clone(), address.clone());
                dials.spawn(async move { (round.dial(&address).await, address) });
            }
            tokio::select! {
                ended = dials.join_next() => match ended {
                    Some(Ok((Ok(agreed), address))) => return Some((address, agreed)),
                    Some(Ok((Err(error), address))) => complain(&address, &error, logged),
                    // A dial that panicked has failed.
                    Some(Err(_)) => {}
                    None => return None,
                },
                () = tokio::time::sleep(STAGGER), if next.len() > 0 => {}
            }
        }
    }

    async fn dial(&self, address: &str) -> Result<AgreedLink, DialError> {
        let mut dial = match &self.tls {
            Some(tls) => Dial::tls(address, tls.clone()),
            None => Dial::plain(address),
        };
        if let Some(name) = &self.server_name {
            dial.server_name.clone_from(name);
        }
        dial.connect_limit = CONNECT_LIMIT;
        dial.keepalive = Keepalive::brief(uuid::Uuid::new_v4().as_u64_pair().0);
        let link = perilog_host::link::dial(&dial).await?;
        Ok(session::agree(link, &self.release).await?)
    }
}

/// The text of the last warning for each address. The end of a session that the controller welcomed empties the map.
type Logged = BTreeMap<String, String>;

/// Logs a failed dial: as a warning, unless the last warning of this address had the same text. So the journal normally
/// gets one line for each absent controller, not one for each try.
fn complain(address: &str, error: &DialError, logged: &mut Logged) {
    let text = error.to_string();
    let text = if text.contains(address) { text } else { format!("{address}: {text}") };
    if !is_new(address, &text, logged) {
        tracing::debug!("no session with the controller: {text}");
        return;
    }
    let hint = match fault(error) {
        Some(TlsFault::RefusedByPeer) => "; the controller's log says why",
        _ => "",
    };
    tracing::warn!("no session with the controller: {text}{hint} (trying again)");
}

/// Returns `true` if the last warning of this address had another text, or no warning was logged. From now on the text
/// counts as that of the last warning.
fn is_new(address: &str, text: &str, logged: &mut Logged) -> bool {
    logged.insert(address.to_owned(), text.to_owned()).is_none_or(|last| last != text)
}

fn fault(error: &DialError) -> Option<TlsFault> {
    match error {
        DialError::Link(error)
        | DialError::Session(SessionError::Link(error))
        | DialError::Enroll(EnrollError::Ask(AskError::Link(error))) => error.tls_fault(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the agent compared with the last warning of any controller, so two absent controllers put a
    /// line into the journal at each try.
    #[test]
    fn each_absent_controller_is_reported_once() {
        let mut logged = Logged::new();
        let tries =
            [("a:1", "refused"), ("b:1", "no route"), ("a:1", "refused"), ("b:1", "no route"), ("b:1", "refused")];
        let reported = tries.map(|(address, text)| is_new(address, text, &mut logged));
        assert_eq!(reported, [true, true, false, false, true]);
        logged.clear();
        assert!(is_new("a:1", "refused", &mut logged), "after a session");
    }
}
