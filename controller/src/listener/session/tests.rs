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
fn hello(tasks: Vec<perilog_core::message::Held>) -> FromAgent {
    FromAgent::Hello(perilog_core::message::Hello {
        host: perilog_core::HostName::new("n0").unwrap(),
        machine: perilog_core::MachineId::new("0123").unwrap(),
        boot: perilog_core::BootId::new("45").unwrap(),
        link: 1,
        version: String::new(),
        actions: None,
        newest: None,
        tasks,
        more: true,
    })
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_or_not_all_is_refused_within_the_limit() {
    let preamble = Preamble::ours("test").encode();
    let page = hello(Vec::new());
    assert_eq!(over(vec![]).await, "nothing was said");
    assert_eq!(over(vec![preamble.clone()]).await, "no Hello, or not all of it, within the limit");
    assert_eq!(over(vec![preamble, encode_from_agent(&page)]).await, "no Hello, or not all of it, within the limit");
}

/// A few hundred bytes can name a million hosts, and each page as many again.
#[tokio::test(start_paused = true)]
async fn a_hello_that_names_too_many_hosts_is_refused() {
    let hosts: HostList = format!("n[0-{}]", HostList::MAX_HOSTS - 1).parse().unwrap();
    let held = perilog_core::message::Held {
        task: perilog_core::TaskId {
            action: perilog_core::ActionId(uuid::Uuid::from_u128(1)),
            rank: perilog_core::Rank(0),
        },
        job: perilog_core::JobId::new("f1").unwrap(),
        attempt: perilog_core::Attempt::FIRST,
        action: perilog_core::ActionName::new("prolog").unwrap(),
        ranks: "0".parse().unwrap(),
        hosts,
        limit_ms: None,
        userid: None,
        commit: None,
        local: false,
        state: perilog_core::message::HeldState::Ended,
    };
    let page = encode_from_agent(&hello(vec![held]));
    assert!(page.len() < 1_000, "{} bytes", page.len());
    let preamble = Preamble::ours("test").encode();
    let pages = |n| std::iter::once(preamble.clone()).chain(std::iter::repeat_n(page.clone(), n)).collect();
    // As many as the bound allows: the session waits for the rest.
    assert_eq!(over(pages(4)).await, "no Hello, or not all of it, within the limit");
    assert_eq!(over(pages(5)).await, format!("its Hello names more than {HELLO_HOSTS} hosts"));
}
