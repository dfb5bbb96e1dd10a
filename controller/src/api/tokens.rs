//! One-time tokens for nodes without a certificate. A blocking thread reads and writes the token files, beside the
//! writer.

use std::io;
use std::sync::Arc;

use perilog_core::controller::io::Refusal;
use perilog_core::{HostList, HostName, Span};
use perilog_host::clock;
use perilog_host::varlink::{Call, Gone};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, invalid, refuse, request, to_json};
use crate::enroll::Enrolment;

/// Default life of a token: long enough to boot a rack, short enough that a token in a log is useless the next day.
const LASTS: Span = Span::from_millis(3_600_000);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Make {
    nodes: HostList,
    lasts: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeBack {
    nodes: HostList,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

pub(super) async fn make(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((Make { nodes, lasts }, peer, reply)) = request::bounded(call, api.max_hosts).await? else {
        return Ok(());
    };
    let asked = || -> Result<(HostList, u64), Refusal> {
        let lasts = lasts.unwrap_or(LASTS).as_millis().filter(|millis| *millis > 0);
        Ok((hosts(nodes)?, lasts.ok_or_else(|| invalid("the lifetime of a token must be above zero and finite"))?))
    };
    let made = match asked() {
        Ok((hosts, lasts)) => {
            let now_ms = clock::wall_ms();
            let until_ms = now_ms.saturating_add(lasts);
            on_files(api, move |enrolment| {
                let made = enrolment.tokens.make(&hosts, peer.uid, now_ms, until_ms)?;
                let one = |(host, token)| json!({ "host": host, "token": token, "until_ms": until_ms });
                let made = made.into_iter().map(one).collect::<Vec<_>>();
                Ok(json!({ "tokens": made, "command": enrolment.invitation() }))
            })
            .await
        }
        Err(refusal) => Err(refusal),
    };
    match made {
        Ok(made) => reply.done(made).await,
        Err(refusal) => refuse(reply, &refusal).await,
    }
}

pub(super) async fn list(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((List {}, _, reply)) = request::parse(call).await? else { return Ok(()) };
    let listed = on_files(api, |enrolment| {
        let tokens = enrolment.tokens.list(clock::wall_ms())?;
        let one = |token: crate::enroll::Token| {
            json!({
                "host": token.host, "made_ms": token.made_ms, "until_ms": token.until_ms, "by": token.by,
                "used_ms": token.used_ms,
            })
        };
        Ok(json!({ "tokens": tokens.into_iter().map(one).collect::<Vec<_>>() }))
    });
    match listed.await {
        Ok(listed) => reply.done(listed).await,
        Err(refusal) => refuse(reply, &refusal).await,
    }
}

pub(super) async fn take_back(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((TakeBack { nodes }, _, reply)) = request::bounded(call, api.max_hosts).await? else { return Ok(()) };
    let taken = match hosts(nodes) {
        Ok(hosts) => {
            on_files(api, move |enrolment| {
                Ok(json!({ "taken": to_json(&enrolment.tokens.take_back(&hosts, clock::wall_ms())?) }))
            })
            .await
        }
        Err(refusal) => Err(refusal),
    };
    match taken {
        Ok(taken) => reply.done(taken).await,
        Err(refusal) => refuse(reply, &refusal).await,
    }
}

/// Checks that the list names hosts: RFC 29 allows names that no host can have.
fn hosts(hosts: HostList) -> Result<HostList, Refusal> {
    if hosts.is_empty() {
        return Err(invalid("no nodes are named"));
    }
    let wrong = hosts.iter().find_map(|host| HostName::new(host).err());
    wrong.map_or(Ok(hosts), |error| Err(invalid(error)))
}

async fn on_files(
    api: &Api,
    work: impl FnOnce(&Enrolment) -> io::Result<Value> + Send + 'static,
) -> Result<Value, Refusal> {
    let enrolment: Arc<Enrolment> = api.enrolment.clone().ok_or_else(|| {
        Refusal::Unavailable(
            "enrolment is off: set [enroll] listen in controller.toml, and restart the controller".to_owned(),
        )
    })?;
    let done = tokio::task::spawn_blocking(move || work(&enrolment)).await;
    let done = done.map_err(|error| error.to_string()).and_then(|done| done.map_err(|error| error.to_string()));
    done.map_err(|text| Refusal::Unavailable(format!("tokens: {text}")))
}
