//! Dials the controllers in turn until one accepts, and again when that session ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use perilog_host::clock;
use perilog_host::enroll::AskError;
use perilog_host::link::{Dial, LinkError};
use perilog_host::tls::{ClientTls, TlsError, TlsFault, TlsFiles};
use tokio::sync::{Notify, mpsc, watch};

use super::LinkEvent;
use super::enroll::{self, Enroll, EnrollError};
use super::session::{self, SessionError};
use super::window::Window;

/// Controllers to dial. A reload replaces this value; the next dial uses the new value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Addresses of the controllers as `host:port`; the agent tries each in turn, and resolves a host's name at each
    /// dial.
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

/// Dials the controllers in turn, and runs each session to its end. Returns when the receiver of `events` or the sender
/// of `controllers` is dropped.
pub async fn dial(
    mut controllers: watch::Receiver<Controllers>,
    events: mpsc::Sender<LinkEvent>,
    window: Arc<Window>,
    release: String,
) {
    let mut crew = tokio::task::JoinSet::new();
    let enrolled = Arc::new(Notify::new());
    crew.spawn(enroll::keep(controllers.clone(), enrolled.clone()));
    let mut last_counter = 0;
    let mut said = Said::new();
    loop {
        let current = controllers.borrow_and_update().clone();
        if current.addresses.is_empty() {
            if controllers.changed().await.is_err() {
                return;
            }
            continue;
        }
        for address in &current.addresses {
            // Two sessions of one boot never share a number, even within a millisecond or across a restart of the
            // agent.
            let counter = clock::boottime_ms().max(last_counter + 1);
            last_counter = counter;
            let outcome = attempt(&current, address, &enrolled, &events, counter, &release).await;
            if events.is_closed() {
                return;
            }
            let welcomed = window.close();
            if welcomed {
                said.clear();
            }
            match outcome {
                Ok(()) if welcomed => tracing::info!("the session with the controller {address} ended"),
                // The loop ended the session, or the controller turned the agent away; the log has the reason already.
                Ok(()) => {}
                Err(error) => complain(address, &error, &mut said),
            }
            if welcomed {
                break;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(window.pause()) => {}
            changed = controllers.changed() => if changed.is_err() { return },
        }
    }
}

async fn attempt(
    controllers: &Controllers,
    address: &str,
    enrolled: &Notify,
    events: &mpsc::Sender<LinkEvent>,
    counter: u64,
    release: &str,
) -> Result<(), DialError> {
    if let (Some(enroll), Some(files)) = (&controllers.enroll, &controllers.tls)
        && enroll::ensure(enroll, files, controllers.server_name.as_deref()).await?
    {
        enrolled.notify_one();
    }
    let mut dial = match &controllers.tls {
        Some(files) => {
            // Beside the loop: the files may be on a file system that does not answer.
            let files = files.clone();
            let loaded = tokio::task::spawn_blocking(move || ClientTls::load(&files)).await;
            // The runtime ends, and the agent with it.
            let Ok(loaded) = loaded else { return Ok(()) };
            Dial::tls(address, loaded?)
        }
        None => Dial::plain(address),
    };
    if let Some(name) = &controllers.server_name {
        dial.server_name.clone_from(name);
    }
    let link = perilog_host::link::dial(&dial).await?;
    Ok(session::run(link, events, counter, release).await?)
}

/// The text of the last warning of each address, since the last session began.
type Said = BTreeMap<String, String>;

/// Logs a failed dial: as a warning, unless the last warning of this address had the same text. So the journal normally
/// gets one line for each absent controller, not one for each try.
fn complain(address: &str, error: &DialError, said: &mut Said) {
    let text = error.to_string();
    let text = if text.contains(address) { text } else { format!("{address}: {text}") };
    if !is_new(address, &text, said) {
        tracing::debug!("no session with the controller: {text}");
        return;
    }
    let hint = match fault(error) {
        Some(TlsFault::NotYetValid) => "; is the clock of this node right?",
        Some(TlsFault::Expired) => "; renew the certificate",
        Some(TlsFault::RefusedByPeer) => "; the controller's log says why",
        _ => "",
    };
    tracing::warn!("no session with the controller: {text}{hint} (trying again)");
}

/// Returns `true` if the last warning of this address had another text, or none was logged; the text is the last one
/// from then on.
fn is_new(address: &str, text: &str, said: &mut Said) -> bool {
    said.insert(address.to_owned(), text.to_owned()).is_none_or(|last| last != text)
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
        let mut said = Said::new();
        let tries =
            [("a:1", "refused"), ("b:1", "no route"), ("a:1", "refused"), ("b:1", "no route"), ("b:1", "refused")];
        let reported = tries.map(|(address, text)| is_new(address, text, &mut said));
        assert_eq!(reported, [true, true, false, false, true]);
        said.clear();
        assert!(is_new("a:1", "refused", &mut said), "after a session");
    }
}
