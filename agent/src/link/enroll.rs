//! Enrolment of the node: the agent makes the key, which never leaves the node, and asks for a certificate. The agent
//! authenticates by a one-time token, or by a munge credential if no token works. Before the certificate expires, the
//! agent renews the certificate, and authenticates by the certificate itself.
//!
//! ```text
//!   none, or expired -- key, token or munge --> certificate
//!   certificate -- after two thirds of its life, by itself --> next certificate of the same key
//! ```
//! The key is on disk before the agent asks, so the agent can ask again if an answer is lost. Open sessions are not
//! affected.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perilog_host::authority::Requested;
use perilog_host::enroll::{Ask, AskError, ask, bound};
use perilog_host::link::Dial;
use perilog_host::munge::{self, MungeError};
use perilog_host::tls::{ClientTls, TlsError, TlsFiles, check_issued};
use perilog_host::{authority, clock, durable};
use tokio::sync::{Notify, watch};

use super::Controllers;

/// Longest time between two looks at the certificate's validity: an operator may set the clock or replace the files.
const CHECK_EVERY: Duration = Duration::from_secs(3600);
/// Shortest pause after a try to renew the certificate, unless a reload or a new certificate ends the pause.
const BREATH: Duration = Duration::from_secs(10);
/// Maximum size in bytes of a token's file: a token has 64 hexadecimal digits.
const MAX_TOKEN: u64 = 4096;

/// The settings by which this node gets its certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enroll {
    /// Addresses as `host:port` at which controllers accept enrolment requests; the agent tries each in turn.
    pub addresses: Vec<String>,
    /// File with the one-time token for the first certificate; `None`: the node has no token.
    pub token: Option<PathBuf>,
    /// Path of the program that makes a munge credential; `None`: the configuration does not enable munge.
    pub munge: Option<PathBuf>,
    /// Host name that the certificate must have.
    pub host: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EnrollError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: other users can read the token (mode {mode:04o}); run chmod 0600 on it, and make a new token if they \
             may have read it", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{}: the token belongs to uid {uid}, who can replace it; run chown root on it", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{address} answered with a certificate that the agent rejects: {why}")]
    Answer { address: String, why: String },
    #[error("there is no valid certificate {}, and [enroll] sets neither token nor munge, with which the agent could \
             ask for one",
            path.display())]
    NoToken { path: PathBuf },
    #[error("{}: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error(transparent)]
    Munge(#[from] MungeError),
    #[error("enrolment by the token failed ({token}), and then by munge: {munge}")]
    Neither { munge: Box<Self>, token: Box<Self> },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("[enroll] names no controller")]
    Nobody,
}

/// Obtains a certificate, unless a valid certificate exists. Returns `true` for a new certificate.
pub(super) async fn ensure(enroll: &Enroll, files: &TlsFiles, server_name: Option<&str>) -> Result<bool, EnrollError> {
    if files.validity()?.is_some_and(|(_, until_ms)| clock::wall_ms() < until_ms) {
        return Ok(false);
    }
    // An expired certificate proves nothing, so the node connects without one.
    let tls = ClientTls::load_anonymous(files)?;
    let way = Way::new(enroll, &files.key, server_name, tls)?;
    let by_token = match &enroll.token {
        Some(path) => by_token(&way, path).await,
        None => Err(EnrollError::NoToken { path: files.cert.clone() }),
    };
    let (certificate, by) = match (by_token, &enroll.munge) {
        (Ok(certificate), _) => (certificate, "with its token"),
        (Err(error), Some(munge)) if !error.is_of_the_way() => {
            (by_munge(&way, munge).await.map_err(|munge| error.and_munge(munge))?, "by munge")
        }
        (Err(error), _) => return Err(error),
    };
    write(&files.cert, 0o644, &certificate)?;
    tracing::info!("enrolled as {} {by}: {}", enroll.host, files.cert.display());
    Ok(true)
}

/// The controllers to ask for a certificate, the TLS settings that verify their identity, and the key to be certified.
struct Way<'a> {
    enroll: &'a Enroll,
    server_name: Option<&'a str>,
    tls: ClientTls,
    /// The node's key (PEM).
    key: String,
    /// The certificate signing request (PEM) for the key.
    csr: String,
    /// The public part of the key, to which a munge credential is bound.
    public: Vec<u8>,
}

