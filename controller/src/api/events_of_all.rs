//! The method `EventsOfAll`: the events of all jobs in the order of the store, from any [`Spot`] in that order on. A
//! follower reads the store alone: a commit only wakes the follower. A slow follower keeps no event in the controller's
//! memory, and continues from its place.

use perilog_core::controller::io::Refusal;
use perilog_host::varlink::{Call, Gone, ReplySink};
use serde::Deserialize;
use serde_json::{Value, json};

use super::events::{PAGE, event_value};
use super::{Api, invalid, refuse, request};
use crate::store::{EventReader, Ordered, Spot, StoreError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsOfAll {
    after: Option<String>,
    follow: Option<bool>,
    since_ms: Option<u64>,
    last: Option<u64>,
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((parameters, _, mut reply)) = request::parse::<EventsOfAll>(call).await? else { return Ok(()) };
    let follow = parameters.follow.unwrap_or(false);
    let after = match start(api, &parameters).await {
        Ok(after) => after,
        Err(refusal) => return refuse(reply, &refusal).await,
    };
    match send(api, after, more, follow, &mut reply).await? {
        Ok(last) => reply.done(last).await,
        Err(refusal) => refuse(reply, &refusal).await,
    }
}

/// Sends pages of events past `after`, all but the last page. Returns that page, which the caller sends as the last
/// reply, or a refusal. With `follow`, goes on with new events until the client disconnects or the controller ends.
/// `more`: the client takes more than one reply.
async fn send(
    api: &Api,
    mut after: Option<Spot>,
    more: bool,
    follow: bool,
    reply: &mut ReplySink,
) -> Result<Result<Value, Refusal>, Gone> {
    let _waiting = if follow { Some(reply.wait().await?) } else { None };
    if follow {
        // A follower that reads from now on has a spot even if the controller dies before the next event.
        reply.more(page_value(&[], after.as_ref())).await?;
    }
    let mut logged = api.logged.clone();
    loop {
        // Marks before the read, so that a later commit counts as a change.
        logged.mark_unchanged();
        let from = after.clone();
        let page = match read(api, move |reader| reader.all(from.as_ref(), PAGE)).await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(Err(lost())),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let empty = page.is_empty();
        after = page.last().map(|last| last.spot.clone()).or(after);
        let value = page_value(&page, after.as_ref());
        if !follow && (!more || empty) {
            return Ok(Ok(value));
        }
        if !empty {
            reply.more(value).await?;
            continue;
        }
        tokio::select! {
            changed = logged.changed() => if changed.is_err() {
                return Ok(Err(Refusal::Unavailable(
                    "the controller is stopping; ask again when it runs again".to_owned(),
                )));
            },
            () = reply.closed() => return Err(Gone),
        }
    }
}

/// Returns the position in the order of all events from which a client wants events. `after` is the text of a [`Spot`],
/// or `now` for the position after the newest commit. Without `after`, `since_ms` and `last` choose the newest events.
/// `None`: the client gets all events from the oldest on.
async fn start(api: &Api, asked: &EventsOfAll) -> Result<Option<Spot>, Refusal> {
    let (since_ms, last) = (asked.since_ms, asked.last);
    match asked.after.as_deref() {
        Some(_) if since_ms.is_some() || last.is_some() => {
            Err(Refusal::Invalid("`after` cannot be combined with `since_ms` or `last`".to_owned()))
        }
        None if since_ms.is_none() && last.is_none() => Ok(None),
        None => read(api, move |reader| reader.before_newest(last, since_ms)).await,
        Some("now") => read(api, |reader| reader.newest()).await.map(Some),
        Some(spot) => spot.parse().map(Some).map_err(invalid),
    }
}

async fn read<T: Send + 'static>(
    api: &Api,
    read: impl FnOnce(EventReader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    let reader = api.reader.clone();
    let unreadable = |text: String| Refusal::Unavailable(format!("the event log cannot be read: {text}"));
    let reading = tokio::task::spawn_blocking(move || read(reader)).await;
    reading.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))
}

fn lost() -> Refusal {
    let text = "the store has no event at this position: the store was restored from an older copy, and later events \
                are lost. Without `after`, all events of the store follow";
    Refusal::Conflict(text.to_owned())
}

fn page_value(page: &[Ordered], spot: Option<&Spot>) -> Value {
    let events = page.iter().map(|ordered| {
        let mut value = event_value(ordered.sequence, &ordered.event);
        value["job"] = json!(ordered.job);
        value["spot"] = json!(ordered.spot.to_string());
        value
    });
    json!({ "events": events.collect::<Vec<_>>(), "spot": spot.map(Spot::to_string) })
}
