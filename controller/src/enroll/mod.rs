//! Enrolment: the decision which hosts get a certificate, and for which proof. Enrolment is off unless `[enroll]
//! listen` is set.
//!
//! ```text
//!   token of the host, first use             ──> certificate for that host, as a client
//!   the same token and key again             ──> the same, while the first certificate is valid
//!   munge credential of root, from the host  ──> the same, if [enroll] munge allows it
//!   certificate of this authority, valid     ──> a new certificate for the same host
//! ```
//! The check of revocations and the record of the issued certificate are one step, under the authority's lock: a
//! concurrent revocation waits, and finds the certificate on the list. `perilog_host::enroll` bounds the visitors and
//! their questions.

mod authority;
mod munge;
mod records;
mod tokens;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perilog_core::HostName;
use perilog_host::authority::{Lock, Requested, canonical};
use perilog_host::clock;
use perilog_host::enroll::{Ask, Registrar, Shown};
use perilog_host::tls::ServerTls;
use tokio::sync::OwnedMutexGuard;

pub(crate) use authority::{AuthorityError, enrols};
pub(crate) use munge::Munged;
pub(crate) use tokens::{Token, Tokens};

use crate::config::Failover;
use crate::listener::{Complaints, ComplaintsOfEach, Expiries};
use authority::{Authority, Next};
use munge::{Doubt, Munge};
use records::{COUNTED, HOUR_MS, Records, Refused};
use tokens::{TokenRefused, Use};

/// Directory of the tokens, in the directory of the authority.
const TOKENS: &str = "tokens";
/// Time to wait for the authority's lock; the error then names the lock. `perilog ca` holds the lock for some
/// milliseconds.
const LOCKED: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 4_000 });

/// Maximum number of certificates of a host per hour without a new token: a host under repair may boot every ten
/// minutes.
const MOST_AN_HOUR: usize = 10;

/// The text that a visitor gets whose munge credential is rejected, whatever the reason.
const NOT_MUNGED: &str = "munge credential rejected, see the controller's log";

/// The port at which `perilog init node` enrols, unless its command line names another.
const PORT: u16 = 5117;

pub(crate) struct Enrolment {
    dir: PathBuf,
    authority: Authority,
    munge: Munge,
    pub(crate) tokens: Tokens,
    /// The command that sets up a node, without the token; `None`: this host's certificate has no name by which nodes
    /// dial, or its authority is unknown.
    invitation: Mutex<Option<String>>,
    /// Records of issued and revoked certificates. Only the holder of this lock may sign; others wait in order, without
    /// blocking a thread.
    records: Arc<tokio::sync::Mutex<Records>>,
    lasts_ms: AtomicU64,
    /// Limits the journal lines about refusals that any stranger can cause: those that are not [`No::is_serious`].
    complaints: Complaints,
    /// Limits the journal lines about refusals that are [`No::is_serious`], for each address separately. An
    /// administrator must see these lines, however many strangers connect.
    serious: ComplaintsOfEach,
    /// Ends of the certificates of open sessions. A renewed certificate moves the end at once, before the node connects
    /// again.
    expiries: Expiries,
}

/// The reason of a refusal: for the visitor, and for the log.
#[derive(Debug, PartialEq, Eq)]
struct No {
    reported: String,
    logged: String,
    /// Whether this refusal deserves attention: only a visitor with a token, a certificate or munge's key could cause
    /// it, or the controller is at fault. The log lines about such refusals have limits of their own, so that lines
    /// about strangers do not suppress them.
    is_serious: bool,
}

impl No {
    fn both(text: impl Into<String>) -> Self {
        let reported = text.into();
        Self { logged: reported.clone(), reported, is_serious: false }
    }

    fn of_munge(Doubt { is_serious, why }: Doubt) -> Self {
        Self { reported: NOT_MUNGED.to_owned(), logged: why, is_serious }
    }

    fn serious(self) -> Self {
        Self { is_serious: true, ..self }
    }

