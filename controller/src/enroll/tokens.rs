//! One-time tokens: each token has a file, named by the token's SHA-256, without the token itself. A reader of the
//! directory, or of a copy, cannot enrol with the file.
//!
//! ```text
//!   made ──(its host asks, in time)──> used ──(a week)──> gone
//!     └──────(its time is over)──> late ──(a week)──> gone
//! ```
//! The controller marks a token as used before the certificate leaves. The same key may ask again while the token and
//! the first certificate are valid, so a lost answer does no harm. The signer checks whether the first certificate was
//! revoked meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use perilog_core::{HostList, HostName, defect};
use perilog_host::authority::canonical;
use perilog_host::durable;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::authority::Next;

/// Time for which the directory keeps a token after the token's time is over, so that a host that shows it learns the
/// reason of its failure.
const KEPT_MS: u64 = 7 * 24 * 3_600_000;
/// Maximum number of tokens in the directory, including used and expired ones: three times the largest cluster.
const MOST: usize = 200_000;

/// The record of a token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) host: HostName,
    pub(crate) made_ms: u64,
    pub(crate) until_ms: u64,
    /// Uid of the user who made the token.
    pub(crate) by: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_ms: Option<u64>,
    /// SHA-256 of the key that used the token; `None`: the token is unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Serial number of the first certificate that the controller issued for the token; `None`: the token is unused, or
    /// an earlier release marked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    /// Expiry of the first certificate, in milliseconds since 1970; `None` as for `serial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends_ms: Option<u64>,
}

/// How a token was redeemed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    First,
    /// The same key had used the token before, for the certificate with this serial number.
    Again {
        serial: String,
    },
}

/// The reason why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenRefused {
    Unknown,
    OtherHost(HostName),
    Late,
    Used,
    Disk(String),
}

pub(crate) struct Tokens {
    dir: PathBuf,
    /// Held while a token is redeemed or revoked. The holder releases the lock after each token, because enrolling
    /// nodes wait for it.
    one: Mutex<()>,
    /// Held from the count of the existing tokens until the new tokens are written, so that two calls cannot exceed
    /// [`MOST`] together.
    making: Mutex<()>,
}

