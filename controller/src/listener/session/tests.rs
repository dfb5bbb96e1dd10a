//! Limits, on a clock that stands still until everybody waits.

use perilog_host::link::{Dial, Keepalive, Listener, bind, dial};
use perilog_proto::encode_from_agent;

use super::*;
use crate::daemon::Inlet;

/// Returns how a session ends whose peer sends these frames and then nothing.
async fn over(frames: Vec<bytes::Bytes>) -> String {
    let (inlet, mut entries) = Inlet::new();
    let sessions = Sessions::new(inlet, "test");
    let listener = Listener::new(bind("127.0.0.1:0".parse().unwrap()).unwrap(), None, Keepalive::default()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (link, peer) = tokio::join!(async { listener.next().await.handshake().await.unwrap() }, async {
        let mut peer = dial(&Dial::plain(address)).await.unwrap();
        for frame in frames {
            peer.writer.send(frame).await.unwrap();
        }
        peer
    });
    // Certificates never change.
    let (_keep, tls) = watch::channel(None);
    let over = tokio::select! {
        over = talk(link, true, tls, &sessions) => over,
        // The outlet must live for as long as the session.
        _ = async { let mut kept = Vec::new(); while let Some(entry) = entries.recv().await { kept.push(entry) } } => unreachable!(),
    };
    drop(peer);
    match over {
        Over::Refused(why) => why,
        Over::Ended(why) => panic!("ended: {why}"),
    }
}

/// A page of Hello, and not the last.
fn hello() -> FromAgent {
    FromAgent::Hello(perilog_core::message::Hello {
        host: perilog_core::HostName::new("n0").unwrap(),
        machine: perilog_core::MachineId::new("0123").unwrap(),
        boot: perilog_core::BootId::new("45").unwrap(),
        link: 1,
        version: String::new(),
        actions: None,
        newest: None,
        tasks: Vec::new(),
        more: true,
    })
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_or_not_all_is_refused_within_the_limit() {
    let preamble = Preamble::ours("test").encode();
    let page = hello();
    assert_eq!(over(vec![]).await, "nothing was said");
    assert_eq!(over(vec![preamble.clone()]).await, "no Hello, or not all of it, within the limit");
    assert_eq!(over(vec![preamble, encode_from_agent(&page)]).await, "no Hello, or not all of it, within the limit");
}
