//! An agent that sends the messages that a test chooses: it speaks the protocol, and runs no task.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use perilog_core::message::{FromAgent, Held, Hello, ToAgent};
use perilog_core::outcome::Outcome;
use perilog_core::task::{Ended, Start};
use perilog_core::{BootId, Epoch, HostName, MachineId};
use perilog_host::link::{Dial, Link, LinkError, dial};
use perilog_proto::{Decoded, Preamble, decode_to_agent, encode_from_agent, negotiate};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;

use crate::bed::{Bed, Controller, LIMIT};

pub(crate) struct Agent {
    pub(crate) host: String,
    pub(crate) link: Link,
    pub(crate) epoch: Epoch,
}

pub(crate) fn hello(host: &str, tasks: Vec<Held>) -> Hello {
    Hello {
        host: HostName::new(host).unwrap(),
        machine: MachineId::new("0123456789abcdef0123456789abcdef").unwrap(),
        boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a").unwrap(),
        link: 1,
        version: "0.1.0".to_owned(),
        actions: None,
        newest: None,
        tasks,
        more: false,
    }
}

/// Connects as `host` and exchanges preambles; returns the link.
pub(crate) async fn link(bed: &Bed, controller: &Controller, host: &str) -> Link {
    greet(raw_link(bed, controller, host).await).await
}

async fn greet(mut link: Link) -> Link {
    link.writer.send(Preamble::ours("test").encode()).await.unwrap();
    negotiate(&next_frame(&mut link).await.unwrap().unwrap()).unwrap();
    link
}

pub(crate) async fn raw_link(bed: &Bed, controller: &Controller, host: &str) -> Link {
    raw_link_by(bed, controller.address.port(), host).await
}

async fn raw_link_by(bed: &Bed, port: u16, host: &str) -> Link {
    dial(&Dial::tls(format!("localhost:{port}"), bed.authority.agent(host))).await.unwrap()
}

/// Connects as `host` and exchanges preambles; the controller sees the connection come from `address`.
pub(crate) async fn link_from(address: Ipv4Addr, bed: &Bed, controller: &Controller, host: &str) -> Link {
    greet(raw_link_by(bed, relay(address, controller.address).await, host).await).await
}

/// Returns a future that connects from `address` for ever, again as soon as a session ends, and never sends a Hello.
/// The future reports ended sessions to `ended`, as long as that has room.
pub(crate) async fn dial_again(
    address: Ipv4Addr,
    bed: &Bed,
    controller: &Controller,
    host: &str,
    ended: mpsc::Sender<()>,
) -> impl Future<Output = ()> + use<> {
    let (port, tls) = (relay(address, controller.address).await, bed.authority.agent(host));
    async move {
        loop {
            let Ok(mut link) = dial(&Dial::tls(format!("localhost:{port}"), tls.clone())).await else { continue };
            let _ = link.writer.send(Preamble::ours("test").encode()).await;
            while let Ok(Some(_)) = link.reader.next().await {}
            // The test needs the first ends alone.
            let _ = ended.try_send(());
        }
    }
}

/// Starts a relay that passes connections on to `to`, with `address` as their source. Returns the relay's port.
async fn relay(address: Ipv4Addr, to: SocketAddr) -> u16 {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = relay.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = relay.accept().await {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((address, 0).into()).unwrap();
            let mut far = socket.connect(to).await.unwrap();
            // Either side may end the connection.
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    port
}

/// Returns the next frame from the controller; `None` at an orderly end.
pub(crate) async fn next_frame(link: &mut Link) -> Result<Option<Bytes>, LinkError> {
    tokio::time::timeout(LIMIT, link.reader.next()).await.expect("the controller is silent")
}

impl Agent {
    /// Connects as `host`, says Hello, and waits for Welcome.
    pub(crate) async fn connect(bed: &Bed, controller: &Controller, host: &str) -> Self {
        Self::connect_with(bed, controller, hello(host, Vec::new())).await
    }

    pub(crate) async fn connect_with(bed: &Bed, controller: &Controller, hello: Hello) -> Self {
        let link = link(bed, controller, hello.host.as_str()).await;
        Self::greet(link, hello).await
    }

    /// Says Hello on this link, and expects the controller's Welcome.
    pub(crate) async fn greet(mut link: Link, hello: Hello) -> Self {
        let host = hello.host.to_string();
        link.writer.send(encode_from_agent(&FromAgent::Hello(hello))).await.unwrap();
        let mut agent = Self { host, link, epoch: Epoch { number: 0, nonce: 0 } };
        match agent.next().await {
            ToAgent::Welcome { epoch, .. } => agent.epoch = epoch,
            other => panic!("no Welcome: {other:?}"),
        }
        agent
    }

    pub(crate) async fn next(&mut self) -> ToAgent {
        let frame = next_frame(&mut self.link).await.unwrap().expect("the controller ended the session");
        match decode_to_agent(&frame).unwrap() {
            Decoded::Known(message) => message,
            Decoded::Unknown(number) => panic!("message {number}"),
        }
    }

    pub(crate) async fn send(&mut self, message: &FromAgent) {
        self.link.writer.send(encode_from_agent(message)).await.unwrap();
    }

    /// Waits for a Start, and answers with Accepted.
    pub(crate) async fn accept(&mut self) -> Start {
        match self.next().await {
            ToAgent::Start(start) => {
                self.send(&FromAgent::Accepted { task: start.task, limit_ms: None }).await;
                start
            }
            other => panic!("{}: no Start: {other:?}", self.host),
        }
    }

    pub(crate) async fn finish(&mut self, start: &Start, outcome: Outcome) {
        let ended = Box::new(Ended::bare(outcome, 1_552_593_349_000));
        self.send(&FromAgent::Finished { task: start.task, ended }).await;
    }

    /// Waits for the Ack of this task's end: the end is then on the controller's disk.
    pub(crate) async fn acked(&mut self, start: &Start) {
        match self.next().await {
            ToAgent::Ack { task, commit } if task == start.task && commit > 0 => {}
            other => panic!("{}: no Ack of {:?}: {other:?}", self.host, start.task),
        }
    }

    /// Waits for a Start, accepts the task, reports this outcome, and waits for the Ack.
    pub(crate) async fn run(&mut self, outcome: Outcome) {
        let start = self.accept().await;
        self.run_ended(&start, outcome).await;
    }

    /// Reports this outcome of a started task, and waits for the Ack.
    pub(crate) async fn run_ended(&mut self, start: &Start, outcome: Outcome) {
        self.finish(start, outcome).await;
        self.acked(start).await;
    }
}
