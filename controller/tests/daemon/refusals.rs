//! The controller refuses invalid peers, and logs each with its address. The sessions of all other peers continue.

use perilog_core::message::FromAgent;
use perilog_host::link::MAX_FRAME;
use perilog_proto::{Preamble, encode_from_agent};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::agent::{Agent, hello, link, next_frame, raw_link};
use crate::bed::{Bed, Controller};
use crate::python::call;

/// Reads from the connection until the controller has ended it, in an orderly way or by cutting it.
async fn assert_ended(mut link: perilog_host::link::Link) {
    while let Ok(Some(_)) = next_frame(&mut link).await {}
}

fn assert_logged(controller: &Controller, peer: std::net::SocketAddr, why: &str) {
    let line = controller.log.wait_for(&format!("refused {peer}"));
    // Once for people, and once as a field.
    assert!(line.contains(why) && line.matches(&peer.to_string()).count() == 2, "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_by_name_and_agents_go_on() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;

    let mut stranger = TcpStream::connect(controller.address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // Operators know names: a stranger's line shows the last host from that address.
    assert_logged(&controller, stranger.local_addr().unwrap(), "(n0 was there last): ");

    type Case = (&'static str, Vec<bytes::Bytes>, &'static str);
    let ours = || Preamble::ours("test").encode();
    let before_hello = encode_from_agent(&FromAgent::Probed { nonce: 1 });
    let table: Vec<Case> = vec![
        (
            "garbage",
            vec!["GET / HTTP/1.1".into()],
            r#"does not speak perilog's protocol; it began with "GET / HTTP/1.1""#,
        ),
        ("nothing", vec!["".into()], "it began with nothing"),
        (
            "another version",
            vec![Preamble { lowest: 8, highest: 9, release: "9.0".to_owned() }.encode()],
            "no common version of the protocol: the peer (release 9.0) speaks 8 to 9, this side 1 to 1",
        ),
        ("no Hello", vec![ours(), before_hello], "it sent another message before its Hello"),
        ("an unknown message", vec![ours(), vec![9, 9].into()], "it sent an unknown message before its Hello"),
        ("a broken message", vec![ours(), vec![0, 1, 0x0a, 0xff].into()], "malformed Hello: "),
        ("a bad name", vec![ours(), vec![0, 1, 0x0a, 1, b'/'].into()], "malformed Hello: host: malformed host name"),
    ];
    for (what, frames, why) in table {
        let mut link = raw_link(&bed, &controller, "n1").await;
        let peer = link.peer;
        assert_eq!(peer.port(), controller.address.port(), "{what}");
        for frame in frames {
            // The first frame may have been refused already.
            let _ = link.writer.send(frame).await;
        }
        assert_ended(link).await;
        let line = controller.log.wait_for(why);
        assert!(line.contains("refused n1 at 127.0.0.1:"), "{line}");
    }
    // Within an established session.
    let mut link = link(&bed, &controller, "n2").await;
    link.writer.send(encode_from_agent(&FromAgent::Hello(hello("n2", vec![])))).await.unwrap();
    next_frame(&mut link).await.unwrap().unwrap();
    link.writer.send(vec![0, 5, 0xff].into()).await.unwrap();
    assert_ended(link).await;
    controller.log.wait_for("malformed Finished: ");

    agent.link.writer.send(vec![0x7f, 0xff].into()).await.unwrap();
    agent.next().await;
    assert_eq!(call(&bed, "Status", serde_json::json!({}))["status"]["online"], 1);
}

/// Regression test: each `perilog doctor` on the controller's host left a warning of a refused peer in the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_the_port_is_open_is_no_refusal() {
    let mut bed = Bed::new();
    let directory = bed.dir.path().join("enroll");
    bed.extra = format!("log = \"debug\"\n[enroll]\nlisten = \"127.0.0.1:0\"\ndirectory = {directory:?}\n");
    let controller = bed.start();
    for text in ["listening for agents", "enrolling nodes"] {
        let line = controller.log.wait_for(text);
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        let looker = TcpStream::connect(address).await.unwrap();
        let address = looker.local_addr().unwrap().to_string();
        drop(looker);
        let line = controller.log.wait_for(&address);
        assert!(line.contains("left before its handshake") && !line.contains("refused"), "{text}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_over_the_limit_is_refused_before_it_is_read() {
    let mut bed = Bed::new();
    bed.plain();
    let controller = bed.start();
    controller.log.wait_for("TLS is switched off");
    let mut peer = TcpStream::connect(controller.address).await.unwrap();
    let preamble = Preamble::ours("test").encode();
    peer.write_u32(preamble.len() as u32).await.unwrap();
    peer.write_all(&preamble).await.unwrap();
    peer.write_u32(MAX_FRAME as u32 + 1).await.unwrap();
    assert_logged(&controller, peer.local_addr().unwrap(), "a frame is larger than 1048576 bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_is_refused() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let other = crate::authority::Authority::new(&bed.dir.path().join("other"));
    // The client trusts the bed's authority, so only its own certificate is wrong.
    let mut files = other.files("n0");
    files.ca = bed.dir.path().join("tls/ca.pem");
    let tls = perilog_host::tls::ClientTls::load(&files).unwrap();
    let address = format!("localhost:{}", controller.address.port());
    if let Ok(mut link) = perilog_host::link::dial(&perilog_host::link::Dial::tls(address, tls)).await {
        let _ = link.writer.send(Preamble::ours("test").encode()).await;
        assert_ended(link).await;
    }
    let line = controller.log.wait_for("refused 127.0.0.1:");
    assert!(line.contains("authority"), "{line}");
    Agent::connect(&bed, &controller, "n0").await;
}

/// Tries to connect with these certificate files; returns the controller's log line that contains `why`.
async fn refusal(controller: &Controller, files: &perilog_host::tls::TlsFiles, why: &str) -> String {
    let tls = perilog_host::tls::ClientTls::load(files).unwrap();
    let address = format!("localhost:{}", controller.address.port());
    if let Ok(mut link) = perilog_host::link::dial(&perilog_host::link::Dial::tls(address, tls)).await {
        let _ = link.writer.send(Preamble::ours("test").encode()).await;
        assert_ended(link).await;
    }
    controller.log.wait_for(why)
}

/// A thief can sign a certificate with a stolen key of a node; the controller refuses the certificate, because the node
/// is no authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_signs_is_no_authority() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let forged = bed.authority.forged("n0", "n1");
    let line = refusal(&controller, &forged, "refused 127.0.0.1:").await;
    assert!(line.contains("no authority of this host has signed the peer's certificate"), "{line}");
    assert_eq!(call(&bed, "Status", serde_json::json!({}))["status"]["online"], 0);
}

/// A reload with a new revocation list ends the sessions whose certificate the list names, and no other session. The
/// controller then refuses new connections with such a certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_revoked_is_cut_off_by_a_reload_and_stays_out() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut good = Agent::connect(&bed, &controller, "n0").await;
    let stolen = bed.authority.files("n1");
    let attacker = Agent::connect(&bed, &controller, "n1").await;
    let list = bed.authority.revoke(&[]);
    bed.revocations(&list);
    let reload = || {
        controller.signal(rustix::process::Signal::HUP);
        controller.wait_notified("READY=1")
    };
    reload();
    // An empty list revokes no certificate.
    assert_eq!(call(&bed, "Status", serde_json::json!({}))["status"]["online"], 2);
    bed.authority.revoke(&["n1"]);
    reload();
    assert_ended(attacker.link).await;
    controller.log.wait_for("its certificate was revoked");
    refusal(&controller, &stolen, "the peer's certificate was revoked").await;
    good.link.writer.send(vec![0x7f, 0xff].into()).await.unwrap();
    good.next().await;
    assert_eq!(call(&bed, "Status", serde_json::json!({}))["status"]["online"], 1);
    // An unreadable list changes nothing, so it admits no revoked peer.
    std::fs::write(&list, "nothing").unwrap();
    assert!(reload().contains("the reload failed"));
    refusal(&controller, &stolen, "the peer's certificate was revoked").await;
}
