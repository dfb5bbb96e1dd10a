//! Bare TLS handshakes: a server that does nothing but accept with the certificates of the controller, and clients that
//! dial it with those of the agents. All agents can hardly be back in less time. The server runs as many handshakes at
//! the same time as the controller ([`perilog_host::link`]); the clients dial without any window.
//!
//! A client counts as back when it has read one byte, which the server sends after it has verified the client.
//!
//! | command of `acceptor` | answers when |
//! |---|---|
//! | `listen full` | at once, with its port |
//! | `listen resumed` | at once, with another port, on which clients resume their last session there |
//!
//! | command of `dialler` | answers when |
//! |---|---|
//! | `ready FIRST COUNT` | the certificates of COUNT agents, of the ranks from FIRST, are read |
//! | `dial PORT` | each of them has had its handshake, and has read its byte |
//! | `leave` | the connections are closed |

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use perilog_host::link::bind;
use perilog_host::tls::TlsFiles;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::swarm;
use crate::{authority, part};

/// Maximum number of handshakes at the same time, as in the controller.
const HANDSHAKES: usize = 256;
/// Maximum number of dials of a process at the same time.
const DIALS: usize = 128;
/// Number of sessions that a client keeps for a resumption. rustls halves it.
const SESSIONS: usize = 2;

pub(crate) fn accept(directory: &Path) -> Result<()> {
    part::raise_nofile()?;
    runtime()?.block_on(async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let port = match line.as_str() {
                "listen full" => listen(directory, false),
                "listen resumed" => listen(directory, true),
                _ => bail!("no such order"),
            };
            if !part::answer(&port.map(|port| port.to_string())) {
                break;
            }
        }
        Ok(())
    })
}

fn listen(directory: &Path, resumed: bool) -> Result<u16> {
    let socket = bind(([0, 0, 0, 0], 0).into())?;
    socket.set_nonblocking(true)?;
    let (listener, tls) = (TcpListener::from_std(socket)?, TlsAcceptor::from(server(directory, resumed)?));
    let port = listener.local_addr()?.port();
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    tokio::spawn(async move {
        while let Ok(place) = places.clone().acquire_owned().await {
            // A connection that failed is one too few at its client.
            let Ok((tcp, _)) = listener.accept().await else { continue };
            let tls = tls.clone();
            tokio::spawn(async move {
                let mut stream = tls.accept(tcp).await?;
                drop(place);
                stream.write_all(b".").await?;
                stream.flush().await?;
                // Until the client leaves.
                stream.read(&mut [0]).await
            });
        }
    });
    Ok(port)
}

pub(crate) fn dial(directory: &Path) -> Result<()> {
    part::raise_nofile()?;
    runtime()?.block_on(async {
        let (mut agents, mut open) = (Vec::new(), Vec::new());
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match words.as_slice() {
                ["ready", first, count] => ready(directory, first, count).map(|configs| agents = configs),
                ["dial", port] => dial_all(&agents, port).await.map(|streams| open = streams),
                ["leave"] => {
                    open = Vec::new();
                    Ok(())
                }
                _ => bail!("no such order"),
            };
            if !part::answer(&answer.map(|()| open.len().to_string())) {
                break;
            }
        }
        Ok(())
    })
}

/// An agent's address on this machine, and its configuration.
type Agent = (String, Arc<ClientConfig>);

fn ready(directory: &Path, first: &str, count: &str) -> Result<Vec<Agent>> {
    let (first, count): (usize, usize) = (first.parse().context("a rank")?, count.parse().context("a number")?);
    part::room_for(count)?;
    (first..first + count).map(|rank| Ok((swarm::address(rank), client(directory, rank)?))).collect()
}

async fn dial_all(agents: &[Agent], port: &str) -> Result<Vec<TlsStream<TcpStream>>> {
    let (turns, mut dials) = (Arc::new(Semaphore::new(DIALS)), JoinSet::new());
    for (address, config) in agents {
        let (turns, address, config) = (turns.clone(), format!("{address}:{port}"), config.clone());
        dials.spawn(async move {
            let _turn = turns.acquire().await;
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from(authority::SERVER)?;
            let mut stream = TlsConnector::from(config).connect(name, tcp).await?;
            ensure!(stream.read(&mut [0]).await? == 1, "the server has closed the connection");
            Ok(stream)
        });
    }
    dials.join_all().await.into_iter().collect()
}

fn server(directory: &Path, resumed: bool) -> Result<Arc<ServerConfig>> {
    let Read { roots, chain, key } = read(&authority::server(directory))?;
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(clients.clear_root_hint_subjects().build()?)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = usize::from(resumed);
    if resumed {
        config.ticketer = ring::Ticketer::new()?;
    }
    Ok(Arc::new(config))
}

fn client(directory: &Path, rank: usize) -> Result<Arc<ClientConfig>> {
    let Read { roots, chain, key } = read(&authority::agent(directory, &swarm::host(rank)))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(config))
}

struct Read {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn read(files: &TlsFiles) -> Result<Read> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.ca)?)?;
    let chain = vec![CertificateDer::from_pem_file(&files.cert)?];
    Ok(Read { roots, chain, key: PrivateKeyDer::from_pem_file(&files.key)? })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}
