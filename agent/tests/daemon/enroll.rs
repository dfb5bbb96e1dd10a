//! Enrolment at a controller whose answers may be no certificates of this node.

use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use perilog_host::enroll::{Ask, Registrar, Shown, serve};
use perilog_host::link::{Keepalive, Listener, bind};
use perilog_host::tls::ServerTls;
use tokio::sync::watch;

use crate::bed::Bed;

type Sign = dyn Fn(&Ask) -> String + Send + Sync;

/// Registrar of a fake enrolment server. It grants every request: it answers with the text that the contained function
/// makes from the request. The text need not be a certificate.
struct Answers(Box<Sign>);

impl Registrar for Answers {
    async fn decide(self: Arc<Self>, _: SocketAddr, shown: Option<Shown>, ask: Ask) -> Result<String, String> {
        assert_eq!(shown.map(|shown| shown.names), Some(vec![ask.host.clone()]), "it shows what it renews");
        Ok((self.0)(&ask))
    }

    fn turned_away(&self, peer: SocketAddr, why: &dyn Display) {
        panic!("{peer} was turned away: {why}");
    }
}

/// Starts an enrolment server for the bed's agent, and returns at once. The server answers each request with the text
/// that `sign` returns, until the returned sender is dropped.
fn serve_enrolment(bed: &mut Bed, sign: Box<Sign>) -> watch::Sender<Option<ServerTls>> {
    let tls = ServerTls::load(&bed.authority.controller()).unwrap();
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = Listener::new(socket, Some(tls.clone()), Keepalive::default()).unwrap();
    bed.extra = format!("[enroll]\ncontroller = [\"{}\"]\n", listener.local_addr().unwrap());
    let (keep, tls) = watch::channel(Some(tls));
    tokio::spawn(serve(listener, tls, Arc::new(Answers(sign))));
    keep
}

/// Regression test: the agent replaced cert.pem by the controller's answer without a check, and the node then needed a
/// new token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_certificate_of_this_node_replaces_the_one_that_works() {
    for (what, answer) in [("rubbish", 0), ("of another host", 1), ("of another key", 2), ("its own", 3)] {
        let mut bed = Bed::new();
        bed.files = bed.authority.due("n0");
        let before = fs::read_to_string(&bed.files.cert).unwrap();
        let other = fs::read_to_string(&bed.authority.files("n1").cert).unwrap();
        let authority = bed.authority.clone();
        let sign = move |ask: &Ask| match answer {
            0 => "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n".to_owned(),
            1 => authority.sign(&ask.csr, "n1"),
            2 => other.clone(),
            _ => authority.sign(&ask.csr, "n0"),
        };
        let _server = serve_enrolment(&mut bed, Box::new(sign));
        let agent = bed.start();
        if what == "its own" {
            agent.log.wait_for("renewed the certificate");
            assert_ne!(fs::read_to_string(&bed.files.cert).unwrap(), before);
        } else {
            agent.log.wait_for("answered with a certificate that the agent rejects");
            assert_eq!(fs::read_to_string(&bed.files.cert).unwrap(), before, "{what}");
        }
    }
}
