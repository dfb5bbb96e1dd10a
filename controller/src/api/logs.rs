//! The method `Logs`: output of a job's scripts from the nodes. The API sends a question to each node, and passes the
//! answers on as they arrive.

use perilog_core::controller::io::{AskWhich, Refusal, Reply, Request, Which};
use perilog_core::message::{Ask, MAX_LOG_LINES};
use perilog_core::{HostList, HostName, Targets};
use perilog_host::varlink::{Call, Gone, ReplySink};
use serde::Deserialize;
use serde_json::json;

use super::{Api, refuse, request};
use crate::daemon::{Drain, Part, parts};

/// Default number of lines that each node sends.
const LINES: u32 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logs {
    #[serde(flatten)]
    which: Which,
    lines: Option<u32>,
}

impl Logs {
    fn request(self) -> Request {
        let which = self.which;
        let ask = Ask::Logs {
            job: which.job.clone(),
            action: which.action.clone(),
            attempt: which.attempt,
            // The question names the rank only if the caller names a single one: of several ranks, each node has its
            // own.
            rank: match &which.targets {
                Some(Targets::Ranks(ranks)) if ranks.len() == 1 => ranks.first(),
                _ => None,
            },
            lines: self.lines.unwrap_or(LINES).min(MAX_LOG_LINES),
        };
        Request::Ask { which: AskWhich::Tasks(which), ask }
    }
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    if !call.more {
        // Refuses before the controller asks a node.
        let mut reply = call.reply;
        return reply.more(json!({})).await;
    }
    let Some((logs, peer, mut reply)) = request::bounded::<Logs>(call, api.max_hosts).await? else { return Ok(()) };
    let (queue, mut answers) = parts();
    let (question, asked, unreachable) = match api.inlet.ask(peer.uid, logs.request(), Some(queue)).await {
        Ok(Reply::Asked { question, asked, unreachable }) => (question, asked, unreachable),
        Ok(_) => return Ok(()),
        Err(refusal) => return refuse(reply, &refusal).await,
    };
    let mut lost = Vec::new();
    let all = receive(&mut reply, &mut answers, asked.len(), &mut lost).await;
    // The client disconnected: the controller drops later answers on arrival.
    let _ = api.inlet.ask(peer.uid, Request::AskEnds { question }, None).await;
    match all? {
        true => {
            // Nodes that disconnected before their last answer count as unreachable, also after earlier answers.
            let names = unreachable.iter().chain(lost.iter().map(HostName::as_str));
            let unreachable = HostList::from_names(names).unwrap_or_default();
            reply.done(json!({ "unreachable": unreachable })).await
        }
        false => {
            let text = "more output came than the client could read; ask for fewer ranks or lines";
            refuse(reply, &Refusal::Unavailable(text.to_owned())).await
        }
    }
}

/// Passes the answers of `hosts` hosts on to the client, and collects in `lost` the hosts that disconnected before
/// their last answer. Returns `false` if the writer drops the queue of answers before the last one, normally because
/// the client reads too slowly.
async fn receive(
    reply: &mut ReplySink,
    answers: &mut Drain<Part>,
    mut hosts: usize,
    lost: &mut Vec<HostName>,
) -> Result<bool, Gone> {
    while hosts > 0 {
        let part = tokio::select! {
            part = answers.next() => part,
            () = reply.closed() => return Err(Gone),
        };
        let Some(Part { host, text, last, lost: is_lost }) = part else { return Ok(false) };
        if is_lost {
            lost.push(host);
            hosts -= 1;
            continue;
        }
        reply.more(json!({ "host": HostName::as_str(&host), "text": text, "last": last })).await?;
        hosts -= usize::from(last);
    }
    Ok(true)
}
