//! Enrolment: a node asks the controller's enrolment port for its certificate, with one question and one answer over
//! TLS 1.3. The node authenticates the controller by the controller's certificate. The controller authenticates the
//! node by a one-time token, by a munge credential, or by the certificate that the node wants to replace.
//!
//! ```text
//!   {"host": "n0", "token": "..."|null, "munge": "...", "csr": "PEM"}\n    -->
//!                                  <--    {"cert": "PEM"}\n  or  {"refused": "why"}\n
//! ```
//! Every host may connect, so visits are bounded in size, in time, in number (per address and in total) and in pace.

mod server;

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::authority::canonical;
use crate::link::{self, Dial, LinkError};

pub use server::{Registrar, Shown, serve};

/// Maximum size of a question in bytes; a token or a credential, a host name and a signing request have one kilobyte.
const MAX_ASK: u64 = 8 * 1024;
/// Maximum size of an answer in bytes: a certificate, and a sentence.
const MAX_ANSWER: u64 = 64 * 1024;
/// Limit for the whole exchange on the node's side. It is longer than the controller's limits for question, decision
/// and answer together.
const ASK_LIMIT: Duration = Duration::from_secs(45);

/// A node's request for a certificate. Later versions may add fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub host: String,
    /// The one-time token. `None`: the munge credential identifies the node, or without one the node's certificate.
    #[serde(default)]
    pub token: Option<String>,
    /// A munge credential that root made, with the text of [`bound`] as payload; `None` without munge. With a token,
    /// the controller ignores the credential. Without one, a controller that does not enrol by munge refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub munge: Option<String>,
    /// The certificate signing request, as PEM.
    pub csr: String,
}

impl std::fmt::Debug for Ask {
    /// Formats without token and credential: many people read the log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("host", &self.host).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Cert(String),
    Refused(String),
}

/// The reason why the node got no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{address} did not answer within {ASK_LIMIT:?}")]
    TimedOut { address: String },
    #[error("{address} sent an answer that cannot be read: {why}")]
    Malformed { address: String, why: String },
    #[error("{address} refuses: {why}")]
    Refused { address: String, why: String },
}

/// Returns the text that a munge credential must carry for this host name and key (SubjectPublicKeyInfo, DER). The text
/// binds the credential to this purpose: credentials that root made for other purposes do not count.
pub fn bound(host: &str, key: &[u8]) -> String {
    let digest: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("perilog-enroll-1 {} {digest}\n", canonical(host))
}

/// Asks for a certificate and returns the certificate (PEM).
///
/// # Errors
/// [`AskError`]: the other side is unreachable, is not the expected one, does not answer in time, gives a malformed
/// answer, or refuses.
pub async fn ask(dial: &Dial, ask: &Ask) -> Result<String, AskError> {
    let address = || dial.address.clone();
    let late = |_| AskError::TimedOut { address: address() };
    let answer = tokio::time::timeout(ASK_LIMIT, talk(dial, ask)).await.map_err(late)??;
    match parse_answer(&answer) {
        Ok(Ok(cert)) => Ok(cert),
        Ok(Err(why)) => Err(AskError::Refused { address: address(), why }),
        Err(why) => Err(AskError::Malformed { address: address(), why }),
    }
}

/// Parses an answer of the controller: the certificate, or the reason of a refusal as one line.
///
/// # Errors
/// The reason why the line is no answer.
pub(crate) fn parse_answer(line: &[u8]) -> Result<Result<String, String>, String> {
    match serde_json::from_slice(line) {
        Ok(Answer::Cert(cert)) => Ok(Ok(cert)),
        Ok(Answer::Refused(why)) => Ok(Err(plain(&why))),
        Err(error) => Err(plain(&error.to_string())),
    }
}

async fn talk(dial: &Dial, ask: &Ask) -> Result<Vec<u8>, AskError> {
    let (peer, stream) = link::connect(dial).await?;
    let failed = |source| LinkError::of(peer, source);
    let mut stream = BufReader::new(stream);
    stream.write_all(&line(ask)).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    match read_line(&mut stream, MAX_ANSWER).await.map_err(failed)? {
        Some(answer) => Ok(answer),
        None => Err(AskError::Malformed { address: dial.address.clone(), why: "it is too long".to_owned() }),
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("texts are always JSON");
    line.push(b'\n');
    line
}

/// Reads one line without its end; `None` if the line is longer than `most`.
async fn read_line(stream: &mut BufReader<impl AsyncRead + Unpin>, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    stream.take(most).read_until(b'\n', &mut line).await?;
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        _ if line.len() as u64 + 1 < most => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(None),
    }
}

/// Cleans text from the other side for logs: one line of plain characters, bounded in length.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

#[cfg(test)]
mod tests;
