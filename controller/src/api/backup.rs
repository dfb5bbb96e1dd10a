//! The method `Backup`: sends a copy of the store in pieces over the local socket. The client writes the file, so the
//! controller needs no permission to write elsewhere.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perilog_core::controller::io::Refusal;
use perilog_host::varlink::{Call, Gone};
use serde::Deserialize;
use serde_json::json;

use super::{Api, refuse, request};
use crate::store;

/// Maximum number of the copy's bytes in one reply.
const PIECE: u64 = 192 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {}

/// Serves the method `BackupKept`: a client reports that a whole copy is on a disk, and the controller records the
/// time.
pub(super) async fn kept(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((Parameters {}, _, reply)) = request::parse(call).await? else { return Ok(()) };
    let path = api.store.clone();
    let noted = tokio::task::spawn_blocking(move || store::note_copy(&path)).await;
    match noted.map_err(|error| error.to_string()).and_then(|noted| noted.map_err(|error| error.to_string())) {
        Ok(()) => reply.done(json!({})).await,
        Err(text) => {
            refuse(reply, &Refusal::Unavailable(format!("the time of the copy cannot be recorded: {text}"))).await
        }
    }
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    if !call.more {
        // Refuses before the copy begins.
        let mut reply = call.reply;
        return reply.more(json!({})).await;
    }
    let Some((Parameters {}, _, mut reply)) = request::parse(call).await? else { return Ok(()) };
    // One copy at a time, because each copy takes as much disk space as the store.
    let _alone = api.backup.lock().await;
    let path = api.store.clone();
    let made = tokio::task::spawn_blocking(move || store::backup(&path)).await;
    let made = made.map_err(|error| error.to_string()).and_then(|made| made.map_err(|error| error.to_string()));
    let (mut file, size) = match made {
        Ok(made) => made,
        Err(text) => return refuse(reply, &Refusal::Unavailable(text)).await,
    };
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::new();
            file.by_ref().take(PIECE).read_to_end(&mut piece).map(|_| (file, piece))
        });
        let piece = match read.await.map_err(|error| error.to_string()).and_then(|read| read.map_err(|e| e.to_string()))
        {
            Ok((rest, piece)) => {
                file = rest;
                piece
            }
            Err(text) => return refuse(reply, &Refusal::Unavailable(format!("the copy cannot be read: {text}"))).await,
        };
        if piece.is_empty() {
            return reply.done(json!({ "size": size })).await;
        }
        reply.more(json!({ "data": STANDARD.encode(&piece) })).await?;
    }
}
