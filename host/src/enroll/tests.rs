//! Tests of enrolment, the node's side and the controller's side, over loopback.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::*;
use crate::link::{Keepalive, Listener, bind};
use crate::tls::tests::{Authority, CLIENT, SERVER};
use crate::tls::{ClientTls, Clients, ServerTls, TlsFiles};

/// A registrar that reports each question to the test.
struct Clerk(mpsc::Sender<String>);

impl Registrar for Clerk {
    async fn decide(self: Arc<Self>, _: SocketAddr, shown: Option<Shown>, ask: Ask) -> Result<String, String> {
        let shown = shown.map(|shown| format!("{:?} {}", shown.names, shown.serial));
        let shown = shown.unwrap_or_default();
        self.0.try_send(format!("{} {:?} {shown}", ask.host, ask.token)).unwrap();
        if ask.host == "slow" {
            std::future::pending::<()>().await;
        }
        if ask.host == "n0" { Ok(format!("certificate of {}", ask.csr)) } else { Err("no\nsuch host".to_owned()) }
    }

    fn turned_away(&self, _: SocketAddr, why: &dyn Display) {
        self.0.try_send(format!("away: {why}")).unwrap();
    }
}

struct Bed {
    ca: Authority,
    /// A second authority, whose client certificates the enrolment server accepts.
    nodes: Authority,
    address: String,
    reports: mpsc::Receiver<String>,
    _tls: watch::Sender<Option<ServerTls>>,
}

impl Bed {
    fn new() -> Self {
        let (ca, nodes) = (Authority::new(), Authority::named("nodes"));
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let clients = Clients { ca: nodes.issue("any", CLIENT).ca, crl: nodes.revoke(66) };
        let tls = Some(ServerTls::load_open(&ca.issue("ctl", SERVER), &clients).unwrap());
        let listener = Listener::new(socket, tls.clone(), Keepalive::default()).unwrap();
        let (tls, changes) = watch::channel(tls);
        let (report, reports) = mpsc::channel(64);
        tokio::spawn(serve(listener, changes, Arc::new(Clerk(report))));
        Self { ca, nodes, address, reports, _tls: tls }
    }

    fn dial(&self, tls: ClientTls) -> Dial {
        Dial { server_name: "ctl".to_owned(), tls: Some(tls), ..Dial::plain(self.address.clone()) }
    }

    fn anonymous(&self) -> Dial {
        self.dial(ClientTls::load_anonymous(&self.ca.issue("n9", CLIENT)).unwrap())
    }

    async fn next_report(&mut self) -> String {
        self.reports.recv().await.unwrap()
    }
}

fn question(host: &str, token: Option<&str>) -> Ask {
    Ask { host: host.to_owned(), token: token.map(str::to_owned), munge: None, csr: "a key".to_owned() }
}