impl Tokens {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        durable::make_directory(dir)?;
        Ok(Self { dir: dir.to_owned(), one: Mutex::new(()), making: Mutex::new(()) })
    }

    /// Makes a token for each host, and writes the records of the tokens to the disk. Returns each host under its
    /// canonical name with its token, in the order of `hosts`.
    pub(crate) fn make(
        &self,
        hosts: &HostList,
        by: u32,
        now_ms: u64,
        until_ms: u64,
    ) -> io::Result<Vec<(HostName, String)>> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let there = self.swept(now_ms)?;
        if there.len() + hosts.len() > MOST {
            let text = format!(
                "{} tokens exist, and {} more would pass the limit of {MOST}. Revoke some first (perilog token revoke)",
                there.len(),
                hosts.len()
            );
            return Err(io::Error::other(text));
        }
        let mut made = Vec::new();
        for host in hosts.iter().filter_map(|host| HostName::new(&canonical(host)).ok()) {
            let secret = secret();
            let token = Token {
                host: host.clone(),
                made_ms: now_ms,
                until_ms,
                by,
                used_ms: None,
                key: None,
                serial: None,
                ends_ms: None,
            };
            self.write(&digest(secret.as_bytes()), &token)?;
            made.push((host, secret));
        }
        self.sync()?;
        Ok(made)
    }

    /// Returns all tokens in the directory, sorted by host.
    pub(crate) fn list(&self, now_ms: u64) -> io::Result<Vec<Token>> {
        let mut tokens: Vec<Token> = self.swept(now_ms)?.into_iter().map(|(_, token)| token).collect();
        tokens.sort_by(|a, b| (&a.host, a.made_ms).cmp(&(&b.host, b.made_ms)));
        Ok(tokens)
    }

    /// Removes these hosts' tokens: all unused ones, and each used one that has not expired, because its host could use
    /// it again with the same key. Returns the number of removed tokens.
    pub(crate) fn take_back(&self, hosts: &HostList, now_ms: u64) -> io::Result<usize> {
        let hosts: BTreeSet<_> = hosts.iter().map(canonical).collect();
        let mut taken = 0;
        for (name, token) in self.swept(now_ms)? {
            let may_be_used = token.used_ms.is_none() || now_ms < token.until_ms;
            if may_be_used && hosts.contains(&canonical(token.host.as_str())) {
                let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
                taken += usize::from(self.remove(&name)?);
            }
        }
        self.sync()?;
        Ok(taken)
    }

    /// Marks the token as used by this host and this key (DER) for the certificate `next`; the mark is on the disk on
    /// return. If the same key has used the token before, changes nothing, and returns [`Use::Again`].
    pub(super) fn redeem_token(
        &self,
        secret: &str,
        host: &str,
        key: &[u8],
        next: &Next,
        now_ms: u64,
    ) -> Result<(Token, Use), TokenRefused> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, key) = (digest(secret.as_bytes()), digest(key));
        let mut token = match self.read(&name) {
            Ok(Some(token)) => token,
            Ok(None) => return Err(TokenRefused::Unknown),
            Err(error) => return Err(TokenRefused::Disk(format!("{}: {error}", self.dir.join(name).display()))),
        };
        if canonical(token.host.as_str()) != canonical(host) {
            return Err(TokenRefused::OtherHost(token.host));
        }
        if now_ms >= token.until_ms {
            return Err(TokenRefused::Late);
        }
        match (&token.key, &token.serial, token.ends_ms) {
            (None, ..) => {}
            // A host that asks after the certificate's expiry has not merely lost the answer.
            (Some(used), _, Some(ends_ms)) if *used == key && now_ms >= ends_ms => return Err(TokenRefused::Late),
            (Some(used), Some(serial), Some(_)) if *used == key => {
                let serial = serial.clone();
                return Ok((token, Use::Again { serial }));
            }
            // Includes tokens that an earlier release marked, whose certificate is unknown and may be revoked.
            (Some(_), ..) => return Err(TokenRefused::Used),
        }
        (token.used_ms, token.key) = (Some(now_ms), Some(key));
        (token.serial, token.ends_ms) = (Some(next.serial.clone()), Some(next.until_ms));
        self.write(&name, &token).and_then(|()| self.sync()).map_err(|error| TokenRefused::Disk(error.to_string()))?;
        Ok((token, Use::First))
    }

    /// Returns all tokens by file name, after removing those whose time was over [`KEPT_MS`] ago. Logs an unreadable
    /// file and goes on with the others.
    fn swept(&self, now_ms: u64) -> io::Result<Vec<(String, Token)>> {
        let mut tokens = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let token = match self.read(&name) {
                Ok(Some(token)) => token,
                Ok(None) => continue,
                Err(error) => {
                    let path = self.dir.join(name);
                    tracing::warn!(
                        "{}: this token cannot be read ({error}), and is ignored: remove the file",
                        path.display()
                    );
                    continue;
                }
            };
            if now_ms > token.until_ms.saturating_add(KEPT_MS) {
                self.remove(&name)?;
            } else {
                tokens.push((name, token));
            }
        }
        Ok(tokens)
    }

    /// Removes a token; returns `true` if the token existed.
    fn remove(&self, name: &str) -> io::Result<bool> {
        match fs::remove_file(self.dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Reads the token whose file has this name. `None`: the file does not exist, or the name does not have
    /// the length of a token file's name.
    fn read(&self, name: &str) -> io::Result<Option<Token>> {
        if name.len() != 64 {
            return Ok(None);
        }
        match fs::read(self.dir.join(name)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, token: &Token) -> io::Result<()> {
        durable::replace(&self.dir.join(name), 0o600, &serde_json::to_vec(token)?)
    }

    fn sync(&self) -> io::Result<()> {
        if defect!(TokensNotSynced) {
            return Ok(());
        }
        durable::sync_directory(&self.dir)
    }
}

/// Returns 244 random bits as 64 hexadecimal digits. A token is a word of a command line and must not look like an
/// option: base64 for URLs would begin one token of 64 with a hyphen.
fn secret() -> String {
    [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|uuid| uuid.simple().to_string()).concat()
}

/// Returns the SHA-256 of `bytes` as 64 hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn tokens(dir: &tempfile::TempDir) -> Tokens {
        Tokens::open(&dir.path().join("tokens")).unwrap()
    }

    fn next() -> Next {
        Next::new(2000, HOUR)
    }

    fn hosts(text: &str) -> HostList {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_is_good_once_for_its_host_even_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let made = tokens(&dir).make(&hosts("n[0-2]"), 0, 1000, 1000 + HOUR).unwrap();
        let names: Vec<_> = made.iter().map(|(host, _)| host.as_str()).collect();
        assert_eq!(names, ["n0", "n1", "n2"]);
        let [t0, t1, t2] = [0, 1, 2].map(|n: usize| made[n].1.as_str());
        let bad = |secret: &str, host: &str, key: &str, at: u64| {
            tokens(&dir).redeem_token(secret, host, key.as_bytes(), &next(), at).err()
        };
        // A wrong name does not use up the token.
        assert_eq!(bad(t0, "n1", "key", 2000), Some(TokenRefused::OtherHost(HostName::new("n0").unwrap())));
        assert_eq!(bad(t0, "n0", "key", 2000), None);
        // The answer was lost: the same key asks again.
        assert_eq!(bad(t0, "n0", "key", 3000), None);
        assert_eq!(bad(t0, "n0", "another key", 3000), Some(TokenRefused::Used));
        assert_eq!(bad(t0, "n0", "key", 1000 + HOUR), Some(TokenRefused::Late));
        assert_eq!(bad(t1, "n1", "key", 1000 + HOUR), Some(TokenRefused::Late));
        assert_eq!(bad("../../etc/passwd", "n1", "key", 2000), Some(TokenRefused::Unknown));
        assert_eq!(tokens(&dir).take_back(&hosts("n2"), 2000).unwrap(), 1);
        assert_eq!(bad(t2, "n2", "key", 2000), Some(TokenRefused::Unknown));
        // The list includes a token that is used and late.
        assert_eq!(tokens(&dir).take_back(&hosts("n0"), 1000 + HOUR).unwrap(), 0);
        let left = tokens(&dir).list(2000).unwrap();
        let left: Vec<_> = left.iter().map(|token| (token.host.as_str(), token.used_ms)).collect();
        assert_eq!(left, [("n0", Some(2000)), ("n1", None)]);
        // The list includes the token for a week, then forgets it.
        assert_eq!(tokens(&dir).list(1000 + HOUR + KEPT_MS).unwrap().len(), 2);
        assert_eq!(tokens(&dir).list(1001 + HOUR + KEPT_MS).unwrap().len(), 0);
        assert_eq!(bad(t0, "n0", "key", 2000), Some(TokenRefused::Unknown));
    }

    /// Regression test: the user of a token could use it again, and no operator could stop that.
    #[test]
    fn a_used_token_can_be_revoked_and_ends_with_its_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(&dir);
        let made = tokens.make(&hosts("n[0-1]"), 0, 1000, 1000 + HOUR).unwrap();
        let first = Next::new(2000, 3000);
        let ask = |n: usize, at: u64| {
            tokens.redeem_token(&made[n].1, made[n].0.as_str(), b"key", &first, at).map(|(_, which)| which)
        };
        for n in [0, 1] {
            assert_eq!(ask(n, 2000), Ok(Use::First));
            assert_eq!(ask(n, 4999), Ok(Use::Again { serial: first.serial.clone() }));
        }
        assert_eq!(tokens.take_back(&hosts("n0"), 3000).unwrap(), 1);
        assert_eq!((ask(0, 3000), ask(1, 5000)), (Err(TokenRefused::Unknown), Err(TokenRefused::Late)));
        // An earlier release did not record the certificate of the first use.
        let known = Token { serial: None, ends_ms: None, ..tokens.list(3000).unwrap().remove(0) };
        tokens.write(&digest(made[1].1.as_bytes()), &known).unwrap();
        assert_eq!(ask(1, 3000), Err(TokenRefused::Used));
    }

    /// Regression test: making tokens for a whole cluster blocked every enrolment meanwhile, because each token is a
    /// write to the disk.
    #[test]
    fn who_makes_many_tokens_keeps_nobody_from_using_one() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(&dir);
        let (sender, made) = std::sync::mpsc::sync_channel(1);
        std::thread::scope(|scope| {
            let redeeming = tokens.one.lock().unwrap();
            scope.spawn(|| {
                sender.send((tokens.make(&hosts("n[0-9]"), 0, 0, HOUR).unwrap().len(), tokens.list(0).unwrap().len()))
            });
            let made = made.recv_timeout(std::time::Duration::from_secs(60));
            drop(redeeming);
            assert_eq!(made, Ok((10, 10)), "it waits for who uses one, and so they for it");
        });
    }

    #[test]
    fn an_unreadable_file_leaves_the_other_tokens_usable() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(&dir);
        let made = tokens.make(&hosts("n[0-1]"), 0, 0, HOUR).unwrap();
        fs::write(tokens.dir.join(digest(made[0].1.as_bytes())), "{").unwrap();
        assert_eq!((tokens.list(0).unwrap().len(), tokens.make(&hosts("n2"), 0, 0, HOUR).unwrap().len()), (1, 1));
        let error = tokens.redeem_token(&made[0].1, "n0", b"key", &next(), 0).unwrap_err();
        assert!(matches!(&error, TokenRefused::Disk(text) if text.contains("/tokens/")), "{error:?}");
        assert_eq!(tokens.take_back(&hosts("n[0-1]"), 0).unwrap(), 1);
    }

    #[test]
    fn a_host_is_the_same_in_capitals_and_with_a_final_dot() {
        let dir = tempfile::tempdir().unwrap();
        let made = tokens(&dir).make(&hosts("N0,n1.,N2"), 0, 1000, 1000 + HOUR).unwrap();
        let names: Vec<_> = made.iter().map(|(host, _)| host.as_str()).collect();
        assert_eq!(names, ["n0", "n1", "n2"]);
        // A token that an earlier release made.
        let old = Token { host: HostName::new("N2.").unwrap(), ..tokens(&dir).list(2000).unwrap().remove(2) };
        tokens(&dir).write(&digest(made[2].1.as_bytes()), &old).unwrap();
        for (at, host) in [(0, "n0"), (2, "n2")] {
            assert_eq!(tokens(&dir).redeem_token(&made[at].1, host, b"key", &next(), 2000).err(), None, "{host}");
        }
        assert_eq!(tokens(&dir).take_back(&hosts("N1"), 2000).unwrap(), 1);
    }

    #[test]
    fn the_directory_does_not_reveal_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let made = tokens(&dir).make(&hosts("n0"), 0, 0, HOUR).unwrap();
        let secret = &made[0].1;
        assert!(secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{secret}");
        for entry in fs::read_dir(dir.path().join("tokens")).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap() + path.to_str().unwrap();
            assert!(!text.contains(secret), "{text}");
            use std::os::unix::fs::MetadataExt;
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
    }
}
