//! Tests over real sockets on loopback.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::tls::tests::{Authority, CLIENT, SERVER};
use crate::tls::{ClientTls, ServerTls, TlsFault};

fn listener(tls: Option<ServerTls>) -> (Listener, String) {
    let listener = Listener::new(bind("127.0.0.1:0".parse().unwrap()).unwrap(), tls, Keepalive::default()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn pair(tls: bool) -> (Link, Link) {
    let ca = Authority::new();
    let server = tls.then(|| ServerTls::load(&ca.issue("localhost", SERVER)).unwrap());
    let client = tls.then(|| ClientTls::load(&ca.issue("n1", CLIENT)).unwrap());
    let (listener, address) = listener(server);
    let dialled = Dial { tls: client, server_name: "localhost".into(), ..Dial::plain(address) };
    let (a, b) = tokio::join!(dial(&dialled), async { listener.next().await.handshake().await });
    (a.unwrap(), b.unwrap())
}

#[tokio::test]
async fn frames_of_all_sizes_arrive_whole_and_in_order() {
    for tls in [false, true] {
        let (mut a, mut b) = pair(tls).await;
        let frames: Vec<Bytes> = [0, 1, 3, 511, 512, 513, 8 * 1024, 70_000, MAX_FRAME, 7]
            .iter()
            .map(|&size| (0..size).map(|i| (i * 31 + size) as u8).collect::<Vec<_>>().into())
            .collect();
        let send = async {
            for frame in &frames {
                a.writer.send(frame.clone()).await.unwrap();
            }
            a.writer.close().await.unwrap();
        };
        let receive = async {
            let mut got = Vec::new();
            while let Some(frame) = b.reader.next().await.unwrap() {
                got.push(frame);
            }
            got
        };
        let ((), got) = tokio::join!(send, receive);
        assert!(got == frames, "tls {tls}: frames differ");
        // Sends in the other direction while one side is closed.
        b.writer.send("back".into()).await.unwrap();
        assert_eq!(a.reader.next().await.unwrap().unwrap(), "back");
    }
}

#[tokio::test]
async fn the_wire_is_a_big_endian_length_and_the_bytes() {
    let (listener, address) = listener(None);
    let mut raw = TcpStream::connect(address).await.unwrap();
    let mut link = listener.next().await.handshake().await.unwrap();
    link.writer.send("abc".into()).await.unwrap();
    let mut seen = [0; 7];
    raw.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"\0\0\0\x03abc");
    raw.write_all(b"\0\0\0\x02xy").await.unwrap();
    assert_eq!(link.reader.next().await.unwrap().unwrap(), "xy");
}

#[tokio::test]
async fn a_frame_over_the_limit_is_distinguished() {
    let (listener, address) = listener(None);
    let mut raw = TcpStream::connect(address).await.unwrap();
    let mut link = listener.next().await.handshake().await.unwrap();
    raw.write_all(&(MAX_FRAME as u32 + 1).to_be_bytes()).await.unwrap();
    let error = link.reader.next().await.unwrap_err();
    assert!(matches!(error, LinkError::FrameTooLarge { .. }), "{error}");
    assert!(error.to_string().contains(&raw.local_addr().unwrap().to_string()), "{error}");
    let refused = link.writer.send(vec![0; MAX_FRAME + 1].into()).await;
    assert!(matches!(refused, Err(LinkError::FrameTooLarge { .. })));
    // The writer wrote no byte of the refused frame: the peer reads the next frame correctly.
    link.writer.send("ok".into()).await.unwrap();
    let mut seen = [0; 6];
    raw.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"\0\0\0\x02ok");
}

