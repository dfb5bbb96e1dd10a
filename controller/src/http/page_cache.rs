//! Passes questions of visitors to the machine. The one writer answers them, and its own work comes first: the writer
//! gets one question at a time, and a pause after each. Visitors with the same question share an answer for a while.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use perilog_core::controller::io::{Refusal, Reply, Request};
use perilog_core::controller::overview::{OverviewReply, OverviewRequest};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::daemon::Inlet;

/// Time that the writer has to answer. After it, the client learns that the writer did not answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for which visitors with the same question get the same answer.
const KEPT: Duration = Duration::from_secs(1);
/// Length of the pause after each answer, as a multiple of the time that the answer took. The writer gets no question
/// during the pause, which lasts at most [`PAUSE`].
const REST: u32 = 4;
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of kept answers.
const ANSWERS: usize = 32;

/// Asks the writer on behalf of visitors, and keeps the answers for a moment. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PageCache {
    inlet: Inlet,
    /// The cluster's name, for every answer.
    cluster: Arc<str>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The answers that visitors still share, each with its question and the time at which it came, the oldest first.
    answers: Vec<(Question, Instant, Seen)>,
    /// Time before which the writer gets no further question; `None`: the writer was not asked yet.
    rest: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// Asks whether the controller works, for `/healthz`.
    Health,
    Overview(OverviewRequest),
}

/// An answer, ready to be sent. `body`: JSON for a [`Question::Overview`], one line for [`Question::Health`], or the
/// text of a failure.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Body of `/status.json`, `/job.json` or `/node.json`.
#[derive(Serialize)]
struct Answer<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    overview: &'a OverviewReply,
}

impl PageCache {
    pub(crate) fn new(inlet: Inlet, cluster: &str) -> Self {
        Self { inlet, cluster: cluster.into(), kept: Arc::default() }
    }

    pub(super) async fn see(&self, question: Question) -> Seen {
        // The lock is held until the answer: other visitors wait for the same answer, or for their turn.
        let mut kept = self.kept.clone().lock_owned().await;
        kept.answers.retain(|(_, at, _)| at.elapsed() < KEPT);
        if let Some((_, _, seen)) = kept.answers.iter().find(|(asked, _, _)| *asked == question) {
            return seen.clone();
        }
        let page_cache = self.clone();
        // The question goes on after its visitor has disconnected, so that the pause after it is kept.
        let asked = tokio::spawn(async move { page_cache.ask_in_turn(&mut kept, question).await });
        let failed = "the controller failed to answer: see its log";
        asked.await.unwrap_or_else(|_| unanswered(StatusCode::INTERNAL_SERVER_ERROR, failed))
    }

    async fn ask_in_turn(&self, kept: &mut Kept, question: Question) -> Seen {
        if let Some(until) = kept.rest {
            tokio::time::sleep_until(until).await;
        }
        let began = Instant::now();
        let hangs = || {
            let text =
                format!("the controller's writer did not answer within {}s: its disk may hang", ANSWER.as_secs());
            unanswered(StatusCode::SERVICE_UNAVAILABLE, &text)
        };
        let seen = tokio::time::timeout(ANSWER, self.ask(&question)).await.unwrap_or_else(|_| hangs());
        let now = Instant::now();
        kept.rest = Some(now + (REST * now.duration_since(began)).min(PAUSE));
        if kept.answers.len() >= ANSWERS {
            kept.answers.remove(0);
        }
        kept.answers.push((question, now, seen.clone()));
        seen
    }

    async fn ask(&self, question: &Question) -> Seen {
        let request = match question {
            Question::Health => Request::Status {},
            Question::Overview(request) => Request::Overview(request.clone()),
        };
        match self.inlet.ask(0, request, None).await {
            Ok(Reply::Status(status)) => {
                let states = [("quiet", status.quiet.is_some()), ("in recovery", status.recovery.is_some())];
                let states = states.iter().filter(|(_, is)| *is).map(|(word, _)| format!(", {word}"));
                Seen { status: StatusCode::OK, body: format!("ok{}\n", states.collect::<String>()).into() }
            }
            Ok(Reply::Overview(overview)) => {
                let answer = serde_json::to_vec(&Answer { cluster: &self.cluster, overview: &overview });
                Seen { status: StatusCode::OK, body: answer.expect("views have text keys and finite numbers").into() }
            }
            Ok(_) => {
                let text = "the controller's answer was to another question: report this bug";
                unanswered(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            Err(refusal) => refused(refusal),
        }
    }
}

fn refused(refusal: Refusal) -> Seen {
    let (status, text) = match refusal {
        Refusal::NoSuchJob(text)
        | Refusal::NoSuchAttempt(text)
        | Refusal::NoSuchAction(text)
        | Refusal::NoSuchNode(text) => (StatusCode::NOT_FOUND, text),
        Refusal::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
        Refusal::AttemptClosed(text) | Refusal::Conflict(text) | Refusal::Invalid(text) => {
            (StatusCode::BAD_REQUEST, text)
        }
    };
    unanswered(status, &text)
}

fn unanswered(status: StatusCode, text: &str) -> Seen {
    Seen { status, body: text.to_owned().into() }
}
