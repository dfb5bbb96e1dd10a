//! Enrolment: who gets a certificate of a node, and against what. Off unless `[enroll] listen` is set.
//!
//! ```text
//!   token of the host, first use ──> certificate for that host, as a client; again for the same key, while that one is good
//!   credential of munge's, root's, from an address of the host ──> the same, where [enroll] munge says so
//!   certificate that we gave, still good, not revoked ──> a new one for the same host
//! ```
//! From the look at what is revoked to the certificate on the list of what was issued it is one step, under the authority's lock: who revokes meanwhile
//! waits, and finds it there. Who is let in to ask, and how much they may say, is `perilog_host::enroll`'s.

mod authority;
mod munge;
mod records;
mod tokens;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perilog_core::HostName;
use perilog_host::authority::{Lock, Requested, canonical};
use perilog_host::clock;
use perilog_host::enroll::{Ask, Registrar, Shown};
use tokio::sync::OwnedMutexGuard;

pub(crate) use authority::AuthorityError;
pub(crate) use munge::Munged;
pub(crate) use tokens::{Token, Tokens};

use crate::listener::{Complaints, ComplaintsOfEach};
use authority::{Authority, Next};
use munge::{Doubt, Munge};
use records::{COUNTED, HOUR_MS, Records, Refused};
use tokens::{Bad, Use};

/// Under the directory of the authority.
const TOKENS: &str = "tokens";
/// So long the authority may be locked by somebody else, who is said to be in the way then. `perilog ca` takes some milliseconds.
const LOCKED: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 4_000 });

/// Certificates of one host in an hour that machines ask for: it may well boot every ten minutes, when somebody looks for what is wrong with it.
const MOST_AN_HOUR: usize = 10;

/// All that is told of a credential.
const NOT_MUNGED: &str = "the munge credential does not do; the controller's log says why";

pub(crate) struct Enrolment {
    dir: PathBuf,
    authority: Authority,
    munge: Munge,
    pub(crate) tokens: Tokens,
    /// Who has these signs; the others wait in the order in which they came, and hold no thread.
    records: Arc<tokio::sync::Mutex<Records>>,
    lasts_ms: AtomicU64,
    /// Of strangers.
    complaints: Complaints,
    /// Of those who have shown that they are somebody: what an administrator must see, whoever else knocks.
    weighty: ComplaintsOfEach,
}

/// Why there is no certificate: for whoever asks, and for the log.
#[derive(Debug, PartialEq, Eq)]
struct No {
    told: String,
    logged: String,
    /// Nobody can bring it about without a token, a certificate or munge's key; or something is wrong here.
    weighs: bool,
}

impl No {
    fn both(text: impl Into<String>) -> Self {
        let told = text.into();
        Self { logged: told.clone(), told, weighs: false }
    }

    fn of_munge(Doubt { weighs, why }: Doubt) -> Self {
        Self { told: NOT_MUNGED.to_owned(), logged: why, weighs }
    }

    fn weighty(self) -> Self {
        Self { weighs: true, ..self }
    }

    /// Something is wrong here, which is nobody else's business.
    fn ours(logged: impl Display) -> Self {
        let told = "an error of the controller, which its log tells".to_owned();
        Self { told, logged: logged.to_string(), weighs: true }
    }
}

impl Enrolment {
    /// `munged`: whom munge enrols, where it does.
    pub(crate) fn open(
        dir: &Path,
        cluster: &str,
        lasts_ms: u64,
        munged: Option<Munged>,
    ) -> Result<Self, AuthorityError> {
        let authority = Authority::open(dir, cluster, clock::wall_ms())?;
        match records::forget(dir, clock::wall_ms()) {
            Ok(0) => {}
            Ok(lines) => tracing::info!("{lines} certificates that have run out left the list of what was issued"),
            Err(why) => tracing::warn!("the list of what was issued stays as long as it is: {why}"),
        }
        let path = dir.join(TOKENS);
        let tokens = Tokens::open(&path).map_err(|source| AuthorityError::File { path, source })?;
        Ok(Self {
            dir: dir.to_owned(),
            authority,
            munge: Munge::new(munged),
            tokens,
            records: Arc::default(),
            lasts_ms: AtomicU64::new(lasts_ms),
            complaints: Complaints::default(),
            weighty: ComplaintsOfEach::default(),
        })
    }

    /// For those who ask from now on: how long certificates last, and whom munge enrols.
    pub(crate) fn set(&self, lasts_ms: u64, munged: Option<Munged>) {
        self.lasts_ms.store(lasts_ms, Ordering::Relaxed);
        self.munge.set(munged);
    }

