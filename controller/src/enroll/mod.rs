//! Enrolment: who gets a certificate of a node, and against what. Off unless `[enroll] listen` is set.
//!
//! ```text
//!   token of the host, first use ──> certificate for that host, as a client
//!   certificate that we gave, still good ──> a new one for the same host
//! ```
//! Who is let in to ask, and how much they may say, is `perilog_host::enroll`'s.

mod authority;
mod tokens;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use perilog_core::HostName;
use perilog_host::authority::{self as pki, Requested};
use perilog_host::clock;
use perilog_host::enroll::{Ask, Registrar};

pub(crate) use authority::AuthorityError;
pub(crate) use tokens::{Token, Tokens};

use crate::listener::Complaints;
use authority::Authority;
use tokens::Bad;

/// Under the directory of the authority.
const TOKENS: &str = "tokens";

pub(crate) struct Enrolment {
    authority: Authority,
    pub(crate) tokens: Tokens,
    lasts_ms: AtomicU64,
    complaints: Complaints,
}

impl Enrolment {
    pub(crate) fn open(dir: &Path, cluster: &str, lasts_ms: u64) -> Result<Self, AuthorityError> {
        let authority = Authority::open(dir, cluster, clock::wall_ms())?;
        let path = dir.join(TOKENS);
        let tokens = Tokens::open(&path).map_err(|source| AuthorityError::File { path, source })?;
        Ok(Self { authority, tokens, lasts_ms: AtomicU64::new(lasts_ms), complaints: Complaints::default() })
    }

    /// For the certificates from now on.
    pub(crate) fn set_lifetime(&self, lasts_ms: u64) {
        self.lasts_ms.store(lasts_ms, Ordering::Relaxed);
    }

    /// The certificate and what is logged, or what is told and what is logged.
    fn judge(&self, shown: &[String], ask: &Ask, now_ms: u64) -> Result<(String, String), (String, String)> {
        let both = |text: String| (text.clone(), text);
        let host = HostName::new(&ask.host).map_err(|error| both(format!("malformed host name: {error}")))?;
        let host = &pki::canonical(host.as_str());
        let requested = Requested::read(&ask.csr).map_err(both)?;
        let by = match &ask.token {
            Some(token) => {
                let key = requested.key();
                let token = self.tokens.redeem(token, host, &key, now_ms).map_err(|bad| refusal(&bad, host))?;
                format!("by a token that uid {} made", token.by)
            }
            None if shown.is_empty() => {
                return Err(both("neither a token nor a certificate of an earlier enrolment".to_owned()));
            }
            None if shown.iter().any(|name| name == host) => "by its certificate".to_owned(),
            None => {
                let text = format!("the certificate is for {}, not for {host}", shown.join(", "));
                return Err(both(text));
            }
        };
        let made = self.authority.certify(&requested, host, now_ms, self.lasts_ms.load(Ordering::Relaxed));
        let (cert, serial) = made.map_err(|why| ("an error of the controller, which its log tells".to_owned(), why))?;
        Ok((cert, format!("{by}, serial number {serial}")))
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
    fn decide(&self, peer: SocketAddr, shown: Vec<String>, ask: Ask) -> Result<String, String> {
        // What is logged of a stranger's text is short and plain.
        let host: String = ask.host.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        match self.judge(&shown, &ask, clock::wall_ms()) {
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
