//! The method `Export`: sends the store's data about jobs as a stream of pages. The export reads beside the writer,
//! which never waits for it.

use perilog_core::JobId;
use perilog_core::controller::io::Refusal;
use perilog_host::clock;
use perilog_host::varlink::{Call, Gone};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, refuse, request};
use crate::store::{Exporter, Wanted, export_head};

/// Maximum number of lines in one reply.
const PAGE: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Export {
    job: Option<JobId>,
    since_ms: Option<u64>,
    until_ms: Option<u64>,
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    if !call.more {
        let mut reply = call.reply;
        return reply.more(json!({})).await;
    }
    let Some((Export { job, since_ms, until_ms }, _, mut reply)) = request::parse(call).await? else { return Ok(()) };
    let (path, wanted) = (api.store.clone(), Wanted { job: job.clone(), since_ms, until_ms });
    let mut exporter = match blocking(move || Exporter::open(&path, wanted)).await {
        Ok(exporter) => exporter,
        Err(refusal) => return refuse(reply, &refusal).await,
    };
    reply.more(json!({ "lines": [export_head(clock::wall_ms())] })).await?;
    let mut none = true;
    loop {
        let (rest, lines) = match blocking(move || exporter.next_job().map(|lines| (exporter, lines))).await {
            Ok((rest, Some(lines))) => (rest, lines),
            Ok((_, None)) => break,
            Err(refusal) => return refuse(reply, &refusal).await,
        };
        (exporter, none) = (rest, false);
        for page in lines.chunks(PAGE) {
            reply.more(json!({ "lines": page })).await?;
        }
    }
    match job {
        Some(job) if none => refuse(reply, &Refusal::NoSuchJob(format!("no job {job}"))).await,
        _ => reply.done(json!({ "lines": Vec::<Value>::new() })).await,
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, crate::store::StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    let result = tokio::task::spawn_blocking(read).await;
    let result = result.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string()));
    result.map_err(|text| Refusal::Unavailable(format!("the store cannot be read: {text}")))
}
