//! Enrolment: who gets a certificate of a node, and against what. Off unless `[enroll] listen` is set.
//!
//! ```text
//!   token of the host, first use ──> certificate for that host, as a client
//!   credential of munge's, root's, from an address of the host ──> the same, where [enroll] munge says so
//!   certificate that we gave, still good ──> a new one for the same host
//! ```
//! Who is let in to ask, and how much they may say, is `perilog_host::enroll`'s.

mod authority;
mod munge;
mod revoked;
mod tokens;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perilog_core::HostName;
use perilog_host::authority::Requested;
use perilog_host::clock;
use perilog_host::enroll::{Ask, Registrar};

pub(crate) use authority::AuthorityError;
pub(crate) use tokens::{Token, Tokens};

use crate::listener::Complaints;
use authority::Authority;
use munge::Munge;
use revoked::Revoked;
use tokens::Bad;

/// Under the directory of the authority.
const TOKENS: &str = "tokens";
/// All that a stranger is told of a credential.
const NOT_MUNGED: &str = "the munge credential does not do; the controller's log says why";

pub(crate) struct Enrolment {
    authority: Authority,
    munge: Munge,
    revoked: Revoked,
    pub(crate) tokens: Tokens,
    lasts_ms: AtomicU64,
    complaints: Complaints,
}

impl Enrolment {
    /// `unmunge`: the program, where munge's credentials count.
    pub(crate) fn open(
        dir: &Path,
        cluster: &str,
        lasts_ms: u64,
        unmunge: Option<PathBuf>,
    ) -> Result<Self, AuthorityError> {
        let authority = Authority::open(dir, cluster, clock::wall_ms())?;
        let path = dir.join(TOKENS);
        let tokens = Tokens::open(&path).map_err(|source| AuthorityError::File { path, source })?;
        Ok(Self {
            authority,
            munge: Munge::new(unmunge),
            revoked: Revoked::new(dir),
            tokens,
            lasts_ms: AtomicU64::new(lasts_ms),
            complaints: Complaints::default(),
        })
    }

    /// For those who ask from now on: how long certificates last, and whether munge counts.
    pub(crate) fn set(&self, lasts_ms: u64, unmunge: Option<PathBuf>) {
        self.lasts_ms.store(lasts_ms, Ordering::Relaxed);
        self.munge.set(unmunge);
    }

    /// The certificate and what is logged, or what is told and what is logged. `munged`: what came of its munge credential, if it shows one.
    fn judge(
        &self,
        shown: &[String],
        ask: &Ask,
        munged: Result<(), String>,
        now_ms: u64,
    ) -> Result<(String, String), (String, String)> {
        let both = |text: String| (text.clone(), text);
        let host = HostName::new(&ask.host).map_err(|error| both(format!("malformed host name: {error}")))?;
        let host = host.as_str();
        let requested = Requested::read(&ask.csr).map_err(both)?;
        let by = match (&ask.token, &ask.munge) {
            (Some(token), _) => {
                let key = requested.key();
                let token = self.tokens.redeem(token, host, &key, now_ms).map_err(|bad| refusal(&bad, host))?;
                format!("by a token that uid {} made", token.by)
            }
            (None, Some(_)) => {
                munged.and_then(|()| self.is_not_revoked(host)).map_err(|why| (NOT_MUNGED.to_owned(), why))?;
                "by munge".to_owned()
            }
            (None, None) if shown.is_empty() => {
                return Err(both("neither a token nor a certificate of an earlier enrolment".to_owned()));
            }
            (None, None) if shown.iter().any(|name| name == host) => "by its certificate".to_owned(),
            (None, None) => {
                let text = format!("the certificate is for {}, not for {host}", shown.join(", "));
                return Err(both(text));
            }
        };
        let made = self.authority.certify(&requested, host, now_ms, self.lasts_ms.load(Ordering::Relaxed));
        let (cert, serial) = made.map_err(|why| ("an error of the controller, which its log tells".to_owned(), why))?;
        self.revoked.is_back(host);
        Ok((cert, format!("{by}, serial number {serial}")))
    }

    fn is_not_revoked(&self, host: &str) -> Result<(), String> {
        match self.revoked.has(host) {
            Ok(false) => Ok(()),
            Ok(true) => Err(format!(
                "the certificate of {host} was revoked: munge does not bring it back; if it is good again, give it a token (perilog token create {host})"
            )),
            Err(error) => Err(format!("it cannot be seen whether {host} was revoked: {error}")),
        }
    }

    /// What munge says for whoever asks so. What is malformed is told as such by [`Self::judge`].
    async fn munged(&self, peer: SocketAddr, ask: &Ask) -> Result<(), String> {
        let (None, Some(credential)) = (&ask.token, &ask.munge) else { return Err("no munge credential".to_owned()) };
        let host = HostName::new(&ask.host).map_err(|error| error.to_string())?;
        let key = Requested::read(&ask.csr)?.key();
        self.munge.vouch(credential, host.as_str(), &key, peer).await
    }

    async fn answer(
        self: &Arc<Self>,
        peer: SocketAddr,
        shown: Vec<String>,
        ask: Ask,
        now_ms: u64,
    ) -> Result<(String, String), (String, String)> {
        let munged = self.munged(peer, &ask).await;
        let registrar = self.clone();
        // It writes to the disk. What is begun there is done, whoever waits.
        let judged = tokio::task::spawn_blocking(move || registrar.judge(&shown, &ask, munged, now_ms)).await;
        // It unwound: the panic is in the log.
        judged.unwrap_or_else(|error| {
            Err(("an error of the controller, which its log tells".to_owned(), error.to_string()))
        })
    }
}

/// For whoever asks, and for the log: who has somebody else's token is not told whose it is.
fn refusal(bad: &Bad, host: &str) -> (String, String) {
    let both = |text: &str| (text.to_owned(), text.to_owned());
    match bad {
        Bad::Unknown => both("the token is not known (any more)"),
        Bad::OtherHost(other) => {
            (format!("the token is not for {host}"), format!("the token is for {other}, not for {host}"))
        }
        Bad::Late => both("the token's time is over; make another one (perilog token create)"),
        Bad::Used => both(
            "the token was used already; if that was not this node, revoke the host's certificates (perilog ca revoke)",
        ),
        Bad::Disk(why) => ("an error of the controller, which its log tells".to_owned(), why.clone()),
    }
}

impl Registrar for Enrolment {
    async fn decide(self: Arc<Self>, peer: SocketAddr, shown: Vec<String>, ask: Ask) -> Result<String, String> {
        // What is logged of a stranger's text is short and plain.
        let host: String = ask.host.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        match self.answer(peer, shown, ask, clock::wall_ms()).await {
            Ok((cert, how)) => {
                tracing::info!(host, %peer, "enrolled {host} ({peer}) {how}");
                Ok(cert)
            }
            Err((told, logged)) => {
                self.complaints.refused(peer, &format_args!("it asks to be enrolled as {host}: {logged}"));
                Err(told)
            }
        }
    }

    fn turned_away(&self, peer: SocketAddr, why: &dyn Display) {
        self.complaints.refused(peer, &format_args!("it asks to be enrolled: {why}"));
    }
}

#[cfg(test)]
mod tests;
