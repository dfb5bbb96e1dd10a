//! The methods `Jobs`, `Timeline`, `Stats` and `Skew`: the newest actions of all jobs, durations of one job's scripts,
//! sums of durations over a period, and scripts that differ between nodes. A blocking thread reads the store, without
//! the writer.

use perilog_core::controller::io::Refusal;
use perilog_core::controller::view::PAGE_BYTES;
use perilog_core::{ActionName, Span};
use perilog_host::clock;
use perilog_host::varlink::{Call, Gone, ReplySink};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Api, refuse, request, to_json};
use crate::store::{Newest, Page, Place, Since, StepReader, StoreError, Which};

/// Maximum number of tasks in one reply to `Timeline`, and of actions in all replies to one call of `Jobs`. A reply has
/// at most 64 KiB, too.
const PAGE: usize = 1_000;
/// Default of the parameter `since`: the last 24 hours.
const SINCE: Span = Span::from_millis(24 * 3600 * 1000);

pub(super) async fn timeline(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((which, _, mut reply)) = request::parse::<Which>(call).await? else { return Ok(()) };
    let mut after = None;
    loop {
        match page(api, &which, after).await {
            Ok(Page { tasks, next: Some(next) }) if more => {
                reply.more(json!({ "tasks": tasks })).await?;
                after = Some(next);
            }
            Ok(Page { tasks, next }) => {
                let truncated = next.is_some();
                return reply.done(json!({ "tasks": tasks, "truncated": truncated })).await;
            }
            Err(refusal) => return refuse(reply, &refusal).await,
        }
    }
}

async fn page(api: &Api, which: &Which, after: Option<Place>) -> Result<Page, Refusal> {
    let of = which.clone();
    let page = read(api, move |steps| steps.timeline(&of, after, PAGE)).await?;
    page.ok_or_else(|| match which.attempt {
        Some(attempt) => Refusal::NoSuchAttempt(format!("no attempt {attempt} of job {}", which.job)),
        None => Refusal::NoSuchJob(format!("no job {}", which.job)),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Over {
    since: Option<Span>,
    action: Option<ActionName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sums {
    since: Option<Span>,
    action: Option<ActionName>,
    by: Option<String>,
}

impl Over {
    fn since(self) -> Since {
        let since = self.since.unwrap_or(SINCE);
        // An infinite period means the whole store.
        let since_ms = since.as_millis().map_or(0, |millis| clock::wall_ms().saturating_sub(millis));
        Since { since_ms, action: self.action }
    }
}

pub(super) async fn stats(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((Sums { since, action, by }, _, reply)) = request::parse(call).await? else { return Ok(()) };
    let by_node = match by.as_deref() {
        None => false,
        Some("node") => true,
        Some(other) => {
            let text = format!("unknown `by` {other:?}: expected \"node\"; without `by`, a sum is by script");
            return refuse(reply, &Refusal::Invalid(text)).await;
        }
    };
    let since = Over { since, action }.since();
    let answer =
        read(api, move |steps| if by_node { steps.totals_by_node(&since) } else { steps.totals(&since) }).await;
    send(reply, answer.map(|answer| to_json(&answer))).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    since_ms: Option<u64>,
    action: Option<ActionName>,
    failed: Option<bool>,
    limit: Option<u32>,
}

pub(super) async fn jobs(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((parameters, _, mut reply)) = request::parse(call).await? else { return Ok(()) };
    let Jobs { since_ms, action, failed, limit } = parameters;
    let limit = limit.map_or(PAGE, |limit| PAGE.min(limit as usize));
    let of = Since { since_ms: since_ms.unwrap_or(0), action };
    let newest = read(api, move |steps| steps.newest(&of, failed.unwrap_or(false), limit)).await;
    let Newest { jobs, truncated } = match newest {
        Ok(newest) => newest,
        Err(refusal) => return refuse(reply, &refusal).await,
    };
    let mut pages = pages(jobs.iter().map(to_json)).into_iter().peekable();
    while let Some(page) = pages.next() {
        let is_left = pages.peek().is_some();
        if !more || !is_left {
            return reply.done(json!({ "jobs": page, "truncated": truncated || is_left })).await;
        }
        reply.more(json!({ "jobs": page })).await?;
    }
    Ok(())
}

/// Returns the rows in pages, each of which fits a reply or has one row; one page without rows if there are none.
fn pages(rows: impl Iterator<Item = Value>) -> Vec<Vec<Value>> {
    let (mut pages, mut left) = (vec![Vec::new()], PAGE_BYTES);
    for row in rows {
        let bytes = serde_json::to_vec(&row).map_or(0, |json| json.len() + 1);
        if bytes > left {
            pages.push(Vec::new());
            left = PAGE_BYTES;
        }
        left = left.saturating_sub(bytes);
        pages.last_mut().into_iter().for_each(|page| page.push(row.clone()));
    }
    pages
}

pub(super) async fn skew(api: &Api, call: Call) -> Result<(), Gone> {
    over(api, call, |steps, since| steps.skew(since)).await
}

async fn over<T: Serialize + Send + 'static>(
    api: &Api,
    call: Call,
    question: impl FnOnce(&StepReader, &Since) -> Result<T, StoreError> + Send + 'static,
) -> Result<(), Gone> {
    let Some((over, _, reply)) = request::parse::<Over>(call).await? else { return Ok(()) };
    let since = over.since();
    let answer = read(api, move |steps| question(steps, &since)).await;
    send(reply, answer.map(|answer| to_json(&answer))).await
}

async fn send(reply: ReplySink, answer: Result<Value, Refusal>) -> Result<(), Gone> {
    match answer {
        Ok(answer) => reply.done(answer).await,
        Err(refusal) => refuse(reply, &refusal).await,
    }
}

async fn read<T: Send + 'static>(
    api: &Api,
    question: impl FnOnce(&StepReader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    let unreadable = |text: String| Refusal::Unavailable(format!("the run times of scripts cannot be read: {text}"));
    let steps = api.steps.clone();
    let reading = tokio::task::spawn_blocking(move || question(&steps));
    reading.await.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))
}
