//! Fake system bus with a fake systemd, which starts every unit and never ends one.

use std::collections::HashMap;
use std::path::Path;

use futures_util::StreamExt;
use tokio::net::UnixListener;
use zbus::message::Type;
use zbus::{Guid, MessageStream, OwnedObjectPath, Variant, connection};

/// A row of the reply to ListUnitsByPatterns: name, description, load, active and sub state, followed unit, object, job
/// id, type and object.
type Listed<'a> =
    (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, OwnedObjectPath, u32, &'a str, OwnedObjectPath);

/// Starts the fake system bus and systemd on the socket `path`, as tokio tasks that run until the test ends.
pub(crate) fn serve(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_one(stream));
        }
    });
}

async fn serve_one(stream: tokio::net::UnixStream) {
    let stream = stream.into_std().unwrap();
    // Without its name a bus is a peer to this library.
    let bus = connection::Builder::unix_stream(stream).server(Guid::generate()).p2p().build().await.unwrap();
    let mut calls = MessageStream::from(&bus);
    let job = || OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/1").unwrap();
    while let Some(Ok(message)) = calls.next().await {
        if message.message_type() != Type::MethodCall {
            continue;
        }
        let header = message.header();
        // The agent may be gone before it has its answer.
        let _ = match header.member().unwrap().as_str() {
            "Hello" => bus.reply(&header, &":1.1").await,
            "GetNameOwner" => bus.reply(&header, &":1.0").await,
            "GetAll" => {
                // The main process of every unit is this test: a process that lives.
                let unit: HashMap<&str, Variant<'_>> = [
                    ("LoadState", "loaded".into()),
                    ("ActiveState", "activating".into()),
                    ("SubState", "start".into()),
                    ("MainPID", std::process::id().into()),
                ]
                .into();
                bus.reply(&header, &unit).await
            }
            "Get" => bus.reply_error(&header, "org.freedesktop.DBus.Error.UnknownProperty", &"unknown").await,
            "ListUnitsByPatterns" => bus.reply(&header, &Vec::<Listed<'_>>::new()).await,
            "GetUnitProcesses" => bus.reply(&header, &Vec::<(&str, u32, &str)>::new()).await,
            "StartTransientUnit" | "StopUnit" | "Stop" => bus.reply(&header, &job()).await,
            _ => bus.reply(&header, &()).await,
        };
    }
}