    /// Makes a refusal for an error of the controller; the visitor learns no details.
    fn ours(logged: impl Display) -> Self {
        let reported = "internal error, see the controller's log".to_owned();
        Self { reported, logged: logged.to_string(), is_serious: true }
    }
}

impl Enrolment {
    /// Opens the authority and the tokens in `dir`. `munged`: the hosts that munge enrols, if enabled.
    pub(crate) fn open(
        dir: &Path,
        cluster: &str,
        lasts_ms: u64,
        munged: Option<Munged>,
        expiries: Expiries,
    ) -> Result<Self, AuthorityError> {
        let authority = Authority::open(dir, cluster, clock::wall_ms())?;
        match records::forget(dir, clock::wall_ms()) {
            Ok(0) => {}
            Ok(1) => tracing::info!("1 expired certificate was removed from the list of issued certificates"),
            Ok(lines) => {
                tracing::info!("{lines} expired certificates were removed from the list of issued certificates")
            }
            Err(why) => tracing::warn!("expired certificates stay in the list of issued certificates: {why}"),
        }
        let path = dir.join(TOKENS);
        let tokens = Tokens::open(&path).map_err(|source| AuthorityError::File { path, source })?;
        Ok(Self {
            dir: dir.to_owned(),
            authority,
            munge: Munge::new(munged),
            tokens,
            invitation: Mutex::default(),
            records: Arc::default(),
            lasts_ms: AtomicU64::new(lasts_ms),
            complaints: Complaints::default(),
            serious: ComplaintsOfEach::default(),
            expiries,
        })
    }