#[tokio::test]
async fn a_cut_inside_a_frame_is_an_error_between_frames_an_end() {
    let (listener, address) = listener(None);
    for (bytes, ends) in [(&b"\0\0\0\x05ab"[..], false), (b"\0\0", false), (b"\0\0\0\x01x", true)] {
        let mut raw = TcpStream::connect(&address).await.unwrap();
        let mut link = listener.next().await.handshake().await.unwrap();
        raw.write_all(bytes).await.unwrap();
        drop(raw);
        if ends {
            assert_eq!(link.reader.next().await.unwrap().unwrap(), "x");
            assert!(link.reader.next().await.unwrap().is_none());
        } else {
            link.reader.next().await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn a_tls_peer_that_dies_is_cut_off_not_at_an_end() {
    let (mut a, b) = pair(true).await;
    drop(b);
    let error = a.reader.next().await.unwrap_err();
    assert!(matches!(error, LinkError::Cut { .. }), "{error}");
}

/// A `select!` that drops a send half-way must not tear a frame.
#[tokio::test]
async fn a_dropped_send_is_finished_by_the_next() {
    for tls in [false, true] {
        let (mut a, mut b) = pair(tls).await;
        let big = Bytes::from(vec![7; MAX_FRAME]);
        let mut dropped = 0;
        // A send completes at once until the socket's buffers are full; then the test drops one half-way.
        loop {
            let send = a.writer.send(big.clone());
            tokio::pin!(send);
            match futures_util::poll!(send.as_mut()) {
                std::task::Poll::Ready(done) => done.unwrap(),
                std::task::Poll::Pending => break,
            }
            dropped += 1;
        }
        let finish = async {
            a.writer.send("last".into()).await.unwrap();
            a.writer.close().await.unwrap();
        };
        let read = async {
            let mut got = Vec::new();
            while let Some(frame) = b.reader.next().await.unwrap() {
                got.push(frame);
            }
            got
        };
        let ((), got) = tokio::join!(finish, read);
        assert_eq!(got.len(), dropped + 2, "tls {tls}");
        assert!(got[..=dropped].iter().all(|frame| *frame == big));
        assert_eq!(got[dropped + 1], "last");
    }
}

#[tokio::test]
async fn a_large_frame_leaves_no_large_buffer() {
    let (mut a, mut b) = pair(false).await;
    let (sent, frame) = tokio::join!(a.writer.send(vec![1; MAX_FRAME].into()), b.reader.next());
    sent.unwrap();
    drop(frame);
    assert!(b.reader.buffer_capacity() <= 1024, "{}", b.reader.buffer_capacity());
    a.writer.send("small".into()).await.unwrap();
    assert_eq!(b.reader.next().await.unwrap().unwrap(), "small");
    assert!(b.reader.buffer_capacity() <= 1024, "{}", b.reader.buffer_capacity());
}

#[tokio::test]
async fn the_kernel_watches_the_connection() {
    let (listener, address) = listener(None);
    let tcp = TcpStream::connect(&address).await.unwrap();
    let keepalive = Keepalive { idle: Duration::from_secs(11), count: 5, ..Keepalive::default() };
    keepalive.apply(&tcp).unwrap();
    assert!(sockopt::tcp_nodelay(&tcp).unwrap() && sockopt::socket_keepalive(&tcp).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&tcp).unwrap(), Duration::from_secs(11));
    assert_eq!(sockopt::tcp_keepintvl(&tcp).unwrap(), Duration::from_secs(10));
    assert_eq!(sockopt::tcp_keepcnt(&tcp).unwrap(), 5);
    assert_eq!(sockopt::tcp_user_timeout(&tcp).unwrap(), 60_000);
    for random in [0, 1, 3, 4, u64::MAX] {
        let Keepalive { idle, interval, count, user_timeout } = Keepalive::brief(random);
        let noticed = idle + interval * count;
        assert!(noticed.max(user_timeout) <= Duration::from_secs(10), "{random}: {noticed:?}");
    }
    drop(listener);
}

#[tokio::test]
async fn a_peer_without_tls_is_refused_and_the_next_is_served() {
    let ca = Authority::new();
    let (listener, address) = listener(Some(ServerTls::load(&ca.issue("localhost", SERVER)).unwrap()));
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 64], b""] {
        let mut raw = TcpStream::connect(&address).await.unwrap();
        raw.write_all(garbage).await.unwrap();
        raw.shutdown().await.unwrap();
        let error = listener.next().await.handshake().await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }
    let client = ClientTls::load(&ca.issue("n1", CLIENT)).unwrap();
    let good = Dial { server_name: "localhost".into(), ..Dial::tls(address, client) };
    let (dialled, accepted) = tokio::join!(dial(&good), async { listener.next().await.handshake().await });
    dialled.unwrap();
    assert_eq!(accepted.unwrap().identity.names, ["n1"]);
}