impl<'a> Way<'a> {
    /// Reads the node's key from the file `path`; makes the key if the file is missing.
    fn new(enroll: &'a Enroll, path: &Path, server_name: Option<&'a str>, tls: ClientTls) -> Result<Self, EnrollError> {
        let wrong = |why| EnrollError::Key { path: path.to_owned(), why };
        let key = key(path)?;
        let csr = authority::request(&key).map_err(|error| wrong(error.to_string()))?;
        let public = Requested::read(&csr).map_err(wrong)?.key();
        Ok(Self { enroll, server_name, tls, key, csr, public })
    }
}

/// The proof of identity that the node sends with its request for a certificate. Without token and munge, the
/// certificate of the connection is the proof.
#[derive(Default)]
struct Proof {
    token: Option<String>,
    munge: Option<String>,
}

async fn by_token(way: &Way<'_>, path: &Path) -> Result<String, EnrollError> {
    let proof = Proof { token: Some(token(path)?), munge: None };
    obtain(way, proof).await
}

/// Obtains a certificate from the controllers of `way`, with a munge credential as proof; `program` makes the
/// credential. A credential is valid once, so each controller gets a new one.
async fn by_munge(way: &Way<'_>, program: &Path) -> Result<String, EnrollError> {
    let payload = &bound(&way.enroll.host, &way.public);
    let ask = |address| async move {
        let proof = Proof { token: None, munge: Some(munge::encode(program, payload).await?) };
        obtain_at(way, address, &proof).await
    };
    ask_in_turn(&way.enroll.addresses, ask).await
}

/// Asks each controller in turn, until one issues a certificate that is good. An error on this node ends the turn.
///
/// # Errors
/// The error on this node, if there was one. Otherwise the error of the first controller that answered; if none
/// answered, the error of the last controller; without controllers, [`EnrollError::Nobody`].
async fn ask_in_turn<'a, A>(addresses: &'a [String], ask: impl Fn(&'a str) -> A) -> Result<String, EnrollError>
where
    A: Future<Output = Result<String, EnrollError>>,
{
    let mut kept = EnrollError::Nobody;
    for address in addresses {
        match ask(address).await {
            Err(error @ (EnrollError::Ask(_) | EnrollError::Answer { .. })) if kept.is_of_the_way() => kept = error,
            Err(EnrollError::Ask(_) | EnrollError::Answer { .. }) => {}
            ended => return ended,
        }
    }
    Err(kept)
}

impl EnrollError {
    /// Returns `true` if no controller answered, or there is none to ask. A request with another proof of identity
    /// would normally fail, too.
    const fn is_of_the_way(&self) -> bool {
        matches!(self, Self::Nobody | Self::Ask(AskError::Link(_) | AskError::TimedOut { .. }))
    }

    /// Combines the errors of both proofs: `self` is the error of the token. If there is no token file, returns only
    /// `munge`, because the agent did not try a token.
    fn and_munge(self, munge: Self) -> Self {
        match self {
            Self::NoToken { .. } => munge,
            Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound => munge,
            token => Self::Neither { munge: Box::new(munge), token: Box::new(token) },
        }
    }
}

/// Keeps the certificate valid: renews it in time. The dialler notifies `enrolled` of each certificate that it
/// obtained.
pub(super) async fn keep(mut controllers: watch::Receiver<Controllers>, enrolled: Arc<Notify>) {
    let mut logged = String::new();
    let mut last = None;
    loop {
        let current = controllers.borrow_and_update().clone();
        let (Some(enroll), Some(files)) = (&current.enroll, &current.tls) else {
            if controllers.changed().await.is_err() {
                return;
            }
            continue;
        };
        let validity = files.validity().ok().flatten();
        if validity != last.map(|(validity, _)| validity) {
            last = validity.map(|validity| (validity, due_ms(validity)));
        }
        let now_ms = clock::wall_ms();
        let pause = match last {
            // The dialler asks for a new certificate.
            None => CHECK_EVERY,
            Some(((_, until_ms), _)) if until_ms <= now_ms => CHECK_EVERY,
            Some((_, due_ms)) if now_ms < due_ms => Duration::from_millis(due_ms - now_ms).min(CHECK_EVERY),
            Some(((_, until_ms), _)) => match renew(enroll, files, current.server_name.as_deref()).await {
                Ok(()) => {
                    tracing::info!("renewed the certificate {}", files.cert.display());
                    logged.clear();
                    BREATH
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != logged {
                        tracing::warn!("cannot renew the certificate: {text} (trying again)");
                        logged = text;
                    }
                    Duration::from_millis((until_ms - now_ms) / 16).clamp(BREATH, CHECK_EVERY)
                }
            },
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = enrolled.notified() => {}
            changed = controllers.changed() => if changed.is_err() { return },
        }
    }
}

/// Returns a random moment between two thirds and five sixths of the certificate's life, so that nodes that booted
/// together renew at different times.
fn due_ms((from_ms, until_ms): (u64, u64)) -> u64 {
    let lasts_ms = until_ms.saturating_sub(from_ms);
    let random = uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
    from_ms + lasts_ms / 3 * 2 + random % (lasts_ms / 6 + 1)
}

async fn renew(enroll: &Enroll, files: &TlsFiles, server_name: Option<&str>) -> Result<(), EnrollError> {
    let way = Way::new(enroll, &files.key, server_name, ClientTls::load(files)?)?;
    write(&files.cert, 0o644, &obtain(&way, Proof::default()).await?)
}

/// Returns a new certificate (PEM).
async fn obtain(way: &Way<'_>, proof: Proof) -> Result<String, EnrollError> {
    ask_in_turn(&way.enroll.addresses, |address| obtain_at(way, address, &proof)).await
}

async fn obtain_at(way: &Way<'_>, address: &str, proof: &Proof) -> Result<String, EnrollError> {
    let (token, munge) = (proof.token.clone(), proof.munge.clone());
    let mut dial = Dial::tls(address, way.tls.clone());
    // A munge credential proves that root asks, but not from which host; the port proves the host.
    dial.as_root = munge.is_some();
    if let Some(name) = way.server_name {
        name.clone_into(&mut dial.server_name);
    }
    let question = Ask { host: way.enroll.host.clone(), token, munge, csr: way.csr.clone() };
    let answer = ask(&dial, &question).await?;
    check_issued(&answer, &way.key, &way.enroll.host, clock::wall_ms())
        .map_err(|why| EnrollError::Answer { address: address.to_owned(), why })?;
    Ok(answer)
}

/// Returns the node's key (PEM); makes a key if the file is missing.
fn key(path: &Path) -> Result<String, EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read.map_err(failed),
    }
    let key = authority::key().map_err(|error| EnrollError::Key { path: path.to_owned(), why: error.to_string() })?;
    write(path, 0o600, &key)?;
    Ok(key)
}

