//! The method `Outbox`, the notices for the resource manager: the present entries, and with `follow` also new entries.

use perilog_core::controller::io::{OutboxEntry, Refusal, Reply, Request};
use perilog_core::controller::view::PAGE_BYTES;
use perilog_host::varlink::{Call, Gone};
use serde::Deserialize;
use serde_json::json;

use super::{Api, refuse, request};

/// Maximum number of entries in one reply.
const PAGE: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outbox {
    after: Option<u64>,
    follow: Option<bool>,
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((Outbox { after, follow }, peer, mut reply)) = request::parse(call).await? else { return Ok(()) };
    let (mut after, follow) = (after.unwrap_or(0), follow.unwrap_or(false));
    let _waiting = if follow { Some(reply.wait().await?) } else { None };
    let mut grew = api.outbox.clone();
    loop {
        // Marks before the request, so that a later entry counts as a change.
        grew.mark_unchanged();
        let page = match page(api, peer.uid, after).await {
            Ok(page) => page,
            Err(refusal) => return refuse(reply, &refusal).await,
        };
        let last = page.last().map(|entry| entry.sequence);
        if !follow && (!more || last.is_none()) {
            return reply.done(json!({ "entries": page })).await;
        }
        if let Some(last) = last {
            reply.more(json!({ "entries": page })).await?;
            after = last;
            continue;
        }
        tokio::select! {
            changed = grew.changed() => if changed.is_err() {
                let text = "the controller is stopping; ask again when it runs again";
                return refuse(reply, &Refusal::Unavailable(text.to_owned())).await;
            },
            () = reply.closed() => return Err(Gone),
        }
    }
}

async fn page(api: &Api, uid: u32, after: u64) -> Result<Vec<OutboxEntry>, Refusal> {
    match api.ask(uid, Request::Outbox { after, limit: PAGE }).await? {
        Reply::Outbox(entries) => Ok(bounded(entries)),
        _ => Ok(Vec::new()),
    }
}

/// Returns as many of the first entries as fit a reply, and one at least.
fn bounded(mut entries: Vec<OutboxEntry>) -> Vec<OutboxEntry> {
    let mut left = PAGE_BYTES;
    let fit = entries.iter().take_while(|entry| {
        let bytes = serde_json::to_vec(entry).map_or(0, |json| json.len() + 1);
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    });
    let count = fit.count().max(1);
    entries.truncate(count);
    entries
}
