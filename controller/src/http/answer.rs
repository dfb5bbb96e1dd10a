//! An HTTP request and its answer. The listener accepts only GET and HEAD, and one parameter: the name of a job or a
//! node.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use perilog_core::controller::overview::OverviewRequest;
use perilog_core::{HostName, JobId};
use serde_json::json;

use super::names::Names;
use super::page_cache::{PageCache, Question, Seen};
use crate::metrics::Source;

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Content-Security-Policy of all answers. The page may load its own style, script and picture, and send requests to
/// its own host. A script that an attacker put into the page would not run, and no text becomes HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The files of the page: path, type, content.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// All that the HTTP listener serves: figures, health, and the page if configured. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) figures: Source,
    /// Passes the question of `/healthz` to the writer. The page's questions have a [`PageCache`] of their own, so that
    /// visitors of the page delay no answer about health.
    pub(crate) health: PageCache,
    pub(crate) page: Option<Page>,
}

#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) page_cache: PageCache,
    pub(crate) names: Names,
}

type Answer = Response<Full<Bytes>>;

impl Site {
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => answer(StatusCode::OK, Source::CONTENT_TYPE, self.figures.page().await),
            "/healthz" => self.health().await,
            path => match &self.page {
                Some(page) => page.answer(path, request).await,
                None if path == "/" => answer(StatusCode::OK, PLAIN, NO_PAGE),
                None => answer(StatusCode::NOT_FOUND, PLAIN, NO_PAGE),
            },
        }
    }

    /// Answers whether the controller is healthy, that is, the writer answers and the store has room.
    async fn health(&self) -> Answer {
        let full = self.figures.metrics.is_store_full();
        match self.health.see(Question::Health).await {
            Seen { status, .. } if status == StatusCode::OK && full => {
                answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "the store's disk is full: no prolog begins\n")
            }
            Seen { status, body } if status == StatusCode::OK => answer(status, PLAIN, body),
            Seen { body, .. } => {
                let line = String::from_utf8_lossy(&body).replace('\n', " ");
                answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{line}\n"))
            }
        }
    }
}

const NO_PAGE: &str = "perilog-controller: its metrics for Prometheus are at /metrics, its health at /healthz; there \
                       is no page, because [metrics] page is false\n";

impl Page {
    async fn answer<B>(&self, path: &str, request: &Request<B>) -> Answer {
        if !self.names.lead_here(request) {
            let text = format!(
                "this host does not have the requested name: use its address, or one of {}\n",
                self.names.shown()
            );
            return answer(StatusCode::MISDIRECTED_REQUEST, PLAIN, text);
        }
        let query = request.uri().query();
        let view = match path {
            "/status.json" => Ok(OverviewRequest::Cluster),
            "/job.json" => {
                named(query, "job").and_then(|name| JobId::new(name).map_err(text)).map(OverviewRequest::Job)
            }
            "/node.json" => {
                named(query, "node").and_then(|name| HostName::new(name).map_err(text)).map(OverviewRequest::Node)
            }
            _ => return file(path),
        };
        match view {
            Ok(view) => {
                let Seen { status, body } = self.page_cache.see(Question::Overview(view)).await;
                if status == StatusCode::OK { answer(status, JSON, body) } else { failed(status, &body) }
            }
            Err(why) => failed(StatusCode::BAD_REQUEST, why.as_bytes()),
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Returns the value of the query's one parameter, `key`. Names need no escapes, so the function decodes none.
///
/// # Errors
/// A sentence for the visitor: the query has no such parameter.
fn named<'a>(query: Option<&'a str>, key: &str) -> Result<&'a str, String> {
    let value = query.and_then(|query| query.strip_prefix(key)?.strip_prefix('='));
    value.ok_or_else(|| format!("the request needs the parameter ?{key}=NAME, and no other"))
}

fn failed(status: StatusCode, why: &[u8]) -> Answer {
    answer(status, JSON, json!({ "error": String::from_utf8_lossy(why) }).to_string())
}

fn file(path: &str) -> Answer {
    match FILES.iter().find(|(name, _, _)| *name == path) {
        Some((_, kind, content)) => answer(StatusCode::OK, kind, *content),
        None => answer(
            StatusCode::NOT_FOUND,
            PLAIN,
            "no such path. The paths are /, /status.json, /job.json?job=ID, /node.json?node=NAME, /metrics and \
             /healthz\n",
        ),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
