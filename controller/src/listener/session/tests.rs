//! Tests of the limits on a Hello's time and size. In the test of the time, the clock is paused, and jumps ahead when
//! all tasks wait.

use perilog_core::message::{Held, HeldState};
use perilog_core::outcome::Outcome;
use perilog_core::task::Reboot;
use perilog_core::{ActionId, ActionName, Attempt, ClusterId, JobId, Rank, TaskId};
use perilog_host::link::{Dial, Keepalive, Listener, bind, dial};
use perilog_proto::encode_from_agent;

use super::*;
use crate::daemon::Inlet;

/// Runs a session whose peer sends these frames and then falls silent. Returns the reason of the session's end as text.
async fn over(frames: Vec<bytes::Bytes>) -> String {
    let (inlet, mut entries) = Inlet::new();
    let sessions = Sessions::new(inlet, "test", crate::listener::Expiries::default());
    let listener = Listener::new(bind("127.0.0.1:0".parse().unwrap()).unwrap(), None, Keepalive::default()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (link, mut peer) = tokio::join!(async { listener.next().await.handshake().await.unwrap() }, async {
        dial(&Dial::plain(address)).await.unwrap()
    });
    // The certificates never change.
    let (_keep, tls) = watch::channel(None);
    let sending = async {
        for frame in frames {
            // The session may end before the peer has sent all frames.
            let _ = peer.writer.send(frame).await;
        }
    };
    let keeping = async {
        // The outlet must live as long as the session.
        let mut kept = Vec::new();
        while let Some(entry) = entries.recv().await {
            kept.extend(Some(entry).filter(|entry| matches!(entry, Entry::Opened { .. })));
        }
    };
    let over = tokio::select! {
        over = talk(Box::new(link), true, tls, &sessions) => over,
        _ = async { tokio::join!(sending, keeping) } => unreachable!(),
    };
    match over {
        Over::Refused(why) => why,
        Over::Ended(why) => panic!("ended: {why}"),
    }
}

/// Ten thousand agents have ten thousand of these futures.
#[test]
fn an_idle_session_has_a_small_future() {
    fn size<A, B, C, F: Future>(_: impl FnOnce(Box<Link>, A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    let size = size(|link, plain, tls, sessions: &'static Sessions| talk(link, plain, tls, sessions));
    assert!(size <= 1_536, "{size} bytes");
}

/// Makes a page of Hello that is not the last page.
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
    assert_eq!(over(vec![]).await, "it did not send its version within 30s");
    assert_eq!(over(vec![preamble.clone()]).await, "it did not send its whole Hello within 30s");
    assert_eq!(over(vec![preamble, encode_from_agent(&page)]).await, "it did not send its whole Hello within 30s");
}

/// Makes a large entry for a Hello: the tombstone of a refused task, with a reason of 1,500 bytes.
fn refused() -> Held {
    let (job, action) = (JobId::new("j").unwrap(), ActionName::new("prolog").unwrap());
    let id = ActionId::of(ClusterId::from_name("any"), &job, Attempt::FIRST, &action);
    let outcome = Outcome::Refused { why: "x".repeat(1_500) };
    Held {
        task: TaskId { action: id, rank: Rank(0) },
        job,
        attempt: Attempt::FIRST,
        action,
        limit_ms: None,
        commit: None,
        userid: None,
        local: false,
        state: HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None },
    }
}

/// The controller keeps a Hello in memory until its last page, so it refuses a Hello that is larger than any node's.
#[tokio::test]
async fn a_hello_of_more_bytes_than_a_node_sends_is_refused() {
    let mut page = hello();
    let FromAgent::Hello(of) = &mut page else { unreachable!() };
    of.tasks = vec![refused(); 500];
    let page = encode_from_agent(&page);
    let pages = |count: usize| -> Vec<bytes::Bytes> {
        [Preamble::ours("test").encode()].into_iter().chain(std::iter::repeat_n(page.clone(), count)).collect()
    };
    let most = HELLO_BYTES / page.len();
    assert_eq!(over(pages(most + 1)).await, format!("its Hello is larger than {HELLO_BYTES} bytes"));
}