    /// Sets the command that sets up a node, from the certificate, the port of the enrolment server, and the hosts of
    /// the controller, which nodes do not dial by their own names.
    pub(crate) fn invite(&self, tls: &ServerTls, port: u16, hosts: &Failover) {
        let line = hosts.dialled(tls.names()).zip(tls.pin()).map(|(name, pin)| {
            let enroll = if port == PORT { String::new() } else { format!(" --enroll {name}:{port}") };
            format!("perilog init node --controller {name} --pin {pin}{enroll}")
        });
        *self.invitation.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// Returns the command that sets up a node, without the token; `None`: there is none.
    pub(crate) fn invitation(&self) -> Option<String> {
        self.invitation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets how long later certificates are valid, and the hosts that munge enrols.
    pub(crate) fn set(&self, lasts_ms: u64, munged: Option<Munged>) {
        self.lasts_ms.store(lasts_ms, Ordering::Relaxed);
        self.munge.set(munged);
    }

    /// Checks the visitor's proof, and signs its request. Returns the certificate (PEM).
    async fn answer(
        self: &Arc<Self>,
        peer: SocketAddr,
        shown: Option<Shown>,
        ask: Ask,
        now_ms: u64,
    ) -> Result<String, No> {
        let munged = self.munged(peer, &ask).await;
        let (lock, mut records) = self.alone().await?;
        let registrar = self.clone();
        // The decision writes to the disk, and completes even if the visitor disconnects.
        let judged = tokio::task::spawn_blocking(move || {
            registrar.judge(&lock, &mut records, peer, shown.as_ref(), &ask, munged, now_ms)
        });
        // The decision panicked; the log has the panic.
        judged.await.unwrap_or_else(|error| Err(No::ours(error)))
    }

    /// Checks the munge credential in the visitor's request, for the host and the key in the request. The error says
    /// why the credential proves nothing; a malformed host name or key is such an error, too. [`Self::judge`] checks
    /// host name and key before it looks at this result, and refuses malformed ones itself.
    async fn munged(&self, peer: SocketAddr, ask: &Ask) -> Result<(), Doubt> {
        let (None, Some(credential)) = (&ask.token, &ask.munge) else { return Err(munge::stranger("no credential")) };
        let host = HostName::new(&ask.host).map_err(munge::stranger)?;
        let key = Requested::read(&ask.csr).map_err(munge::stranger)?.key();
        self.munge.confirm(credential, &canonical(host.as_str()), &key, peer).await
    }

    /// Takes the lock of the authority: until both guards are dropped, no other process signs or revokes.
    async fn alone(&self) -> Result<(Lock, OwnedMutexGuard<Records>), No> {
        let records = self.records.clone().lock_owned().await;
        let dir = self.dir.clone();
        // A foreign holder of the lock blocks only this thread.
        let taking = tokio::task::spawn_blocking(move || Lock::take(&dir).map(|lock| (lock, records)));
        let dir = self.dir.display();
        match tokio::time::timeout(LOCKED, taking).await {
            Ok(Ok(Ok(both))) => Ok(both),
            Ok(Ok(Err(error))) => Err(No::ours(format_args!("cannot lock {dir}: {error}"))),
            Ok(Err(error)) => Err(No::ours(error)),
            Err(_) => Err(No::ours(format_args!(
                "{dir} has been locked for more than {LOCKED:?}, and no host can enrol meanwhile: find the process \
                 that holds the lock (fuser -v {dir}; a stopped perilog ca?)"
            ))),
        }
    }

    /// Decides about a request: returns the signed certificate (PEM), or the refusal. On return the certificate is on
    /// the list of issued certificates, and in the log. The caller holds the authority's lock, so no other process
    /// signs or revokes meanwhile. `munged`: the result of the check of the munge credential, if the visitor showed
    /// one.
    #[expect(clippy::too_many_arguments, reason = "all that a decision is made by, and nothing that is kept")]
    fn judge(
        &self,
        lock: &Lock,
        records: &mut Records,
        peer: SocketAddr,
        shown: Option<&Shown>,
        ask: &Ask,
        munged: Result<(), Doubt>,
        now_ms: u64,
    ) -> Result<String, No> {
        let host = HostName::new(&ask.host).map_err(|error| No::both(format!("malformed host name: {error}")))?;
        let host = &canonical(host.as_str());
        let requested = Requested::read(&ask.csr).map_err(No::both)?;
        let lasts_ms = self.lasts_ms.load(Ordering::Relaxed);
        let next = Next::new(now_ms, lasts_ms);
        let mut is_new_word = false;
        let by = match (&ask.token, &ask.munge, shown) {
            (Some(token), ..) => {
                let redeemed = self.tokens.redeem_token(token, host, &requested.key(), &next, now_ms);
                let (token, first) = redeemed.map_err(|bad| refusal(&bad, host))?;
                match first {
                    Use::First => {
                        records.can_be_revoked(lock).map_err(No::ours)?;
                        is_new_word = true;
                    }
                    // A used token is no new permission: a host revoked since stays out, even if another token has
                    // enrolled the host again.
                    Use::Again { serial } => {
                        let refused = records.refused(lock, host, Some(&serial)).map_err(No::ours)?;
                        refused.map_or(Ok(()), |refused| Err(revoked(refused, host)))?;
                    }
                }
                format!("by a token that uid {} made", token.by)
            }
            (None, Some(_), _) => {
                munged.map_err(No::of_munge)?;
                let refused = records.refused(lock, host, None).map_err(No::ours)?;
                let out = |refused| No { reported: NOT_MUNGED.to_owned(), ..revoked(refused, host) };
                refused.map_or(Ok(()), |refused| Err(out(refused)))?;
                "by munge".to_owned()
            }
            (None, None, None) => {
                return Err(No::both(
                    "the request has no token, no munge credential and no certificate of an earlier enrolment",
                ));
            }
            (None, None, Some(shown)) if shown.names.contains(host) => {
                let refused = records.refused(lock, host, Some(&shown.serial)).map_err(No::ours)?;
                refused.map_or(Ok(()), |refused| Err(revoked(refused, host)))?;
                "by its certificate".to_owned()
            }
            (None, None, Some(shown)) => {
                let names = shown.names.join(", ");
                return Err(No::both(format!("the certificate is for {names}, not for {host}")).serious());
            }
        };
        let most = most_an_hour(lasts_ms);
        // A new token enrols a host again even if another node has used up the host's hourly number.
        if !is_new_word && records.lately(lock, host, now_ms).map_err(No::ours)? >= most {
            return Err(No {
                reported: format!(
                    "this node got {most} certificates within an hour, the limit: ask again later, or use a new token \
                     (perilog token create)"
                ),
                logged: format!(
                    "{host} got {most} certificates within an hour, the limit: find out why it asks so often ({by})"
                ),
                is_serious: true,
            });
        }
        let cert = self.authority.certify(lock, &requested, host, &next, now_ms).map_err(No::ours)?;
        self.expiries.renewed(host, next.until_ms);
        let serial = &next.serial;
        // Logs here instead of with the answer, because the certificate counts even if the visitor has disconnected.
        tracing::info!(host, %peer, "enrolled {host} ({peer}) {by}, serial number {serial}");
        Ok(cert)
    }
}

/// Returns the maximum number of certificates that a host may get per hour without a new token: [`MOST_AN_HOUR`], and
/// three more for each whole certificate lifetime within the hour, but at most [`COUNTED`]. The number is limited
/// because each certificate adds a line to the list of issued certificates.
fn most_an_hour(lasts_ms: u64) -> usize {
    let renewals = 3 * (HOUR_MS / lasts_ms.max(1));
    usize::try_from(renewals).unwrap_or(usize::MAX).saturating_add(MOST_AN_HOUR).min(COUNTED)
}

/// Makes the refusal of a revoked host; only an operator can enrol such a host again.
fn revoked(refused: Refused, host: &str) -> No {
    let what = match refused {
        Refused::Certificate => "its certificate was revoked".to_owned(),
        Refused::Host => format!("the newest certificate of {host} was revoked"),
    };
    let logged = format!("{what}; if the host may enrol again, give it a token (perilog token create {host})");
    No { reported: "the certificate was revoked".to_owned(), logged, is_serious: true }
}

/// Makes the refusal of a bad token. `host`: the host for which the visitor asked. If the token is for another host,
/// only the log names that host.
fn refusal(bad: &TokenRefused, host: &str) -> No {
    match bad {
        TokenRefused::Unknown => No::both("the token is unknown, or was revoked"),
        TokenRefused::OtherHost(other) => {
            let logged = format!("the token is for {other}, not for {host}");
            No { reported: format!("the token is not for {host}"), logged, is_serious: true }
        }
        TokenRefused::Late => No::both("the token has expired; make a new one (perilog token create)").serious(),
        TokenRefused::Used => No::both(
            "the token was used already; if that was not this node, revoke the host's certificates (perilog ca revoke)",
        )
        .serious(),
        TokenRefused::Disk(why) => No::ours(why),
    }
}

impl Registrar for Enrolment {
    async fn decide(self: Arc<Self>, peer: SocketAddr, shown: Option<Shown>, ask: Ask) -> Result<String, String> {
        // The log gets text from strangers short and plain.
        let host: String = ask.host.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        let answer = self.answer(peer, shown, ask, clock::wall_ms()).await;
        answer.map_err(|No { reported, logged, is_serious }| {
            let why = format!("it asks to be enrolled as {host}: {logged}");
            if is_serious {
                self.serious.refused(peer, &why)
            } else {
                self.complaints.refused(peer, &why)
            }
            reported
        })
    }

    fn turned_away(&self, peer: SocketAddr, why: &dyn Display) {
        // An error of the connection begins with the peer, as the line does.
        let why = why.to_string();
        let why = why.strip_prefix(&format!("{peer}: ")).unwrap_or(&why);
        self.complaints.refused(peer, &format_args!("it asks to be enrolled: {why}"));
    }
}

#[cfg(test)]
mod tests;
