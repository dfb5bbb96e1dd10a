//! HTTP/1.1 for one question, `GET /metrics`. hyper reads what strangers send; connections are limited in time and
//! number.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::page::Source;
use super::text;

/// Prometheus keeps one connection, two of a pair keep two; more only wait.
const CONNECTIONS: usize = 16;
/// Limit for a silent connection. A scraper asks as soon as it connects, and connects again for its next scrape.
const SILENT: Duration = Duration::from_secs(10);
/// Limit for one page; a slower client is no scraper.
const LONGEST: Duration = Duration::from_secs(3600);
const BUFFER: usize = 16 * 1024;
/// After an accept that failed: descriptors may be short for a while.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers until dropped.
pub(crate) async fn serve(listener: std::net::TcpListener, source: Source) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // This code never closes the semaphore.
        let Ok(turn) = room.clone().acquire_owned().await else { continue };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let source = source.clone();
        tokio::spawn(async move {
            // Ignores how it ended: a scraper asks again.
            let _ = tokio::time::timeout(LONGEST, one(stream, source)).await;
            drop(turn);
        });
    }
}

async fn one(stream: TcpStream, source: Source) -> hyper::Result<()> {
    let answer = service_fn(move |request| {
        let source = source.clone();
        async move { Ok::<_, Infallible>(answer(&request, &source).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

async fn answer(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    let of = |status, kind, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
        response
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => of(StatusCode::OK, text::CONTENT_TYPE, source.page().await),
        (&Method::GET | &Method::HEAD, "/") => {
            of(StatusCode::OK, PLAIN, "perilog-controller: its figures for Prometheus are at /metrics\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => of(StatusCode::NOT_FOUND, PLAIN, "there is only /metrics\n".to_owned()),
        _ => {
            let mut response = of(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".to_owned());
            response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::daemon::Inlet;
    use crate::metrics::Metrics;
    use crate::store::StepReader;

    /// Found by a review: sixteen silent connections kept Prometheus out for minutes.
    #[tokio::test(start_paused = true)]
    async fn connections_that_ask_nothing_end_soon() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        std::fs::File::create(&store).unwrap();
        let steps = StepReader::open(&store).unwrap();
        let source = Source { metrics: Metrics::default(), inlet: Inlet::new().0, steps };
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, source));
        let mut silent = Vec::new();
        for n in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&b"GET /metr"[..9 * (n % 2)]).await.unwrap();
            silent.push(stream);
        }
        for mut stream in silent {
            let mut said = Vec::new();
            let ended = tokio::time::timeout(2 * SILENT, stream.read_to_end(&mut said)).await;
            assert!(ended.is_ok(), "still open");
        }
        serving.abort();
    }
}
