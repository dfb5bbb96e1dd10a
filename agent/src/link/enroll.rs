//! The node's own certificate, where nobody brings one: the key is made here and leaves no node. Asked for with a one-time token when the agent dials and
//! has none that is good, and again with itself before it runs out.
//!
//! ```text
//!   none, or run out ── key, token ──> certificate ── two thirds of its time, itself ──> the next one, of the same key
//! ```
//! The key is on the disk before it is asked for, so that an answer that was lost can be asked for again. A session that stands notices nothing.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perilog_host::enroll::{Ask, AskError, ask};
use perilog_host::link::Dial;
use perilog_host::tls::{ClientTls, TlsError, TlsFiles};
use perilog_host::{authority, clock};
use tokio::sync::{Notify, watch};

use super::Controllers;

/// The longest between two looks at the certificate: clocks are set, and files are changed by others.
const LOOK: Duration = Duration::from_secs(3600);
/// The shortest between two tries to renew.
const BREATH: Duration = Duration::from_secs(10);
/// A token has 43 bytes.
const MAX_TOKEN: u64 = 4096;

/// How this node gets its certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enroll {
    /// `host:port`, tried in turn.
    pub addresses: Vec<String>,
    /// The file with the one-time token.
    pub token: Option<PathBuf>,
    /// As this node calls itself.
    pub host: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EnrollError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: the token can be read by others (mode {mode:04o}); chmod 0600 it, and make another one if others may have read it", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("there is no good certificate {}, and no [enroll] token to ask for one with", path.display())]
    NoToken { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Key { path: PathBuf, source: authority::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("[enroll] names no controller")]
    Nobody,
}

/// Sees to it that there is a certificate that has not run out. True: it is a new one.
pub(super) async fn ensure(enroll: &Enroll, files: &TlsFiles, server_name: Option<&str>) -> Result<bool, EnrollError> {
    if files.validity()?.is_some_and(|(_, until_ms)| clock::wall_ms() < until_ms) {
        return Ok(false);
    }
    let Some(path) = &enroll.token else { return Err(EnrollError::NoToken { path: files.cert.clone() }) };
    let token = token(path)?;
    // One that has run out is no way to be known.
    let tls = ClientTls::load_anonymous(files)?;
    obtain(enroll, files, server_name, tls, Some(token)).await?;
    tracing::info!("enrolled as {}: {}", enroll.host, files.cert.display());
    Ok(true)
}

/// Renews the certificate in time, for as long as it is there. `enrolled`: there is a new one.
pub(super) async fn keep(mut controllers: watch::Receiver<Controllers>, enrolled: Arc<Notify>) {
    let mut said = String::new();
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
            // The dialler asks for another one.
            None => LOOK,
            Some(((_, until_ms), _)) if until_ms <= now_ms => LOOK,
            Some((_, due_ms)) if now_ms < due_ms => Duration::from_millis(due_ms - now_ms).min(LOOK),
            Some(((_, until_ms), _)) => match renew(enroll, files, current.server_name.as_deref()).await {
                Ok(()) => {
                    tracing::info!("renewed the certificate {}", files.cert.display());
                    said.clear();
                    BREATH
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        tracing::warn!("cannot renew the certificate: {text} (trying again)");
                        said = text;
                    }
                    Duration::from_millis((until_ms - now_ms) / 16).clamp(BREATH, LOOK)
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

/// At a random moment between two thirds and five sixths of its time: nodes that booted at once do not come at once.
fn due_ms((from_ms, until_ms): (u64, u64)) -> u64 {
    let lasts_ms = until_ms.saturating_sub(from_ms);
    let random = uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
    from_ms + lasts_ms / 3 * 2 + random % (lasts_ms / 6 + 1)
}

async fn renew(enroll: &Enroll, files: &TlsFiles, server_name: Option<&str>) -> Result<(), EnrollError> {
    obtain(enroll, files, server_name, ClientTls::load(files)?, None).await
}

async fn obtain(
    enroll: &Enroll,
    files: &TlsFiles,
    server_name: Option<&str>,
    tls: ClientTls,
    token: Option<String>,
) -> Result<(), EnrollError> {
    let csr =
        authority::request(&key(&files.key)?).map_err(|source| EnrollError::Key { path: files.key.clone(), source })?;
    let question = Ask { host: enroll.host.clone(), token, csr };
    let mut last = EnrollError::Nobody;
    for address in &enroll.addresses {
        let mut dial = Dial::tls(address, tls.clone());
        if let Some(name) = server_name {
            name.clone_into(&mut dial.server_name);
        }
        match ask(&dial, &question).await {
            Ok(cert) => return write(&files.cert, 0o644, &cert),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// The node's key (PEM), which is made where there is none.
fn key(path: &Path) -> Result<String, EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read.map_err(failed),
    }
    let key = authority::key().map_err(|source| EnrollError::Key { path: path.to_owned(), source })?;
    write(path, 0o600, &key)?;
    Ok(key)
}

fn token(path: &Path) -> Result<String, EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(EnrollError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut text).map_err(failed)?;
    Ok(text.trim().to_owned())
}

/// Whole or not at all; its directory is made, and is root's alone.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), EnrollError> {
    let failed = |source| EnrollError::File { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let written = || -> io::Result<()> {
        // What is left of an earlier try may have another mode.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    written().map_err(failed)
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
        // Nonsense of a certificate is no panic.
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
        assert!(token(&file).unwrap_err().to_string().contains("can be read by others (mode 0644)"));
    }
}
