//! Tests with clients that send garbage, read nothing, leave, or are too many; and with handlers that have bugs.

use super::*;

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let bed = bed();
    let deep = format!("{{\"method\":\"test.echo.Echo\",\"parameters\":{}\0", "[".repeat(100_000)).into_bytes();
    for bytes in [&b"hello\0"[..], b"\0", b"[]\0", b"{\"method\":7}\0", b"{\"method\":\"\xff\"}\0", b"{}\0", &deep] {
        let mut raw = Raw::connect(&bed).await;
        raw.stream.write_all(bytes).await.unwrap();
        assert_eq!(raw.next().await, None, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
    }
    echoes(&bed).await;
    assert_eq!(bed.service.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_a_request_over_the_limit_ends_its_connection() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let frame = json!({ "method": "test.echo.Echo", "parameters": { "text": "" } }).to_string().len();
    let answer = raw.call("test.echo.Echo", json!({ "text": "x".repeat(MAX_REQUEST - frame) })).await;
    assert_eq!(answer["parameters"]["text"].as_str().unwrap().len(), MAX_REQUEST - frame);
    let mut raw = Raw::connect(&bed).await;
    // The server may close while the test still writes.
    let _ = raw.stream.write_all(&vec![b' '; 2 * MAX_REQUEST]).await;
    assert_eq!(raw.next().await.unwrap()["error"], "org.varlink.service.InvalidParameter");
    assert_eq!(raw.next().await, None);
    echoes(&bed).await;
}

#[tokio::test]
async fn a_client_may_leave_at_any_moment() {
    let bed = bed();
    for bytes in [
        &b""[..],
        b"{\"meth",
        b"{\"method\":\"test.echo.Slow\"}\0",
        b"{\"method\":\"test.echo.Flood\",\"more\":true}\0",
    ] {
        let mut raw = Raw::connect(&bed).await;
        raw.stream.write_all(bytes).await.unwrap();
    }
    echoes(&bed).await;
}

#[tokio::test]
async fn a_stream_without_an_end_ends_the_connection() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.HalfStream", "more": true })).await;
    assert_eq!(raw.next().await.unwrap()["continues"], true);
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn a_panic_ends_one_connection() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Panic" })).await;
    assert_eq!(raw.next().await, None);
    echoes(&bed).await;
}

#[tokio::test]
async fn a_hundred_clients_are_served_beside_stalled_and_slow_ones() {
    let bed = bed();
    let mut stalled = Raw::connect(&bed).await;
    stalled.send(json!({ "method": "test.echo.Flood", "more": true })).await;
    stalled.stream.readable().await.unwrap();
    let mut slow = Raw::connect(&bed).await;
    slow.send(json!({ "method": "test.echo.Slow" })).await;
    // A client that pipelines and reads nothing: its requests pile up in its own socket.
    let greedy = Raw::connect(&bed).await;
    let request = [&b"{\"method\":\"test.echo.Echo\",\"parameters\":{\"text\":\"x\",\"times\":50000}}\0"[..]].concat();
    while greedy.stream.try_write(&request).is_ok() {
        tokio::task::yield_now().await;
    }
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(Raw::connect(&bed).await);
    }
    for round in 0..3 {
        for client in &mut clients {
            let answer = client.call("test.echo.Echo", json!({ "text": round.to_string() })).await;
            assert_eq!(answer["parameters"]["text"], round.to_string());
        }
    }
    bed.service.slow.notify_one();
    assert!(slow.next().await.is_some());
}

/// The server disconnects a client that leaves a reply unread for ten seconds. The clock of tokio is paused: it jumps
/// ahead when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_nothing_is_cut_off() {
    let bed = bed();
    let mut stalled = Raw::connect(&bed).await;
    stalled.send(json!({ "method": "test.echo.Flood", "more": true })).await;
    let before = tokio::time::Instant::now();
    bed.service.client_left.notified().await;
    assert!(before.elapsed() >= Duration::from_secs(10), "{:?}", before.elapsed());
    // The socket still has complete messages and the beginning of a torn message.
    let mut rest = Vec::new();
    stalled.stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() > 100_000);
}

/// Regression test: the server parsed a stranger's parameters before it refused the call. A megabyte of small objects
/// took 95 MB of memory, for as long as the client did not read the refusal.
#[tokio::test]
async fn a_stranger_is_refused_before_its_parameters_are_parsed() {
    let bed = strange_bed(Bounds::default());
    let mut raw = Raw::connect(&bed).await;
    // The method has no such parameters: if the server parsed them, the answer would be InvalidParameter.
    let refused = raw.call("test.echo.Secret", json!({ "a": [{ "": 0 }, { "": 0 }] })).await;
    assert_eq!(refused["error"], "test.echo.PermissionDenied");
    assert_eq!(refused["parameters"]["text"], "Secret is for nobody");
    let frame = json!({ "method": "test.echo.Echo", "parameters": { "text": "" } }).to_string().len();
    let room = MAX_REQUEST_OF_STRANGERS - frame;
    let answer = raw.call("test.echo.Echo", json!({ "text": "x".repeat(room) })).await;
    assert_eq!(answer["parameters"]["text"].as_str().unwrap().len(), room);
    raw.send(json!({ "method": "test.echo.Echo", "parameters": { "text": "x".repeat(2 * room) } })).await;
    let reported = raw.next().await.unwrap();
    assert_eq!(reported, error("InvalidParameter", "parameter", "sent a request larger than 8192 bytes"));
    assert_eq!(raw.next().await, None);
}