    /// The certificate (PEM).
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
        // It writes to the disk. What is begun there is done, whoever waits.
        let judged = tokio::task::spawn_blocking(move || {
            registrar.judge(&lock, &mut records, peer, shown.as_ref(), &ask, munged, now_ms)
        });
        // It unwound: the panic is in the log.
        judged.await.unwrap_or_else(|error| Err(No::ours(error)))
    }

    /// What munge says for whoever asks so. What is malformed is told as such by [`Self::judge`].
    async fn munged(&self, peer: SocketAddr, ask: &Ask) -> Result<(), Doubt> {
        let (None, Some(credential)) = (&ask.token, &ask.munge) else { return Err(munge::stranger("no credential")) };
        let host = HostName::new(&ask.host).map_err(munge::stranger)?;
        let key = Requested::read(&ask.csr).map_err(munge::stranger)?.key();
        self.munge.vouch(credential, &canonical(host.as_str()), &key, peer).await
    }

    /// Nobody else signs or revokes until both are dropped.
    async fn alone(&self) -> Result<(Lock, OwnedMutexGuard<Records>), No> {
        let records = self.records.clone().lock_owned().await;
        let dir = self.dir.clone();
        // Whoever is in the way holds up this one thread.
        let taking = tokio::task::spawn_blocking(move || Lock::take(&dir).map(|lock| (lock, records)));
        let dir = self.dir.display();
        match tokio::time::timeout(LOCKED, taking).await {
            Ok(Ok(Ok(both))) => Ok(both),
            Ok(Ok(Err(error))) => Err(No::ours(format_args!("cannot lock {dir}: {error}"))),
            Ok(Err(error)) => Err(No::ours(error)),
            Err(_) => Err(No::ours(format_args!(
                "{dir} is locked for more than {LOCKED:?}, and nobody is enrolled as long: who is it (fuser -v {dir}; a perilog ca that was stopped?)"
            ))),
        }
    }

    /// The same, when nobody else does; it is on the list of what was issued, and in the log. `munged`: what came of its credential, if it shows one.
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
                let redeemed = self.tokens.redeem(token, host, &requested.key(), &next, now_ms);
                let (token, first) = redeemed.map_err(|bad| refusal(&bad, host))?;
                match first {
                    Use::First => {
                        records.can_be_revoked(lock).map_err(No::ours)?;
                        is_new_word = true;
                    }
                    // Nobody has said anything new: whoever was revoked since stays out, also when another token has brought the host back.
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
                let out = |refused| No { told: NOT_MUNGED.to_owned(), ..revoked(refused, host) };
                refused.map_or(Ok(()), |refused| Err(out(refused)))?;
                "by munge".to_owned()
            }
            (None, None, None) => return Err(No::both("neither a token nor a certificate of an earlier enrolment")),
            (None, None, Some(shown)) if shown.names.contains(host) => {
                let refused = records.refused(lock, host, Some(&shown.serial)).map_err(No::ours)?;
                refused.map_or(Ok(()), |refused| Err(revoked(refused, host)))?;
                "by its certificate".to_owned()
            }
            (None, None, Some(shown)) => {
                let names = shown.names.join(", ");
                return Err(No::both(format!("the certificate is for {names}, not for {host}")).weighty());
            }
        };
        let most = most_an_hour(lasts_ms);
        // A human's word brings a host back, whatever somebody else has used up of its hour.
        if !is_new_word && records.lately(lock, host, now_ms).map_err(No::ours)? >= most {
            return Err(No {
                told: format!("it was given {most} certificates within the last hour, and gets no more for now"),
                logged: format!(
                    "{host} was given {most} certificates within the last hour, and gets no more for now: why does it ask so often ({by})?"
                ),
                weighs: true,
            });
        }
        let cert = self.authority.certify(lock, &requested, host, &next, now_ms).map_err(No::ours)?;
        let serial = &next.serial;
        // Here, and not where it is answered: it counts also where nobody waits for it any more.
        tracing::info!(host, %peer, "enrolled {host} ({peer}) {by}, serial number {serial}");
        Ok(cert)
    }
}

/// Each certificate is a line for ever, and one more to be revoked: no host may fill these lists. It renews one that lasts less than an hour more often, by
/// at most three tries.
fn most_an_hour(lasts_ms: u64) -> usize {
    let renewals = 3 * (HOUR_MS / lasts_ms.max(1));
    usize::try_from(renewals).unwrap_or(usize::MAX).saturating_add(MOST_AN_HOUR).min(COUNTED)
}

/// A human brings such a host back.
fn revoked(refused: Refused, host: &str) -> No {
    let what = match refused {
        Refused::Certificate => "its certificate was revoked".to_owned(),
        Refused::Host => format!("the newest certificate of {host} was revoked"),
    };
    let logged = format!("{what}; if it is good again, give it a token (perilog token create {host})");
    No { told: "the certificate was revoked".to_owned(), logged, weighs: true }
}

/// Who has somebody else's token is not told whose it is.
fn refusal(bad: &Bad, host: &str) -> No {
    match bad {
        Bad::Unknown => No::both("the token is not known (any more)"),
        Bad::OtherHost(other) => {
            let logged = format!("the token is for {other}, not for {host}");
            No { told: format!("the token is not for {host}"), logged, weighs: true }
        }
        Bad::Late => No::both("the token's time is over; make another one (perilog token create)").weighty(),
        Bad::Used => No::both(
            "the token was used already; if that was not this node, revoke the host's certificates (perilog ca revoke)",
        )
        .weighty(),
        Bad::Disk(why) => No::ours(why),
    }
}

impl Registrar for Enrolment {
    async fn decide(self: Arc<Self>, peer: SocketAddr, shown: Option<Shown>, ask: Ask) -> Result<String, String> {
        // What is logged of a stranger's text is short and plain.
        let host: String = ask.host.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        let answer = self.answer(peer, shown, ask, clock::wall_ms()).await;
        answer.map_err(|No { told, logged, weighs }| {
            let why = format!("it asks to be enrolled as {host}: {logged}");
            if weighs {
                self.weighty.refused(peer, &why)
            } else {
                self.complaints.refused(peer, &why)
            }
            told
        })
    }

    fn turned_away(&self, peer: SocketAddr, why: &dyn Display) {
        self.complaints.refused(peer, &format_args!("it asks to be enrolled: {why}"));
    }
}

#[cfg(test)]
mod tests;
