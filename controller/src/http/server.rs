//! HTTP/1.1 server: hyper parses the requests; connections are limited in number and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Site;

/// Bounds of the HTTP connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Maximum number of connections; further ones wait. Prometheus keeps one; a browser opens a few, and keeps one.
    pub(super) connections: usize,
    /// Time that a connection has to send a whole request. The listener then closes it, also after earlier requests; a
    /// client that has another request connects again.
    pub(super) silent: Duration,
    /// Milliseconds for which a peer may read nothing of an answer; then the connection ends.
    pub(super) stalled_ms: u32,
    /// Maximum life of a connection.
    pub(super) longest: Duration,
}

impl Bounds {
    pub(super) const DEFAULT: Self = Self {
        connections: 64,
        silent: Duration::from_secs(10),
        stalled_ms: 10_000,
        longest: Duration::from_secs(600),
    };
}

/// Maximum size in bytes of a request's request line and headers together.
const BUFFER: usize = 16 * 1024;
/// Maximum number of a request's headers.
const HEADERS: usize = 64;
/// Pause after a failed accept: file descriptors may be short for a while.
const PAUSE: Duration = Duration::from_millis(100);

/// Binds `address` for the HTTP listener; non-blocking.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves HTTP requests until the future is dropped.
pub(crate) async fn serve(listener: std::net::TcpListener, site: Site) -> io::Result<Infallible> {
    serve_within(Bounds::DEFAULT, listener, site).await
}

pub(super) async fn serve_within(
    bounds: Bounds,
    listener: std::net::TcpListener,
    site: Site,
) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(bounds.connections));
    loop {
        // This code never closes the semaphore.
        let Ok(turn) = room.clone().acquire_owned().await else { continue };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let site = site.clone();
        tokio::spawn(async move {
            // Ignores how it ended: the visitor asks again.
            let _ = tokio::time::timeout(bounds.longest, one(bounds, stream, site)).await;
            drop(turn);
        });
    }
}

async fn one(bounds: Bounds, stream: TcpStream, site: Site) -> hyper::Result<()> {
    // If the kernel refuses, only the connection's maximum life bounds a stalled answer.
    let _ = sockopt::set_tcp_user_timeout(&stream, bounds.stalled_ms);
    let answer = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(&request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.silent)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}