fn token(path: &Path) -> Result<String, EnrollError> {
    token_as(rustix::process::geteuid().as_raw(), path)
}

/// Reads the one-time token from a file. `own`: uid of the reading process; the file must belong to this user or to
/// root.
fn token_as(own: u32, path: &Path) -> Result<String, EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let (mode, uid) = (meta.mode() & 0o777, meta.uid());
    if uid != 0 && uid != own {
        return Err(EnrollError::Foreign { path: path.to_owned(), uid });
    }
    if mode & 0o077 != 0 {
        return Err(EnrollError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut text).map_err(failed)?;
    Ok(text.trim().to_owned())
}

/// Writes the file whole or not at all; creates the directory, which only root can enter.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        durable::make_directory(parent).map_err(failed)?;
    }
    durable::replace(path, mode, text.as_bytes()).map_err(failed)?;
    // Without this, a power cut loses the new name.
    durable::sync_directory(path.parent().unwrap_or(Path::new("/"))).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_due_between_two_thirds_and_five_sixths() {
        for _ in 0..1000 {
            let due = due_ms((1_000_000, 1_600_000));
            assert!((1_400_000..=1_500_000).contains(&due), "{due}");
        }
        // A certificate with senseless times causes no panic.
        let _ = (due_ms((5, 0)), due_ms((u64::MAX / 2, u64::MAX / 2 + 1)));
    }

    #[test]
    fn a_key_is_made_once_and_a_token_is_for_root() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tls/key.pem");
        let made = key(&path).unwrap();
        assert_eq!(key(&path).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        let file = dir.path().join("token");
        write(&file, 0o600, "abc\n").unwrap();
        assert_eq!(token(&file).unwrap(), "abc");
        write(&file, 0o644, "abc\n").unwrap();
        assert!(token(&file).unwrap_err().to_string().contains("other users can read the token (mode 0644)"));
    }

    /// Regression test: the agent read a token that another user owned.
    #[test]
    fn a_token_of_another_owner_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        write(&file, 0o600, "abc\n").unwrap();
        // Root gives the file to another user; the test then reads as two different users.
        let _ = std::os::unix::fs::chown(&file, Some(65534), None);
        let uid = fs::metadata(&file).unwrap().uid();
        assert_eq!(token_as(uid, &file).unwrap(), "abc");
        let error = token_as(uid + 1, &file).unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to uid {uid}")), "{error}");
    }

    /// Regression test: where one controller refused the token and the next one was down, the agent never tried munge.
    #[tokio::test]
    async fn an_answer_counts_for_more_than_a_controller_that_is_away() {
        let ask = |asked: &str| {
            let address = asked.to_owned();
            std::future::ready(match asked {
                "refuses" => Err(EnrollError::Ask(AskError::Refused { address, why: "no such token".to_owned() })),
                "wrong" => Err(EnrollError::Answer { address, why: "of another key".to_owned() }),
                "ours" => Err(EnrollError::Key { path: address.into(), why: "malformed".to_owned() }),
                "good" => Ok("certificate".to_owned()),
                _ => Err(EnrollError::Ask(AskError::TimedOut { address })),
            })
        };
        for (asked, ended, is_of_the_way) in [
            ("refuses away", "refuses refuses: no such token", false),
            ("away refuses", "refuses refuses: no such token", false),
            ("refuses wrong away", "refuses refuses: no such token", false),
            ("away gone", "gone did not answer within", true),
            ("refuses wrong away good", "", false),
            ("refuses ours good", "ours: malformed", false),
            ("", "[enroll] names no controller", true),
        ] {
            let asked: Vec<String> = asked.split_whitespace().map(str::to_owned).collect();
            match ask_in_turn(&asked, ask).await {
                Ok(_) => assert_eq!(ended, "", "{asked:?}"),
                Err(error) => {
                    assert!(!ended.is_empty() && error.to_string().starts_with(ended), "{asked:?}: {error}");
                    assert_eq!(error.is_of_the_way(), is_of_the_way, "{asked:?}");
                }
            }
        }
    }

    /// Returns enrolment settings whose only address has no listener.
    fn nowhere(token: Option<PathBuf>, munge: Option<PathBuf>) -> Enroll {
        Enroll { addresses: vec!["127.0.0.1:1".to_owned()], token, munge, host: "n1".to_owned() }
    }

    #[tokio::test]
    async fn munge_is_tried_without_a_token_and_both_failures_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let authority = authority::new("test", 0, 4_000_000_000_000).unwrap();
        write(&path("ca.pem"), 0o644, &authority.cert).unwrap();
        let files = TlsFiles { ca: path("ca.pem"), cert: path("cert.pem"), key: path("key.pem"), crl: None };
        write(&path("open"), 0o644, "abc").unwrap();
        write(&path("token"), 0o600, "abc").unwrap();
        // A program that records its input and fails.
        let program =
            format!("#!/bin/sh\n/bin/cat > {}\necho 'munge: Error: no munged' >&2; exit 6\n", path("asked").display());
        // `cp` makes the executable: another test that forks at this moment would inherit this process's open file, and
        // exec would fail with "text file busy".
        write(&path("munge-text"), 0o755, &program).unwrap();
        let copied = std::process::Command::new("cp").args([path("munge-text"), path("munge")]).status();
        assert!(copied.unwrap().success());
        for (token, with, parts) in [
            (None, false, &["[enroll] sets neither token nor munge"][..]),
            (Some("none"), false, &["none: No such file"]),
            // A controller that does not answer accepts neither proof.
            (Some("token"), true, &["127.0.0.1:1: Connection refused"]),
            (None, true, &["munge: exit status: 6: munge: Error: no munged; is munged up"]),
            (Some("none"), true, &["munge: exit status: 6"]),
            (Some("open"), true, &["by the token failed (", "mode 0644", "and then by munge: ", "exit status: 6"]),
        ] {
            let enroll = nowhere(token.map(path), with.then(|| path("munge")));
            let error = ensure(&enroll, &files, None).await.unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{token:?} {with}: {error}");
            assert_eq!(error.contains("by the token failed"), parts.len() > 1, "{token:?} {with}: {error}");
        }
        let csr = authority::request(&key(&files.key).unwrap()).unwrap();
        let public = Requested::read(&csr).unwrap().key();
        assert_eq!(fs::read_to_string(path("asked")).unwrap(), bound("n1", &public));
    }
}