#[tokio::test]
async fn who_asks_is_answered_with_or_without_a_certificate() {
    let mut bed = Bed::new();
    assert_eq!(ask(&bed.anonymous(), &question("n0", Some("t"))).await.unwrap(), "certificate of a key");
    assert_eq!(bed.next_report().await, r#"n0 Some("t") "#);
    let error = ask(&bed.anonymous(), &question("n1", None)).await.unwrap_err().to_string();
    assert!(error.ends_with("refuses: nosuch host"), "{error}");
    bed.next_report().await;
    // The door recognises a visitor by the visitor's certificate.
    let shown = |files: TlsFiles| ClientTls::load(&TlsFiles { ca: bed.ca.issue("x", CLIENT).ca, ..files }).unwrap();
    let (own, revoked, foreign) = (
        bed.dial(shown(bed.nodes.issue_with("N0.", CLIENT, |params| params.serial_number = Some(0xabcu64.into())))),
        bed.dial(shown(bed.nodes.issue_with("n1", CLIENT, |params| params.serial_number = Some(66u64.into())))),
        bed.dial(shown(bed.ca.issue("n2", CLIENT))),
    );
    ask(&own, &question("n0", None)).await.unwrap();
    assert_eq!(bed.next_report().await, r#"n0 None ["n0"] 0ABC"#);
    for (dial, part) in [(revoked, "revoked"), (foreign, "no authority of this host")] {
        ask(&dial, &question("n0", None)).await.unwrap_err();
        let output = bed.next_report().await;
        assert!(output.starts_with("away:") && output.contains(part), "{output}");
    }
    // The visitor recognises the door by the door's certificate.
    let stranger = Authority::new();
    let fooled = bed.dial(ClientTls::load_anonymous(&stranger.issue("n9", CLIENT)).unwrap());
    let error = ask(&fooled, &question("n0", Some("t"))).await.unwrap_err().to_string();
    assert!(error.contains("no authority of this host"), "{error}");
    let output = bed.next_report().await;
    assert!(output.starts_with("away:"), "the token was said to a stranger: {output}");
}

#[tokio::test]
async fn what_is_too_long_or_no_question_is_turned_away() {
    let mut bed = Bed::new();
    for (host, part) in [("x".repeat(10_000), "more than 8192 bytes")] {
        ask(&bed.anonymous(), &question(&host, None)).await.unwrap_err();
        let output = bed.next_report().await;
        assert!(output.contains(part), "{output}");
    }
    let (_, stream) = link::connect(&bed.anonymous()).await.unwrap();
    let mut stream = stream;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let output = bed.next_report().await;
    assert!(output.contains("request is malformed"), "{output}");
}

/// Regression test: `perilog init` learns the authority over a connection of its own, and each good enrolment was
/// logged as a refused one, too.
#[tokio::test]
async fn a_client_that_asks_nothing_is_not_reported() {
    let bed = Bed::new();
    drop(link::connect(&bed.anonymous()).await.unwrap());
    ask(&bed.anonymous(), &question("n0", Some("t"))).await.unwrap();
    let Bed { mut reports, _tls, .. } = bed;
    // The door closes, and the last visit ends.
    drop(_tls);
    let mut all = Vec::new();
    while let Some(line) = reports.recv().await {
        all.push(line);
    }
    assert_eq!(all, [r#"n0 Some("t") "#]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_dropped_at_the_limit() {
    let mut bed = Bed::new();
    let _silent = tokio::net::TcpStream::connect(&bed.address).await.unwrap();
    assert_eq!(bed.next_report().await, "away: it did not send its request within 10s");
}

#[tokio::test]
async fn a_client_is_notified_when_the_decision_exceeds_its_limit() {
    let mut bed = Bed::new();
    let dial = bed.anonymous();
    let asked = tokio::spawn(async move { ask(&dial, &question("slow", Some("t"))).await });
    bed.next_report().await;
    tokio::time::pause();
    assert_eq!(bed.next_report().await, "away: no decision within 15s; the node asks again");
    tokio::time::resume();
    let error = asked.await.unwrap().unwrap_err().to_string();
    assert!(error.ends_with("refuses: the decision takes too long; ask again"), "{error}");
}

#[tokio::test]
async fn one_address_has_so_many_places_and_gets_them_back() {
    let mut bed = Bed::new();
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(tokio::net::TcpStream::connect(&bed.address).await.unwrap());
    }
    assert_eq!(bed.next_report().await, "away: more than 4 connections from one address");
    silent.truncate(3);
    // The fourth visitor's place is free once the door has seen its end.
    assert!(bed.next_report().await.starts_with("away:"));
    ask(&bed.anonymous(), &question("n0", None)).await.unwrap();
}

/// Found by fuzzing: an answer of another form was quoted with its line breaks, in the log of the node.
#[test]
fn what_a_malformed_answer_says_is_one_line() {
    let why = super::parse_answer(br#"{"a\nb":"x"}"#).unwrap_err();
    assert!(why.contains("`ab`") && !why.contains('\n'), "{why:?}");
    assert_eq!(super::parse_answer(br#"{"refused":"a\nb"}"#), Ok(Err("ab".to_owned())));
}
