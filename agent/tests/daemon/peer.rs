//! A controller that the test plays: a session with the agent, message by message.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use perilog_core::message::{FromAgent, Hello, ToAgent};
use perilog_core::task::Start;
use perilog_core::{ActionId, ActionName, Attempt, ClusterId, Epoch, JobId, Rank, TaskId, ids};
use perilog_host::link::Link;
use perilog_proto::{Decoded, Preamble, decode_from_agent, encode_to_agent, negotiate};
use tokio::time::timeout;

use crate::bed::{Bed, LIMIT};

pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) hello: Hello,
}

impl Peer {
    /// Takes the agent's next session and welcomes it.
    pub(crate) async fn accept(bed: &Bed) -> Self {
        let incoming = timeout(LIMIT, bed.listener.next()).await.expect("the agent does not dial");
        let mut link = incoming.handshake().await.unwrap();
        link.writer.send(Preamble::ours("test").encode()).await.unwrap();
        negotiate(&frame(&mut link).await).unwrap();
        let FromAgent::Hello(hello) = message(&mut link).await else { panic!("no Hello") };
        let mut peer = Self { link, hello };
        let epoch = Epoch { number: 1, nonce: 1 };
        peer.send(ToAgent::Welcome { epoch, cluster: cluster(), redial_window_ms: 0, commit: 1 }).await;
        peer
    }

    pub(crate) async fn send(&mut self, message: ToAgent) {
        self.link.writer.send(encode_to_agent(&message)).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> FromAgent {
        message(&mut self.link).await
    }

    /// Gives the agent a task of this job, waits until it is accepted, and returns the task's stem.
    pub(crate) async fn start(&mut self, job: &str) -> String {
        let (job, action) = (JobId::new(job).unwrap(), ActionName::new("prolog").unwrap());
        let task = TaskId { action: ActionId::of(cluster(), &job, Attempt::FIRST, &action), rank: Rank(0) };
        let stem = ids::stem(&action, &job, task);
        let start = Start {
            task,
            job,
            attempt: Attempt::FIRST,
            action,
            boot: self.hello.boot.clone(),
            not_after_ms: 60_000,
            ranks: "0".parse().unwrap(),
            hosts: "n0".parse().unwrap(),
            userid: None,
            env: BTreeMap::new(),
            timeout_ms: None,
            after: false,
            milestones: BTreeSet::new(),
            commit: 1,
        };
        self.send(ToAgent::Start(start)).await;
        loop {
            match self.next().await {
                FromAgent::Accepted { task: accepted, .. } if accepted == task => return stem,
                FromAgent::Finished { task: ended, ended: end } if ended == task => panic!("not accepted: {end:?}"),
                _ => {}
            }
        }
    }
}

fn cluster() -> ClusterId {
    ClusterId::from_name("test")
}

async fn frame(link: &mut Link) -> Bytes {
    let frame = timeout(LIMIT, link.reader.next()).await.expect("the agent is silent");
    frame.unwrap().expect("the agent ended the session")
}

async fn message(link: &mut Link) -> FromAgent {
    match decode_from_agent(&frame(link).await).unwrap() {
        Decoded::Known(message) => message,
        Decoded::Unknown(number) => panic!("message {number}"),
    }
}