#[tokio::test]
async fn a_client_that_wants_tls_gets_a_fault_from_plain_text() {
    let ca = Authority::new();
    let (listener, address) = listener(None);
    let client = ClientTls::load(&ca.issue("n1", CLIENT)).unwrap();
    let serve = async {
        let mut link = listener.next().await.handshake().await.unwrap();
        link.writer.send("hello".into()).await.unwrap();
        link.reader.next().await
    };
    let wanted = Dial::tls(address, client);
    let (dialled, _) = tokio::join!(dial(&wanted), serve);
    assert_eq!(dialled.unwrap_err().tls_fault(), Some(TlsFault::Protocol));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_dropped_at_the_limit() {
    let ca = Authority::new();
    let (listener, address) = listener(Some(ServerTls::load(&ca.issue("localhost", SERVER)).unwrap()));
    let _silent = TcpStream::connect(&address).await.unwrap();
    let error = listener.next().await.handshake().await.unwrap_err();
    assert!(matches!(error, LinkError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn handshakes_at_once_are_bounded() {
    let (listener, address) = listener(None);
    let listener = Arc::new(listener);
    let mut waiting = Vec::new();
    let mut clients = Vec::new();
    while listener.free_places() > 0 {
        clients.push(TcpStream::connect(&address).await.unwrap());
        waiting.push(listener.next().await);
    }
    clients.push(TcpStream::connect(&address).await.unwrap());
    let next = listener.next();
    tokio::pin!(next);
    assert!(futures_util::poll!(next.as_mut()).is_pending());
    waiting.pop().unwrap().handshake().await.unwrap();
    assert_eq!(next.await.peer, clients.last().unwrap().local_addr().unwrap());
}

#[tokio::test]
async fn dialling_nobody_is_an_error_that_names_them() {
    let gone = bind("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap().to_string();
    let error = dial(&Dial::plain(&gone)).await.unwrap_err();
    assert!(matches!(&error, LinkError::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused));
    assert!(error.to_string().contains(&gone));
    assert_eq!(error.to_string().matches("127.0.0.1").count(), 1, "{error}");
    let by_name = gone.replace("127.0.0.1", "localhost");
    let error = dial(&Dial::plain(&by_name)).await.unwrap_err().to_string();
    assert!(error.contains(&format!("cannot connect to {by_name} (")) && error.contains("127.0.0.1"), "{error}");
    let error = dial(&Dial::plain("no port")).await.unwrap_err();
    assert!(matches!(error, LinkError::Resolve { .. }), "{error}");
    let listening = listener(None);
    let addresses = [gone.parse().unwrap(), listening.1.parse().unwrap()];
    let reached = super::dial::first_of(&addresses, Duration::from_secs(60), false).await.unwrap();
    assert_eq!(reached.peer_addr().unwrap(), addresses[1], "the next address is tried");
    assert_eq!(Dial::plain("[::1]:5").server_name, "::1");
    assert_eq!(Dial::plain("ctl.example:5").server_name, "ctl.example");
}

/// Dials with and without `as_root`. Root's connection comes from a port that only root may bind; another user gets an
/// error that names the missing privilege.
#[tokio::test]
async fn who_dials_as_root_comes_from_a_port_of_roots() {
    let (listener, address) = listener(None);
    // The connections stay open, so each has a different port.
    let (mut links, mut ports) = (Vec::new(), std::collections::BTreeSet::new());
    for _ in 0..3 {
        let (as_root, as_anybody) = (Dial { as_root: true, ..Dial::plain(&address) }, Dial::plain(&address));
        match dial(&as_root).await {
            Ok(link) => {
                links.push((link, listener.next().await));
                assert!(links.last().is_some_and(|(_, incoming)| ports.insert(incoming.peer.port())));
            }
            Err(error) => assert!(error.to_string().contains("CAP_NET_BIND_SERVICE is missing"), "{error}"),
        }
        let _link = dial(&as_anybody).await.unwrap();
        assert!(!is_roots(listener.next().await.peer.port()));
    }
    assert!(ports.iter().all(|port| is_roots(*port) && *port >= 600), "{ports:?}");
    assert_eq!(ports.is_empty(), !rustix::process::geteuid().is_root());
}
